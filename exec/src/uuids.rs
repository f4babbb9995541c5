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

/// Number of hexadecimal digits of a UUID.
const DIGITS: u32 = 32;

/// Reads a UUID from a text: 32 hexadecimal digits, also in braces, in upper or lower case, and
/// with hyphens between any groups of four digits or without them.
pub(crate) fn parse(text: &str) -> Option<Uuid> {
    let text = text.trim();
    let text = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let (mut number, mut digits, mut after_hyphen) = (0_u128, 0, true);
    for char in text.chars() {
        if char == '-' {
            if after_hyphen || digits % 4 != 0 || digits == DIGITS {
                return None;
            }
            after_hyphen = true;
        } else {
            number = (number << 4) | u128::from(char.to_digit(16)?);
            digits += 1;
            after_hyphen = false;
            if digits > DIGITS {
                return None;
            }
        }
    }
    (digits == DIGITS && !after_hyphen).then(|| Uuid::from_u128(number))
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
pub(crate) fn random_uuid() -> Arc<ScalarUDF> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_32_digits_in_groups_of_four() {
        let expected = Uuid::from_u128(0x6f96_19ff_8b86_d011_b42d_00c0_4fc9_64ff);
        for text in [
            "6f9619ff-8b86-d011-b42d-00c04fc964ff",
            " 6F9619FF8B86D011B42D00C04FC964FF ",
            "{6f9619ff8b86d011b42d00c04fc964ff}",
            "6f96-19ff-8b86-d011-b42d-00c0-4fc9-64ff",
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "{}",
            "6f9619ff-8b86-d011-b42d-00c04fc964f",
            "6f9619ff-8b86-d011-b42d-00c04fc964ff0",
            "6f9619ff-8b86-d011-b42d-00c04fc964fg",
            "6f9619f-f8b86-d011-b42d-00c04fc964ff",
            "6f9619ff--8b86-d011-b42d-00c04fc964ff",
            "-6f9619ff-8b86-d011-b42d-00c04fc964ff",
            "6f9619ff-8b86-d011-b42d-00c04fc964ff-",
            "{6f9619ff-8b86-d011-b42d-00c04fc964ff",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
