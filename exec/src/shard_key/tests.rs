//! Tests the published values of the Iceberg specification, and properties that hold for all
//! values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, NullArray, StringArray, StringViewArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array,
    new_empty_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;

use super::murmur3::hash_bytes;
use super::*;

/// The number of hashes without the sign bit. With this many shards, the shard is the hash without
/// its sign bit.
const ALL: u32 = 1 << 31;

const SECOND: i64 = 1_510_871_468; // 2017-11-16T22:31:08

fn decimals(unscaled: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(unscaled);
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

fn uuids(bytes: [u8; 16]) -> ArrayRef {
    Arc::new(FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).unwrap())
}

#[test]
fn the_published_hashes_of_the_iceberg_specification_are_met() {
    let uuid = *uuid::Uuid::parse_str("f79c3e09-677c-4bbd-a479-3f349cb785e7")
        .unwrap()
        .as_bytes();
    let second = SECOND;
    let published: Vec<(ArrayRef, i32)> = vec![
        (Arc::new(Int8Array::from(vec![34])), 2_017_239_379),
        (Arc::new(Int16Array::from(vec![34])), 2_017_239_379),
        (Arc::new(Int32Array::from(vec![34])), 2_017_239_379),
        (Arc::new(Int64Array::from(vec![34])), 2_017_239_379),
        (Arc::new(UInt8Array::from(vec![34])), 2_017_239_379),
        (Arc::new(UInt16Array::from(vec![34])), 2_017_239_379),
        (Arc::new(UInt32Array::from(vec![34])), 2_017_239_379),
        (decimals(vec![1420], 9, 2), -500_754_589),
        // This is 137302769811943318102518958871258.37580, from the tests of Iceberg's Python
        // library.
        (
            decimals(
                vec![13_730_276_981_194_331_810_251_895_887_125_837_580],
                38,
                5,
            ),
            -32_334_285,
        ),
        (Arc::new(Date32Array::from(vec![17_486])), -653_330_422),
        (
            Arc::new(Time64MicrosecondArray::from(vec![81_068_000_000])),
            -662_762_989,
        ),
        (
            Arc::new(TimestampSecondArray::from(vec![second])),
            -2_047_944_441,
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![second * 1_000])),
            -2_047_944_441,
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![second * 1_000_000])),
            -2_047_944_441,
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![
                second * 1_000_000 + 1,
            ])),
            -1_207_196_810,
        ),
        (
            Arc::new(
                TimestampMicrosecondArray::from(vec![second * 1_000_000]).with_timezone("-08:00"),
            ),
            -2_047_944_441,
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![second * 1_000_000_000])),
            -2_047_944_441,
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![
                second * 1_000_000_000 + 1_001,
            ])),
            -1_207_196_810,
        ),
        (Arc::new(StringArray::from(vec!["iceberg"])), 1_210_000_089),
        (uuids(uuid), 1_488_055_340),
        (
            Arc::new(BinaryArray::from_vec(vec![&[0, 1, 2, 3][..]])),
            -188_683_207,
        ),
        (
            Arc::new(FixedSizeBinaryArray::try_from_iter([[0_u8, 1, 2, 3]].into_iter()).unwrap()),
            -188_683_207,
        ),
    ];
    for (array, hash) in published {
        let expected = (hash & i32::MAX).cast_unsigned();
        let name = array.data_type();
        assert_eq!(shards_of(&array, ALL).unwrap(), [expected], "{name}");
        assert_eq!(shards_of(&array, 100).unwrap(), [expected % 100], "{name}");
    }
}

#[test]
fn a_nanosecond_before_the_epoch_belongs_to_the_microsecond_before_it() {
    let nanos = TimestampNanosecondArray::from(vec![-1, -1_000, -1_001, 0, 999]);
    let micros = TimestampMicrosecondArray::from(vec![-1, -1, -2, 0, 0]);
    assert_eq!(
        shards_of(&nanos, ALL).unwrap(),
        shards_of(&micros, ALL).unwrap()
    );
}

