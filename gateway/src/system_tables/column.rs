use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, TimeUnit};

const TIME_ZONE: &str = "UTC";

/// A column of a table that has a row for each `R`.
pub(super) struct Column<R> {
    name: &'static str,
    value: ColumnValue<R>,
}

/// The type of a column, and the function that takes the value from a row. Times are microseconds
/// since 1970.
enum ColumnValue<R> {
    Text(fn(&R) -> String),
    OptionalText(fn(&R) -> Option<String>),
    Number(fn(&R) -> u64),
    OptionalNumber(fn(&R) -> Option<u64>),
    Boolean(fn(&R) -> bool),
    OptionalBoolean(fn(&R) -> Option<bool>),
    Time(fn(&R) -> i64),
    OptionalTime(fn(&R) -> Option<i64>),
}

impl<R> Column<R> {
    /// Describes a column of texts.
    pub(super) const fn text(name: &'static str, value: fn(&R) -> String) -> Self {
        let value = ColumnValue::Text(value);
        Self { name, value }
    }

    /// Describes a nullable column of texts.
    pub(super) const fn optional_text(name: &'static str, value: fn(&R) -> Option<String>) -> Self {
        let value = ColumnValue::OptionalText(value);
        Self { name, value }
    }

    /// Describes a column of counts or sizes. A number that is too large for SQL's BIGINT becomes
    /// the largest BIGINT.
    pub(super) const fn number(name: &'static str, value: fn(&R) -> u64) -> Self {
        let value = ColumnValue::Number(value);
        Self { name, value }
    }

    /// Describes a nullable column of counts or sizes.
    pub(super) const fn optional_number(name: &'static str, value: fn(&R) -> Option<u64>) -> Self {
        let value = ColumnValue::OptionalNumber(value);
        Self { name, value }
    }

    /// Describes a column of booleans.
    pub(super) const fn boolean(name: &'static str, value: fn(&R) -> bool) -> Self {
        let value = ColumnValue::Boolean(value);
        Self { name, value }
    }

    /// Describes a nullable column of booleans.
    pub(super) const fn optional_boolean(
        name: &'static str,
        value: fn(&R) -> Option<bool>,
    ) -> Self {
        let value = ColumnValue::OptionalBoolean(value);
        Self { name, value }
    }

    /// Describes a column of times. A value is a number of microseconds since 1970.
    pub(super) const fn time(name: &'static str, value: fn(&R) -> i64) -> Self {
        let value = ColumnValue::Time(value);
        Self { name, value }
    }

    /// Describes a nullable column of times.
    pub(super) const fn optional_time(name: &'static str, value: fn(&R) -> Option<i64>) -> Self {
        let value = ColumnValue::OptionalTime(value);
        Self { name, value }
    }

    /// Returns the column's name, type and nullability.
    pub(super) fn field(&self) -> Field {
        let time = || DataType::Timestamp(TimeUnit::Microsecond, Some(TIME_ZONE.into()));
        let (data_type, is_nullable) = match &self.value {
            ColumnValue::Text(_) => (DataType::Utf8, false),
            ColumnValue::OptionalText(_) => (DataType::Utf8, true),
            ColumnValue::Number(_) => (DataType::Int64, false),
            ColumnValue::OptionalNumber(_) => (DataType::Int64, true),
            ColumnValue::Boolean(_) => (DataType::Boolean, false),
            ColumnValue::OptionalBoolean(_) => (DataType::Boolean, true),
            ColumnValue::Time(_) => (time(), false),
            ColumnValue::OptionalTime(_) => (time(), true),
        };
        Field::new(self.name, data_type, is_nullable)
    }

    /// Returns the column's values in these rows.
    pub(super) fn values(&self, rows: &[R]) -> ArrayRef {
        let rows = rows.iter();
        let times = |times: TimestampMicrosecondArray| Arc::new(times.with_timezone(TIME_ZONE));
        match &self.value {
            ColumnValue::Text(value) => Arc::new(StringArray::from_iter_values(rows.map(value))),
            ColumnValue::OptionalText(value) => Arc::new(rows.map(value).collect::<StringArray>()),
            ColumnValue::Number(value) => {
                let numbers = rows.map(|row| to_bigint(value(row)));
                Arc::new(Int64Array::from_iter_values(numbers))
            }
            ColumnValue::OptionalNumber(value) => {
                let numbers = rows.map(|row| value(row).map(to_bigint));
                Arc::new(numbers.collect::<Int64Array>())
            }
            ColumnValue::Boolean(value) => {
                let values = rows.map(|row| Some(value(row)));
                Arc::new(values.collect::<BooleanArray>())
            }
            ColumnValue::OptionalBoolean(value) => {
                Arc::new(rows.map(value).collect::<BooleanArray>())
            }
            ColumnValue::Time(value) => {
                times(TimestampMicrosecondArray::from_iter_values(rows.map(value)))
            }
            ColumnValue::OptionalTime(value) => times(rows.map(value).collect()),
        }
    }
}

/// Converts a count or a size to a BIGINT. A number that is too large becomes the largest BIGINT.
fn to_bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a duration in milliseconds.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a duration in microseconds.
pub(super) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Converts a time of the system's clock to microseconds since 1970.
pub(super) fn timestamp(time: SystemTime) -> i64 {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    to_bigint(microseconds(since_1970))
}

/// Converts milliseconds since 1970 to microseconds since 1970.
pub(super) fn timestamp_from_ms(milliseconds: i64) -> i64 {
    milliseconds.saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{Int64Type, TimestampMicrosecondType};

    use super::*;

    #[test]
    fn values_have_the_type_that_the_column_announces() {
        let columns: [Column<u64>; 8] = [
            Column::text("text", u64::to_string),
            Column::optional_text("optional_text", |_| None),
            Column::number("number", |row| *row),
            Column::optional_number("optional_number", |row| row.checked_sub(1)),
            Column::boolean("boolean", |row| *row > 0),
            Column::optional_boolean("optional_boolean", |row| (*row > 0).then_some(true)),
            Column::time("time", |_| timestamp_from_ms(7)),
            Column::optional_time("optional_time", |_| None),
        ];
        let values = columns.each_ref().map(|column| {
            let values = column.values(&[0, u64::MAX]);
            let field = column.field();
            assert_eq!(values.data_type(), field.data_type(), "{field}");
            let is_optional = field.name().starts_with("optional_");
            assert_eq!(field.is_nullable(), is_optional, "{field}");
            assert_eq!(values.null_count() > 0, is_optional, "{field}");
            values
        });
        let numbers = values[2].as_primitive::<Int64Type>().values();
        assert_eq!(numbers[..], [0, i64::MAX]);
        let times = values[6]
            .as_primitive::<TimestampMicrosecondType>()
            .values();
        assert_eq!(times[..], [7000, 7000]);
    }
}
