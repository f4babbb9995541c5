//! Arrow's arrays of decimals and of times of day can hold any integer. Nothing else checks the
//! values that a client sends, or that arithmetic produces.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
};
use volary_flight_proto::SqlState;

use super::misfit::Misfit;
use crate::sql_type::sql_type_name;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// Refuses a decimal with more digits than its type has, and a time that is not a time of day.
///
/// # Errors
/// The first such value.
pub(super) fn check(column: &ArrayRef) -> Result<(), Misfit> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let out_of_range = match column.data_type() {
        DataType::Decimal32(precision, scale) => {
            first_too_long::<Decimal32Type>(column, *precision, *scale)
        }
        DataType::Decimal64(precision, scale) => {
            first_too_long::<Decimal64Type>(column, *precision, *scale)
        }
        DataType::Decimal128(precision, scale) => {
            first_too_long::<Decimal128Type>(column, *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            first_too_long::<Decimal256Type>(column, *precision, *scale)
        }
        DataType::Time32(Second) => first_outside_day::<Time32SecondType>(column, 1),
        DataType::Time32(Millisecond) => first_outside_day::<Time32MillisecondType>(column, 1_000),
        DataType::Time64(Microsecond) => {
            first_outside_day::<Time64MicrosecondType>(column, 1_000_000)
        }
        DataType::Time64(Nanosecond) => {
            first_outside_day::<Time64NanosecondType>(column, 1_000_000_000)
        }
        _ => return Ok(()),
    };
    let Some((row, value)) = out_of_range else {
        return Ok(());
    };
    let of_type = sql_type_name(column.data_type());
    Err(Misfit::of_value(
        row,
        SqlState::NumericValueOutOfRange,
        format!("{value} is beyond the range of {of_type}"),
    ))
}

fn first_too_long<T: DecimalType>(
    column: &ArrayRef,
    precision: u8,
    scale: i8,
) -> Option<(usize, String)> {
    let is_good = |value| T::is_valid_decimal_precision(value, precision);
    let (row, value) = first_invalid(column.as_primitive::<T>(), is_good)?;
    // The value is formatted with the largest precision. With the type's own precision, not all of
    // its digits would be shown.
    Some((row, T::format_decimal(value, T::MAX_PRECISION, scale)))
}

fn first_outside_day<T: ArrowPrimitiveType<Native: Into<i64>>>(
    column: &ArrayRef,
    units_per_second: i64,
) -> Option<(usize, String)> {
    let day = 0..SECONDS_PER_DAY * units_per_second;
    let is_good = |value: T::Native| day.contains(&value.into());
    let (row, value) = first_invalid(column.as_primitive::<T>(), is_good)?;
    let seconds = value.into() as f64 / units_per_second as f64;
    Some((row, format!("{seconds} s after midnight")))
}

/// Returns the first value for which `is_good` is false, and its row. The values in the slots of
/// NULLs are ignored.
fn first_invalid<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    is_good: impl Fn(T::Native) -> bool,
) -> Option<(usize, T::Native)> {
    if column.values().iter().all(|value| is_good(*value)) {
        return None;
    }
    let mut values = (0..).zip(column.iter());
    values.find_map(|(row, value)| Some((row, value.filter(|value| !is_good(*value))?)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Time32SecondArray, Time64NanosecondArray};

    use super::*;

    fn refused(column: &ArrayRef) -> Option<(Option<usize>, String)> {
        let misfit = check(column).err()?;
        Some((misfit.row(), misfit.in_table("t").message().to_owned()))
    }

    #[test]
    fn decimals_have_as_many_digits_as_their_type() {
        let decimals = |values: Vec<Option<i128>>| {
            let array = Decimal128Array::from(values);
            Arc::new(array.with_precision_and_scale(3, 1).unwrap()) as ArrayRef
        };
        assert_eq!(refused(&decimals(vec![Some(999), None, Some(-999)])), None);
        let (row, text) = refused(&decimals(vec![Some(0), None, Some(-1000)])).unwrap();
        assert_eq!(row, Some(2));
        assert_eq!(text, "table t, -100.0 is beyond the range of DECIMAL(3, 1)");
    }

    #[test]
    fn times_are_those_of_a_day() {
        let last = i32::try_from(SECONDS_PER_DAY).unwrap() - 1;
        let seconds = |value| Arc::new(Time32SecondArray::from(vec![value])) as ArrayRef;
        assert_eq!(refused(&seconds(0)), None);
        assert_eq!(refused(&seconds(last)), None);
        for value in [-1, last + 1] {
            let (_, text) = refused(&seconds(value)).unwrap();
            assert!(text.contains("beyond the range of TIME"), "{text}");
        }
        let nanos = Time64NanosecondArray::from(vec![SECONDS_PER_DAY * 1_000_000_000]);
        let nanos = Arc::new(nanos) as ArrayRef;
        assert!(refused(&nanos).is_some());
    }
}