#[test]
fn timestamps_beyond_the_range_of_microseconds_have_a_shard() {
    for array in [
        Arc::new(TimestampSecondArray::from(vec![i64::MIN, i64::MAX])) as ArrayRef,
        Arc::new(TimestampMillisecondArray::from(vec![i64::MIN, i64::MAX])),
        Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, i64::MAX])),
    ] {
        assert!(shards_of(&array, 7).unwrap().iter().all(|shard| *shard < 7));
    }
}

#[test]
fn a_decimal_is_hashed_in_as_few_bytes_as_hold_it() {
    for (unscaled, bytes) in [
        (0, &[0][..]),
        (-1, &[0xff]),
        (127, &[0x7f]),
        (128, &[0x00, 0x80]),
        (-128, &[0x80]),
        (-129, &[0xff, 0x7f]),
        (i128::from(i64::MIN), &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        (i128::MAX, &i128::MAX.to_be_bytes()),
        (i128::MIN, &i128::MIN.to_be_bytes()),
    ] {
        let expected = hash_bytes(bytes) & i32::MAX.cast_unsigned();
        let array = decimals(vec![unscaled], 38, 0);
        assert_eq!(shards_of(&array, ALL).unwrap(), [expected], "{unscaled}");
    }
}

#[test]
fn null_belongs_to_shard_0_in_every_type() {
    let integers = Int64Array::from(vec![Some(34), None, Some(35)]);
    let shards = shards_of(&integers, ALL).unwrap();
    assert_eq!((shards[0], shards[1]), (2_017_239_379, NULL_SHARD));
    let texts = StringViewArray::from(vec![None, Some("iceberg"), None]);
    assert_eq!(shards_of(&texts, ALL).unwrap(), [0, 1_210_000_089, 0]);
    assert_eq!(shards_of(&NullArray::new(2), 64).unwrap(), [0, 0]);
    for data_type in key_types() {
        let null = ScalarValue::try_from(&data_type).unwrap();
        assert!(null.is_null());
        assert_eq!(
            shard_of_scalar(&null, 64).unwrap(),
            NULL_SHARD,
            "{data_type}"
        );
    }
    assert_eq!(shard_of_scalar(&ScalarValue::Null, 64).unwrap(), NULL_SHARD);
}

#[test]
fn a_type_is_hashed_exactly_if_it_is_accepted_as_a_key() {
    for data_type in key_types() {
        let array = new_empty_array(&data_type);
        check_key_type(&data_type).unwrap();
        assert!(shards_of(&array, 64).unwrap().is_empty());
        assert!(hash_agrees(&data_type, &data_type), "{data_type}");
    }
    for data_type in [
        DataType::Boolean,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Date64,
        DataType::Time32(TimeUnit::Second),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Duration(TimeUnit::Second),
        DataType::Interval(IntervalUnit::DayTime),
        DataType::Decimal256(9, 2),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true))),
    ] {
        let refused = check_key_type(&data_type).unwrap_err();
        let array = new_empty_array(&data_type);
        assert_eq!(shards_of(&array, 64).unwrap_err().text(), refused.text());
        assert!(!hash_agrees(&data_type, &data_type), "{data_type}");
    }
    assert!(check_key_type(&DataType::Null).is_err());
}

#[test]
fn zero_shards_and_a_value_of_another_size_are_errors() {
    assert!(shards_of(&Int64Array::from(vec![1]), 0).is_err());
    assert!(shard_of_scalar(&ScalarValue::Float64(Some(1.0)), 64).is_err());
    assert!(shards_of(&Float64Array::from(vec![1.0]), 64).is_err());
    let short = ScalarValue::FixedSizeBinary(16, Some(vec![0; 15]));
    assert!(shard_of_scalar(&short, 64).is_err());
}

