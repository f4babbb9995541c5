use std::cmp::Ordering;
use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimeUnit,
};
use arrow::error::ArrowError;
use arrow::temporal_conversions::timestamp_ns_to_datetime;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Largest relative difference of two floats that count as equal. Sums may be added in different
/// orders.
const FLOAT_TOLERANCE: f64 = 1e-9;

/// One value. Text is also used for types whose values have one canonical text: decimals (without
/// trailing zeros), dates and lists.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Boolean(bool),
    /// An integer of any width, signed or unsigned.
    Integer(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Nanoseconds since 1970-01-01T00:00:00. The column may have any time unit.
    Timestamp(i128),
}

impl Cell {
    /// Returns whether two values count as equal in an answer. Floats may differ by 1e-9 relative,
    /// and NaN equals NaN. All other values must be exactly equal.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => {
                a == b
                    || (a.is_nan() && b.is_nan())
                    || (a - b).abs() <= FLOAT_TOLERANCE * a.abs().max(b.abs())
            }
            _ => self == other,
        }
    }

    /// Compares two cells in a total order, which only serves to bring equal cells together.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Integer(a), Self::Integer(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => {
                a.cmp(b)
            }
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Boolean(_) => 1,
            Self::Integer(_) => 2,
            Self::Float(_) => 3,
            Self::Text(_) => 4,
            Self::Bytes(_) => 5,
            Self::Timestamp(_) => 6,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => f.write_str(value),
            Self::Bytes(value) => write!(f, "{value:02x?}"),
            Self::Timestamp(nanos) => match i64::try_from(*nanos)
                .ok()
                .and_then(timestamp_ns_to_datetime)
            {
                Some(time) => write!(f, "{time}"),
                None => write!(f, "{nanos} ns since 1970"),
            },
        }
    }
}

/// Returns the kind of a type's values. Two columns can be the same only if their kinds are equal,
/// or if one of them has only NULLs.
pub(super) fn kind(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "null".to_owned(),
        DataType::Dictionary(_, values) => kind(values),
        DataType::RunEndEncoded(_, values) => kind(values.data_type()),
        DataType::Boolean => "boolean".to_owned(),
        other if other.is_integer() => "integer".to_owned(),
        other if other.is_floating() => "float".to_owned(),
        other if is_decimal(other) => "decimal".to_owned(),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "text".to_owned(),
        other if is_binary(other) => "bytes".to_owned(),
        DataType::Timestamp(_, None) => "timestamp".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".to_owned(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => format!("list of {}", kind(item.data_type())),
        other => other.to_string(),
    }
}

/// Returns the values of a column. Floats inside lists and structs are compared as text, and
/// therefore exactly.
pub(super) fn cells(array: &ArrayRef) -> Result<Vec<Cell>, ArrowError> {
    match array.data_type() {
        DataType::Null => Ok(vec![Cell::Null; array.len()]),
        DataType::Dictionary(_, values) => cells(&cast(array, values)?),
        DataType::RunEndEncoded(_, values) => cells(&cast(array, values.data_type())?),
        DataType::Boolean => map_rows(array, |row| {
            Ok(Cell::Boolean(array.as_boolean().value(row)))
        }),
        other if other.is_integer() => {
            // This is the one Arrow type that all integers fit in, including UInt64.
            let wide = cast(array, &DataType::Decimal128(20, 0))?;
            let wide = wide.as_primitive::<Decimal128Type>();
            map_rows(array, |row| Ok(Cell::Integer(wide.value(row))))
        }
        other if other.is_floating() => {
            let wide = cast(array, &DataType::Float64)?;
            let wide = wide.as_primitive::<Float64Type>();
            map_rows(array, |row| Ok(Cell::Float(wide.value(row))))
        }
        other if is_decimal(other) => {
            let wide = cast(array, &DataType::Decimal256(76, scale(other)))?;
            let wide = wide.as_primitive::<Decimal256Type>();
            map_rows(array, |row| {
                Ok(Cell::Text(without_trailing_zeros(
                    wide.value_as_string(row),
                )))
            })
        }
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            let large = cast(array, &DataType::LargeUtf8)?;
            let large = large.as_string::<i64>();
            map_rows(array, |row| Ok(Cell::Text(large.value(row).to_owned())))
        }
        other if is_binary(other) => {
            let large = cast(array, &DataType::LargeBinary)?;
            let large = large.as_binary::<i64>();
            map_rows(array, |row| Ok(Cell::Bytes(large.value(row).to_owned())))
        }
        DataType::Timestamp(unit, _) => {
            let ticks = cast(array, &DataType::Int64)?;
            let ticks = ticks.as_primitive::<Int64Type>();
            let nanos = nanos_per_tick(*unit);
            map_rows(array, |row| {
                Ok(Cell::Timestamp(i128::from(ticks.value(row)) * nanos))
            })
        }
        _ => {
            // Two values that cannot be shown must not count as equal, so `display_error` is off.
            let options = FormatOptions::new()
                .with_display_error(false)
                .with_null("NULL");
            let shown = ArrayFormatter::try_new(array, &options)?;
            map_rows(array, |row| {
                Ok(Cell::Text(shown.value(row).try_to_string()?))
            })
        }
    }
}

fn map_rows(
    array: &ArrayRef,
    cell: impl Fn(usize) -> Result<Cell, ArrowError>,
) -> Result<Vec<Cell>, ArrowError> {
    (0..array.len())
        .map(|row| {
            if array.is_null(row) {
                Ok(Cell::Null)
            } else {
                cell(row)
            }
        })
        .collect()
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
    )
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

fn without_trailing_zeros(decimal: String) -> String {
    if decimal.contains('.') {
        decimal
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        decimal
    }
}

fn nanos_per_tick(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}
