//! The shard of a key is computed for every row that is ever loaded. So each type has its own loop,
//! which is chosen once per array.

use std::num::NonZeroU32;

use arrow::array::{Array, ArrayAccessor, ArrayIter, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};
use datafusion::common::ScalarValue;
use volary_flight_proto::{Error, Result};

use super::key_type::unsupported_key_type;
use super::murmur3::{hash_bytes, hash_long};

/// The shard of the rows whose key is NULL.
pub const NULL_SHARD: u32 = 0;

/// Returns the shard of each row of `array`, in order. Each number is less than `shards`, the
/// number of shards of the table.
///
/// An untyped array (`DataType::Null`) holds only NULLs. It is accepted, whatever the type of the
/// key.
///
/// # Errors
/// `INVALID_ARGUMENT` for a type that cannot be a key (see
/// [`check_key_type`](super::check_key_type)), or for 0 shards.
pub fn shards_of(array: &dyn Array, shards: u32) -> Result<Vec<u32>> {
    let shards = NonZeroU32::new(shards)
        .ok_or_else(|| Error::invalid("a table has 1 shard or more, not 0"))?;
    Ok(match array.data_type() {
        DataType::Null => vec![NULL_SHARD; array.len()],
        DataType::Int8 => shards_of_longs::<Int8Type>(array, shards, i64::from),
        DataType::Int16 => shards_of_longs::<Int16Type>(array, shards, i64::from),
        DataType::Int32 => shards_of_longs::<Int32Type>(array, shards, i64::from),
        DataType::Int64 => shards_of_longs::<Int64Type>(array, shards, |value| value),
        DataType::UInt8 => shards_of_longs::<UInt8Type>(array, shards, i64::from),
        DataType::UInt16 => shards_of_longs::<UInt16Type>(array, shards, i64::from),
        DataType::UInt32 => shards_of_longs::<UInt32Type>(array, shards, i64::from),
        DataType::Date32 => shards_of_longs::<Date32Type>(array, shards, i64::from),
        DataType::Time64(TimeUnit::Microsecond) => {
            shards_of_longs::<Time64MicrosecondType>(array, shards, |micros| micros)
        }
        // A product that overflows wraps around. Such an instant is outside the range of Iceberg's
        // microseconds, so no other client can store it. Any shard will do, if it is always the
        // same one.
        DataType::Timestamp(TimeUnit::Second, _) => {
            shards_of_longs::<TimestampSecondType>(array, shards, |seconds| {
                seconds.wrapping_mul(1_000_000)
            })
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            shards_of_longs::<TimestampMillisecondType>(array, shards, |millis| {
                millis.wrapping_mul(1_000)
            })
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            shards_of_longs::<TimestampMicrosecondType>(array, shards, |micros| micros)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            shards_of_longs::<TimestampNanosecondType>(array, shards, |nanos| {
                nanos.div_euclid(1_000)
            })
        }
        DataType::Decimal128(_, _) => {
            shards_of_primitives::<Decimal128Type>(array, shards, hash_decimal)
        }
        DataType::Utf8 => shards_of_bytes(array.as_string::<i32>(), shards),
        DataType::LargeUtf8 => shards_of_bytes(array.as_string::<i64>(), shards),
        DataType::Utf8View => shards_of_bytes(array.as_string_view(), shards),
        DataType::Binary => shards_of_bytes(array.as_binary::<i32>(), shards),
        DataType::LargeBinary => shards_of_bytes(array.as_binary::<i64>(), shards),
        DataType::BinaryView => shards_of_bytes(array.as_binary_view(), shards),
        DataType::FixedSizeBinary(_) => shards_of_bytes(array.as_fixed_size_binary(), shards),
        other => return Err(unsupported_key_type(other)),
    })
}

/// Returns the shard of one value. It calls [`shards_of`], so both return the same shard.
///
/// The value must have the type of the key, or a type that [agrees](super::hash_agrees) with it.
/// For example, the decimal 34 and the integer 34 have different shards.
///
/// # Errors
/// The errors of [`shards_of`].
pub fn shard_of_scalar(value: &ScalarValue, shards: u32) -> Result<u32> {
    // `to_array` panics if the declared size differs from the size of the value.
    if let ScalarValue::FixedSizeBinary(size, Some(bytes)) = value
        && i32::try_from(bytes.len()) != Ok(*size)
    {
        return Err(Error::invalid(format!(
            "a value of {} bytes is declared as FixedSizeBinary({size}); declare its true size",
            bytes.len()
        )));
    }
    shards_of(value.to_array()?.as_ref(), shards)?
        .first()
        .copied()
        .ok_or_else(|| Error::internal(format!("the value {value} became an array without rows")))
}

fn shards_of_longs<T: ArrowPrimitiveType>(
    array: &dyn Array,
    shards: NonZeroU32,
    to_long: impl Fn(T::Native) -> i64,
) -> Vec<u32> {
    shards_of_primitives::<T>(array, shards, |value| hash_long(to_long(value)))
}

fn shards_of_primitives<T: ArrowPrimitiveType>(
    array: &dyn Array,
    shards: NonZeroU32,
    hash: impl Fn(T::Native) -> u32,
) -> Vec<u32> {
    let array = array.as_primitive::<T>();
    if array.null_count() == 0 {
        // This loop has no branch per row.
        array
            .values()
            .iter()
            .map(|value| bucket(hash(*value), shards))
            .collect()
    } else {
        shards_of_values(array, shards, hash)
    }
}

fn shards_of_bytes<A: ArrayAccessor>(array: A, shards: NonZeroU32) -> Vec<u32>
where
    A::Item: AsRef<[u8]>,
{
    shards_of_values(array, shards, |value| hash_bytes(value.as_ref()))
}

fn shards_of_values<A: ArrayAccessor>(
    array: A,
    shards: NonZeroU32,
    hash: impl Fn(A::Item) -> u32,
) -> Vec<u32> {
    ArrayIter::new(array)
        .map(|value| value.map_or(NULL_SHARD, |value| bucket(hash(value), shards)))
        .collect()
}

/// Returns the hash of an unscaled decimal: the hash of the fewest bytes that hold it in two's
/// complement, big-endian.
fn hash_decimal(unscaled: i128) -> u32 {
    // Leading ones of a negative number are as redundant as leading zeros of a positive one. One
    // sign bit has to stay.
    let magnitude = if unscaled < 0 { !unscaled } else { unscaled };
    let redundant_bytes = (magnitude.leading_zeros() - 1) / 8;
    hash_bytes(&unscaled.to_be_bytes()[redundant_bytes as usize..])
}

/// Returns the bucket of a hash: Iceberg's `(hash & Integer.MAX_VALUE) % N`.
#[inline]
fn bucket(hash: u32, shards: NonZeroU32) -> u32 {
    (hash & i32::MAX.cast_unsigned()) % shards
}