/// Tests random arrays with NULLs. A scalar has the shard of its row, a slice has the shards of its
/// rows, and a value has the same shard in every type that agrees.
#[test]
fn arrays_slices_scalars_and_agreeing_types_give_the_same_shards() {
    let mut random = Random(42);
    for shards in [1, 2, 7, 64, 2_160, ALL] {
        for array in random_arrays(&mut random, 97) {
            let name = array.data_type();
            let expected = shards_of(&array, shards).unwrap();
            assert_eq!(expected.len(), array.len());
            assert!(expected.iter().all(|shard| *shard < shards));
            for (row, shard) in expected.iter().enumerate() {
                let value = ScalarValue::try_from_array(&array, row).unwrap();
                assert_eq!(
                    shard_of_scalar(&value, shards).unwrap(),
                    *shard,
                    "{value} as {name}"
                );
            }
            let slice = array.slice(13, 50);
            assert_eq!(
                shards_of(&slice, shards).unwrap(),
                expected[13..63],
                "{name}"
            );
            for other in key_types() {
                // A value that the other type cannot hold is NULL after the cast, and is skipped.
                let Ok(other_array) = cast(&array, &other) else {
                    continue;
                };
                if !hash_agrees(name, &other) {
                    continue;
                }
                for (row, shard) in shards_of(&other_array, shards).unwrap().iter().enumerate() {
                    if other_array.is_valid(row) {
                        assert_eq!(*shard, expected[row], "row {row}, {name} as {other}");
                    }
                }
            }
        }
    }
}

fn key_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        Date32,
        Time64(TimeUnit::Microsecond),
        Decimal128(9, 2),
        Decimal128(38, 2),
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(16),
    ];
    for unit in [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ] {
        types.push(Timestamp(unit, None));
        types.push(Timestamp(unit, Some("UTC".into())));
        types.push(Timestamp(unit, Some("+02:00".into())));
    }
    types
}

fn random_arrays(random: &mut Random, rows: usize) -> Vec<ArrayRef> {
    let longs: Int64Array = (0..rows)
        .map(|_| random.maybe().then(|| random.long()))
        .collect();
    let texts: StringArray = (0..rows)
        .map(|_| random.maybe().then(|| random.text()))
        .collect();
    let uuids = (0..rows).map(|_| random.maybe().then(|| random.uuid()));
    let uuids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids, 16).unwrap();
    let without_nulls: Int64Array = (0..rows).map(|_| Some(random.long())).collect();
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(without_nulls), Arc::new(uuids)];
    for data_type in key_types() {
        // A value that does not fit the type becomes NULL. `long` is often small, so that enough
        // rows remain.
        let from: &dyn Array = if hash_agrees(&data_type, &DataType::Utf8)
            || hash_agrees(&data_type, &DataType::Binary)
        {
            &texts
        } else {
            &longs
        };
        if let Ok(array) = cast(from, &data_type) {
            arrays.push(array);
        }
    }
    assert!(arrays.len() > 25, "{} arrays", arrays.len());
    arrays
}

/// Splitmix64, which is good enough for test data and gives the same values on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns true in 7 of 8 cases.
    fn maybe(&mut self) -> bool {
        !self.next().is_multiple_of(8)
    }

    /// Returns a number of any magnitude. Half of the numbers are negative.
    fn long(&mut self) -> i64 {
        let magnitude = self.next() % 64;
        self.next().cast_signed() >> magnitude
    }

    /// Returns 0 to 39 bytes of text. Each character has one to three bytes.
    fn text(&mut self) -> String {
        let letters = ['a', 'Z', '0', 'ž', '漢'];
        (0..self.next() % 14)
            .map(|_| letters[(self.next() % 5) as usize])
            .collect()
    }

    fn uuid(&mut self) -> [u8; 16] {
        let (high, low) = (self.next(), self.next());
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }
}
