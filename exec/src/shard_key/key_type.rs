use arrow::datatypes::{DataType, TimeUnit};
use volary_flight_proto::{Error, Result};

const SUPPORTED: &str = "Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, Date32, Time64(µs), Timestamp, \
     Decimal128, Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView or FixedSizeBinary";

/// A set of types. A cast between two types of a family either keeps the value, and with it the
/// hash, or fails.
#[derive(Debug, PartialEq, Eq)]
enum Family {
    Integer,
    Date,
    Time,
    Timestamp { unit: TimeUnit, zoned: bool },
    Decimal { scale: i8 },
    Text,
    Bytes,
}

/// Refuses a type that a shard key cannot have.
///
/// # Errors
/// `INVALID_ARGUMENT`, with the type, the reason and the types to choose from.
pub fn check_key_type(data_type: &DataType) -> Result<()> {
    match family(data_type) {
        Some(_) => Ok(()),
        None => Err(unsupported_key_type(data_type)),
    }
}

/// Returns whether a value has the same hash in the types `a` and `b`. Tables with keys of such
/// types can be joined shard by shard, and a literal of one type can prune the shards of a key of
/// the other.
///
/// The result is true only if every cast between the two types, in either direction, keeps the
/// value or fails. So the planner may also ignore such a cast. This is the case
/// - among the signed integers up to 64 bits and the unsigned integers up to 32 bits;
/// - among the three string types, and among the four binary types;
/// - among decimals of one scale and any precision, because the unscaled value is hashed;
/// - among timestamps of one unit, if all have a time zone (any zone) or none has one;
/// - between a key type and itself.
///
/// The result is false for timestamps of two units, although one instant has the same hash in all
/// units. A cast to the coarser unit drops digits, so values with different hashes compare as equal
/// (1001 µs cast to milliseconds is 1 ms). It is false for a timestamp with a time zone and one
/// without, because the cast shifts the value by the offset of the zone. It is false for an integer
/// and a decimal, and for a date and a timestamp, because equal values have different canonical
/// bytes. It is false for a type that cannot be a key, even with itself.
pub fn hash_agrees(a: &DataType, b: &DataType) -> bool {
    family(a).is_some_and(|family_of_a| family(b) == Some(family_of_a))
}

fn family(data_type: &DataType) -> Option<Family> {
    match data_type {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => Some(Family::Integer),
        DataType::Date32 => Some(Family::Date),
        DataType::Time64(TimeUnit::Microsecond) => Some(Family::Time),
        DataType::Timestamp(unit, zone) => Some(Family::Timestamp {
            unit: *unit,
            zoned: zone.is_some(),
        }),
        DataType::Decimal128(_, scale) => Some(Family::Decimal { scale: *scale }),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(Family::Text),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Some(Family::Bytes),
        _ => None,
    }
}

/// Returns the error for a type that has no hash.
pub(super) fn unsupported_key_type(data_type: &DataType) -> Error {
    let reason = match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            "floating-point values that compare as equal can differ in their bytes"
        }
        DataType::Boolean => "two values cannot be spread over shards",
        DataType::UInt64 => {
            "its largest values do not fit the 64-bit signed integer that is hashed"
        }
        _ => "no hash is defined for it",
    };
    Error::invalid(format!(
        "a column of type {data_type} cannot be the shard key: {reason}; choose or cast to a column of type {SUPPORTED}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(zone: Option<&str>) -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
    }

    #[test]
    fn types_agree_where_a_cast_keeps_the_value() {
        use DataType::{
            Binary, BinaryView, Date32, Decimal128, FixedSizeBinary, Int8, Int64, LargeUtf8,
            UInt32, Utf8, Utf8View,
        };
        for (a, b) in [
            (Int8, Int64),
            (UInt32, Int8),
            (Utf8, Utf8View),
            (Utf8View, LargeUtf8),
            (Binary, BinaryView),
            (FixedSizeBinary(16), Binary),
            (FixedSizeBinary(16), FixedSizeBinary(8)),
            (Decimal128(9, 2), Decimal128(38, 2)),
            (Date32, Date32),
            (micros(None), micros(None)),
            (micros(Some("UTC")), micros(Some("Europe/Prague"))),
        ] {
            assert!(hash_agrees(&a, &b) && hash_agrees(&b, &a), "{a} and {b}");
        }
    }

    #[test]
    fn types_do_not_agree_where_a_cast_changes_value_or_bytes() {
        use DataType::{
            Binary, Boolean, Date32, Decimal128, Float64, Int32, Int64, Time64, UInt64, Utf8,
        };
        for (a, b) in [
            (Int64, Decimal128(19, 0)),
            (Int64, UInt64),
            (Int32, Date32),
            (Int64, micros(None)),
            (Time64(TimeUnit::Microsecond), Int64),
            (Date32, micros(None)),
            (Decimal128(9, 2), Decimal128(9, 3)),
            (Utf8, Binary),
            (micros(None), micros(Some("UTC"))),
            (
                micros(None),
                DataType::Timestamp(TimeUnit::Nanosecond, None),
            ),
            (micros(None), DataType::Timestamp(TimeUnit::Second, None)),
            (Float64, Float64),
            (Boolean, Boolean),
        ] {
            assert!(!hash_agrees(&a, &b) && !hash_agrees(&b, &a), "{a} and {b}");
        }
    }

    #[test]
    fn a_refusal_names_the_type_the_reason_and_the_choice() {
        let error = check_key_type(&DataType::Float64).unwrap_err();
        assert_eq!(
            error.code(),
            volary_flight_proto::ErrorCode::InvalidArgument
        );
        for part in ["Float64", "floating-point", "Decimal128", "Utf8View"] {
            assert!(error.message().contains(part), "{part} in {error}");
        }
    }
}
