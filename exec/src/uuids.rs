//! A UUID is 16 bytes. Its Arrow type is `FixedSizeBinary(16)`, and no other values have this type:
//! binary values of any length are `BinaryView`. So the type alone says what a value is, and the
//! metadata of Arrow's extension `arrow.uuid`, which most functions lose, is only needed where rows
//! come from clients or go to them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, StringBuilder};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use rand::Rng;
use uuid::{Builder, Uuid};

/// Number of bytes of a UUID.
const UUID_BYTES: i32 = 16;
/// Number of characters of a UUID as text.
const UUID_TEXT_BYTES: usize = 36;

/// The name of Arrow's extension type for UUIDs.
pub const UUID_EXTENSION: &str = "arrow.uuid";

/// The Arrow type of UUIDs.
pub const UUID: DataType = DataType::FixedSizeBinary(UUID_BYTES);

/// Reads a UUID from a text: 32 hexadecimal digits, with hyphens or without them, also in braces.
/// Upper and lower case do not matter.
pub fn parse(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text.trim()).ok()
}

/// Returns UUIDs as texts with hyphens, in lower case.
pub(crate) fn write_texts(uuids: &dyn Array) -> ArrayRef {
    let mut texts = StringBuilder::with_capacity(uuids.len(), uuids.len() * UUID_TEXT_BYTES);
    for bytes in uuids.as_fixed_size_binary() {
        let text = bytes
            .and_then(|bytes| Uuid::from_slice(bytes).ok())
            .map(|uuid| uuid.hyphenated().to_string());
        texts.append_option(text);
    }
    Arc::new(texts.finish())
}

/// Returns a column of UUIDs.
///
/// # Errors
/// The first error among the values.
pub(crate) fn from_uuids(
    values: impl Iterator<Item = Result<Option<Uuid>, ArrowError>>,
) -> Result<ArrayRef, ArrowError> {
    let mut uuids = FixedSizeBinaryBuilder::with_capacity(values.size_hint().0, UUID_BYTES);
    for value in values {
        match value? {
            Some(uuid) => uuids.append_value(uuid.as_bytes())?,
            None => uuids.append_null(),
        }
    }
    Ok(Arc::new(uuids.finish()))
}

/// Returns the function that makes random UUIDs, `uuid` or `gen_random_uuid`.
pub fn random_uuid() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(RandomUuid {
        aliases: ["gen_random_uuid".to_owned()],
        signature: Signature::nullary(Volatility::Volatile),
    }))
}

/// The function that returns another random UUID for each row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RandomUuid {
    aliases: [String; 1],
    signature: Signature,
}

impl ScalarUDFImpl for RandomUuid {
    fn name(&self) -> &'static str {
        "uuid"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(UUID)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut random = rand::rng();
        let uuids = (0..args.number_rows).map(|_| {
            let uuid = Builder::from_random_bytes(random.random()).into_uuid();
            Ok(Some(uuid))
        });
        Ok(ColumnarValue::Array(from_uuids(uuids)?))
    }
}
