use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion_proto::protobuf;
use prost::Message;
use volary_flight_proto::ipc;

/// Maximum encoded size of a smallest or largest value, in bytes. A larger value is not kept,
/// because each write to the table stores the statistics anew.
const MAX_SCALAR_BYTES: usize = 256;

/// Encodes a schema as an Arrow IPC message in hexadecimal.
pub(super) fn schema_to_hex(schema: &Schema) -> String {
    hex::encode(ipc::schema_to_bytes(schema))
}

/// Decodes what [`schema_to_hex`] returned. Returns `None` if the text is damaged.
pub(super) fn schema_from_hex(text: &str) -> Option<SchemaRef> {
    ipc::schema_from_bytes(&hex::decode(text).ok()?)
        .ok()
        .map(Arc::new)
}

/// Encodes one value. Returns `None` if it is too long, or if its type has no encoding.
pub(super) fn scalar_to_hex(value: &ScalarValue) -> Option<String> {
    let encoded = protobuf::ScalarValue::try_from(value).ok()?;
    (encoded.encoded_len() <= MAX_SCALAR_BYTES).then(|| hex::encode(encoded.encode_to_vec()))
}

/// Decodes what [`scalar_to_hex`] returned. Returns `None` if the text is damaged.
pub(super) fn scalar_from_hex(text: &str) -> Option<ScalarValue> {
    let encoded = protobuf::ScalarValue::decode(hex::decode(text).ok()?.as_slice()).ok()?;
    ScalarValue::try_from(&encoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_nonsense_does_not() {
        for value in [
            ScalarValue::Int64(Some(-7)),
            ScalarValue::Utf8View(Some("š".to_owned())),
            ScalarValue::TimestampMicrosecond(Some(5), Some("UTC".into())),
            ScalarValue::Decimal128(Some(1234), 15, 2),
        ] {
            assert_eq!(
                scalar_to_hex(&value).and_then(|text| scalar_from_hex(&text)),
                Some(value)
            );
        }
        let long = ScalarValue::Utf8(Some("x".repeat(1000)));
        assert_eq!(scalar_to_hex(&long), None);
    }
}
