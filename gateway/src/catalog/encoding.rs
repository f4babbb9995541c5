//! How bytes, schemas and values stand in the catalog's records, which are JSON: as text in hexadecimal.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion_proto::protobuf;
use prost::Message;
use volary_flight_proto::ipc;

/// A smallest or largest value that takes more bytes is not kept: it would be written again with every load.
const MAX_SCALAR_BYTES: usize = 256;

/// Bytes as text.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        })
        .map(char::from)
        .collect()
}

/// Text as bytes; none if it is not hexadecimal.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| {
            digit
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    Some(pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A schema, as an Arrow IPC message in hexadecimal.
pub(super) fn schema_to_hex(schema: &Schema) -> String {
    to_hex(&ipc::schema_to_bytes(schema))
}

/// What [`schema_to_hex`] made; none if it is damaged.
pub(super) fn schema_from_hex(text: &str) -> Option<SchemaRef> {
    ipc::schema_from_bytes(&from_hex(text)?).ok().map(Arc::new)
}

/// One value; none if it is too long or of a type that has no encoding.
pub(super) fn scalar_to_hex(value: &ScalarValue) -> Option<String> {
    let encoded = protobuf::ScalarValue::try_from(value).ok()?;
    (encoded.encoded_len() <= MAX_SCALAR_BYTES).then(|| to_hex(&encoded.encode_to_vec()))
}

/// What [`scalar_to_hex`] made; none if it is damaged.
pub(super) fn scalar_from_hex(text: &str) -> Option<ScalarValue> {
    let encoded = protobuf::ScalarValue::decode(from_hex(text)?.as_slice()).ok()?;
    ScalarValue::try_from(&encoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_values_come_back_and_nonsense_does_not() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
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
