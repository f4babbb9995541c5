//! Arrow's casts truncate or round values that the wanted type cannot hold. This is right for a
//! cast in a query. In a file that is loaded, such a value is an error. The exceptions are casts to
//! floating point, which is an approximation anyway: they may round to the nearest number.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{CastOptions, can_cast_types, cast as lenient, cast_with_options};
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use volary_exec::text_casts::cast_column;

use super::misfit::Misfit;
use super::text::{self, nanos_per_unit};

/// Casts a column to the wanted type without changing any value.
///
/// # Errors
/// A value that the wanted type cannot hold.
pub(super) fn cast_exact(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, Misfit> {
    match column.data_type() {
        same if same == wanted => return Ok(ArrayRef::clone(column)),
        DataType::Dictionary(_, values) => {
            return cast_exact(&cast_rounding(column, values)?, wanted);
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            if text::is_parsed_type(wanted) =>
        {
            let texts = cast_rounding(column, &DataType::Utf8View)?;
            return text::parse(texts.as_string_view(), wanted);
        }
        _ => {}
    }
    let fitted = cast_rounding(column, wanted)?;
    let changed = first_changed(column, &fitted)
        .map_err(|source| Misfit::of_type(column.data_type(), wanted, source))?;
    match changed {
        None => Ok(fitted),
        Some(row) => {
            let value = array_value_to_string(column, row).unwrap_or_default();
            Err(Misfit::of_lossy_value(row, &value, wanted))
        }
    }
}

/// Casts a column to the wanted type. Values are truncated and rounded by arrow's rules, but a
/// value that does not fit is an error and not NULL.
///
/// # Errors
/// A value that is outside the range of the type, or that is not a value of the type.
pub(super) fn cast_rounding(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, Misfit> {
    if column.data_type() == wanted {
        return Ok(ArrayRef::clone(column));
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let cast = |column: &ArrayRef, wanted: &DataType| cast_with_options(column, wanted, &strict);
    cast_column(column, wanted, cast)
        .map_err(|source| Misfit::of_type(column.data_type(), wanted, source))
}

/// Returns the first row whose value was changed by the cast.
fn first_changed(column: &ArrayRef, fitted: &ArrayRef) -> Result<Option<usize>, ArrowError> {
    let (from, to) = (column.data_type(), fitted.data_type());
    if from.is_floating() && to.is_floating() {
        first_overflow(column, fitted)
    } else if from.is_floating() && to.is_decimal() {
        first_rounded(column, fitted)
    } else if from.is_floating() && (to.is_integer() || to.is_temporal()) {
        let values = lenient(column, &DataType::Float64)?;
        let mut values = values.as_primitive::<Float64Type>().iter();
        Ok(values.position(|value| value.is_some_and(|value| value.fract() != 0.0)))
    } else if may_change(from, to) {
        first_lossy(column, to)
    } else {
        Ok(None)
    }
}

/// Returns whether a cast can lose a part of a value. [`first_changed`] itself handles casts from
/// floating point to numbers and to times.
fn may_change(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Time32, Time64, Timestamp};
    match (from, to) {
        (from, Boolean) => from.is_numeric(),
        (Timestamp(from, _), Timestamp(to, _)) => nanos_per_unit(*from) < nanos_per_unit(*to),
        (Time32(from) | Time64(from), Time32(to) | Time64(to)) => {
            nanos_per_unit(*from) < nanos_per_unit(*to)
        }
        (Timestamp(_, _), Date32 | Date64 | Time32(_) | Time64(_)) | (Date64, Date32) => true,
        (from, to) => match (scale(from), scale(to)) {
            (Some(from), Some(to)) => to < from,
            _ => false,
        },
    }
}

/// Returns the number of digits after the point in a type of exact numbers, or `None` for other
/// types.
fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        other => other.is_integer().then_some(0),
    }
}

/// Returns the first row whose value is different after a cast to the wanted type and back.
fn first_lossy(column: &ArrayRef, wanted: &DataType) -> Result<Option<usize>, ArrowError> {
    let from = column.data_type();
    let target = match (from, wanted) {
        // Adding or removing a time zone loses no digits, so this cast keeps the zone.
        (DataType::Timestamp(_, zone), DataType::Timestamp(unit, _)) => {
            DataType::Timestamp(*unit, zone.clone())
        }
        _ => wanted.clone(),
    };
    if !can_cast_types(&target, from) {
        return Ok((0..column.len()).find(|row| column.is_valid(*row)));
    }
    let back = lenient(&lenient(column, &target)?, from)?;
    let differs = distinct(column, &back)?;
    Ok(differs.values().set_indices().next())
}

/// Returns the first row whose number became infinite.
fn first_overflow(column: &ArrayRef, fitted: &ArrayRef) -> Result<Option<usize>, ArrowError> {
    first_changed_number(column, fitted, |before, after| {
        before.is_finite() && !after.is_finite()
    })
}

/// Returns the first row whose number has more digits than the decimal can hold. A difference
/// smaller than the precision of floating point is no loss: 0.1 has no exact binary form, but may
/// become the decimal 0.10.
fn first_rounded(column: &ArrayRef, fitted: &ArrayRef) -> Result<Option<usize>, ArrowError> {
    let epsilon = match column.data_type() {
        DataType::Float64 => f64::EPSILON,
        DataType::Float32 => f64::from(f32::EPSILON),
        _ => 1.0 / 1024.0,
    };
    // The cast to the decimal multiplies, and the cast back divides. These are two roundings, and
    // the factor 4 leaves a margin.
    first_changed_number(column, fitted, |before, after| {
        (before - after).abs() > before.abs() * epsilon * 4.0
    })
}

fn first_changed_number(
    column: &ArrayRef,
    fitted: &ArrayRef,
    is_changed: impl Fn(f64, f64) -> bool,
) -> Result<Option<usize>, ArrowError> {
    let before = lenient(column, &DataType::Float64)?;
    let after = lenient(fitted, &DataType::Float64)?;
    let after = after.as_primitive::<Float64Type>().values();
    let mut pairs = before.as_primitive::<Float64Type>().iter().zip(after);
    Ok(pairs.position(|(before, after)| before.is_some_and(|before| is_changed(before, *after))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Decimal128Array, Float32Array, Float64Array, Int64Array, StringArray,
        Time64NanosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    };
    use arrow::datatypes::TimeUnit;

    use super::*;

    fn floats(values: Vec<f64>) -> ArrayRef {
        Arc::new(Float64Array::from(values))
    }

    fn decimals(values: Vec<i128>, scale: i8) -> ArrayRef {
        let values = Decimal128Array::from(values).with_precision_and_scale(15, scale);
        Arc::new(values.unwrap())
    }

    #[test]
    fn what_fits_is_cast() {
        let money = DataType::Decimal128(15, 2);
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let nanos = || TimestampNanosecondArray::from(vec![Some(-1_000), None, Some(5_000)]);
        let midnight =
            TimestampMicrosecondArray::from(vec![86_400_000_000]).with_timezone("+00:00");
        let cases: [(ArrayRef, &DataType); 12] = [
            (floats(vec![-0.0, 1.0, 1e18]), &DataType::Int64),
            (floats(vec![0.1, 1.1, 123_456_789.01, -0.29]), &money),
            (Arc::new(Float32Array::from(vec![0.1_f32, 9.99])), &money),
            (
                floats(vec![0.1, f64::NAN, f64::INFINITY]),
                &DataType::Float32,
            ),
            (decimals(vec![12_300, -5_000], 3), &money),
            (decimals(vec![500, -700], 2), &DataType::Int64),
            (Arc::new(Int64Array::from(vec![0, 1])), &DataType::Boolean),
            (
                Arc::new(Int64Array::from(vec![(1 << 53) + 1])),
                &DataType::Float64,
            ),
            (Arc::new(nanos()), &micros),
            (Arc::new(nanos().with_timezone("+02:00")), &micros),
            (Arc::new(midnight), &DataType::Date32),
            (Arc::new(StringArray::from(vec!["1.20"])), &money),
        ];
        for (column, wanted) in cases {
            let fitted = cast_exact(&column, wanted).unwrap_or_else(|misfit| panic!("{misfit:?}"));
            assert_eq!(fitted.data_type(), wanted);
        }
    }

    #[test]
    fn what_would_be_changed_is_refused_with_its_row() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
        let cases: [(ArrayRef, &DataType); 11] = [
            (floats(vec![1.0, 1.7]), &DataType::Int64),
            (floats(vec![1.0, 4_503_599_627_370_495.5]), &DataType::Int64),
            (floats(vec![1.23, 1.239]), &DataType::Decimal128(15, 2)),
            (floats(vec![1.0, 1e300]), &DataType::Float32),
            (
                decimals(vec![1_230, 1_239], 3),
                &DataType::Decimal128(15, 2),
            ),
            (decimals(vec![100, 150], 2), &DataType::Int64),
            (Arc::new(Int64Array::from(vec![1, 5])), &DataType::Boolean),
            (
                Arc::new(TimestampNanosecondArray::from(vec![1_000, 1_001])),
                &micros,
            ),
            (
                Arc::new(Time64NanosecondArray::from(vec![0, 1])),
                &DataType::Time64(TimeUnit::Microsecond),
            ),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![0, 1])),
                &DataType::Date32,
            ),
            (
                Arc::new(StringArray::from(vec!["1.2", "1.239"])),
                &DataType::Decimal128(15, 2),
            ),
        ];
        for (column, wanted) in cases {
            let misfit = cast_exact(&column, wanted).expect_err(&wanted.to_string());
            assert_eq!(misfit.row(), Some(1), "{misfit:?}");
        }
    }
}
