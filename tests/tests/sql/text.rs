//! The text form of values is described in `tests/sql/README.md`.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::DefaultColumnType;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Returns the column type, which a file writes as one letter.
pub(super) fn column_type(data_type: &DataType) -> DefaultColumnType {
    match data_type {
        integer if integer.is_integer() => DefaultColumnType::Integer,
        float if float.is_floating() => DefaultColumnType::FloatingPoint,
        decimal if decimal.is_decimal() => DefaultColumnType::FloatingPoint,
        text if text.is_string() => DefaultColumnType::Text,
        _ => DefaultColumnType::Any,
    }
}

/// Returns the values of all rows as text.
pub(super) fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch
                .columns()
                .iter()
                .map(|column| value(column, row, false));
            rows.push(values.collect::<Result<_, _>>()?);
        }
    }
    Ok(rows)
}

/// Returns one value as text. Strings within lists and structs are always quoted.
fn value(array: &ArrayRef, row: usize, nested: bool) -> Result<String, ArrowError> {
    if array.is_null(row) {
        return Ok("NULL".to_owned());
    }
    Ok(match array.data_type() {
        DataType::Utf8 => text(array.as_string::<i32>().value(row), nested),
        DataType::Binary => hexadecimal(array.as_binary::<i32>().value(row)),
        DataType::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Interval(_) | DataType::Duration(_) => {
            let array = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            interval(value.months, value.days, value.nanoseconds)
        }
        DataType::List(_) => list(&array.as_list::<i32>().value(row))?,
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let parts = columns.map(|(field, column)| {
                Ok(format!("{}: {}", field.name(), value(column, row, true)?))
            });
            format!(
                "{{{}}}",
                parts.collect::<Result<Vec<_>, ArrowError>>()?.join(", ")
            )
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let parts = (0..entries.len()).map(|entry| {
                let key = value(keys, entry, true)?;
                Ok(format!("{key}: {}", value(values, entry, true)?))
            });
            format!(
                "{{{}}}",
                parts.collect::<Result<Vec<_>, ArrowError>>()?.join(", ")
            )
        }
        _ => {
            let options = FormatOptions::new().with_display_error(false);
            ArrayFormatter::try_new(array, &options)?
                .value(row)
                .try_to_string()?
        }
    })
}

fn list(items: &ArrayRef) -> Result<String, ArrowError> {
    let items = (0..items.len()).map(|item| value(items, item, true));
    Ok(format!(
        "[{}]",
        items.collect::<Result<Vec<_>, _>>()?.join(", ")
    ))
}

/// Returns a text as it is if it cannot be taken for something else, and otherwise in quotes.
fn text(value: &str, nested: bool) -> String {
    let is_ambiguous = value.is_empty() || value == "NULL";
    let needs_quotes =
        |character: char| character.is_whitespace() || character.is_control() || character == '\'';
    if !(nested || is_ambiguous || value.contains(needs_quotes)) {
        return value.to_owned();
    }
    let mut quoted = String::from("'");
    for character in value.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' ' => quoted.push(' '),
            other if needs_quotes(other) => quoted.extend(other.escape_unicode()),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::from("\\x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Rounds to 12 significant digits, because sums are added in different orders.
fn float(value: f64) -> String {
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(value);
    format!("{rounded:?}")
}

/// Returns an interval in the form of ISO 8601, such as `P1Y2M3DT4H5M6.5S`.
fn interval(months: i32, days: i32, nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, fraction) = (
        nanos.unsigned_abs() / NANOS_PER_SECOND,
        nanos.unsigned_abs() % NANOS_PER_SECOND,
    );
    let fraction = format!("{fraction:09}");
    let fraction = match fraction.trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    let mut text = String::from("P");
    for (number, unit) in [(months / 12, 'Y'), (months % 12, 'M'), (days, 'D')] {
        if number != 0 {
            let _ = write!(text, "{number}{unit}");
        }
    }
    if nanos != 0 || text.len() == 1 {
        text.push('T');
        for (number, unit) in [(seconds / 3600, 'H'), (seconds / 60 % 60, 'M')] {
            if number != 0 {
                let _ = write!(text, "{sign}{number}{unit}");
            }
        }
        let seconds = format!("{}{fraction}", seconds % 60);
        if seconds != "0" || text.ends_with('T') {
            let _ = write!(text, "{sign}{seconds}S");
        }
    }
    text
}
