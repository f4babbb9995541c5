use std::sync::Arc;

use arrow::array::types::TimestampMicrosecondType;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, Timelike};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Returns the function `timestampdiff(unit, begin, end)` of JDBC and ODBC: the number of whole
/// units between two timestamps. It is negative if `end` comes before `begin`.
pub(crate) fn timestamp_diff() -> Arc<ScalarUDF> {
    let types = vec![DataType::Utf8, TIMESTAMP, TIMESTAMP];
    Arc::new(ScalarUDF::from(TimestampDiff(Signature::exact(
        types,
        Volatility::Immutable,
    ))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimestampDiff(Signature);

impl ScalarUDFImpl for TimestampDiff {
    fn name(&self) -> &'static str {
        "timestampdiff"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [unit, begin, end] = args.args.as_slice() else {
            return internal_err!("timestampdiff takes three arguments");
        };
        let ColumnarValue::Scalar(unit) = unit else {
            return exec_err!("the unit of timestampdiff must be a constant");
        };
        let Some(unit) = unit.try_as_str().flatten() else {
            return exec_err!("the unit of timestampdiff must be a name such as DAY");
        };
        let unit = Unit::named(unit)?;
        let rows = args.number_rows;
        let (begin, end) = (begin.to_array(rows)?, end.to_array(rows)?);
        let begin = begin.as_primitive::<TimestampMicrosecondType>();
        let end = end.as_primitive::<TimestampMicrosecondType>();
        let between = begin.iter().zip(end).map(|times| match times {
            (Some(begin), Some(end)) => unit.between(begin, end).map(Some),
            _ => Ok(None),
        });
        let between = between.collect::<Result<Int64Array>>()?;
        let is_scalar = args.args[1..]
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let between: Arc<dyn Array> = Arc::new(between);
        if is_scalar && rows > 0 {
            let value = ScalarValue::try_from_array(&between, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(between))
    }
}

/// A unit of time.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Nanosecond,
    /// A fixed number of microseconds.
    Micros(i64),
    /// A number of months.
    Months(i64),
}

impl Unit {
    fn named(name: &str) -> Result<Self> {
        const SECOND: i64 = 1_000_000;
        let upper = name.to_ascii_uppercase();
        Ok(match upper.trim_start_matches("SQL_TSI_") {
            "FRAC_SECOND" | "NANOSECOND" => Self::Nanosecond,
            "MICROSECOND" => Self::Micros(1),
            "MILLISECOND" => Self::Micros(1_000),
            "SECOND" => Self::Micros(SECOND),
            "MINUTE" => Self::Micros(60 * SECOND),
            "HOUR" => Self::Micros(3_600 * SECOND),
            "DAY" => Self::Micros(86_400 * SECOND),
            "WEEK" => Self::Micros(7 * 86_400 * SECOND),
            "MONTH" => Self::Months(1),
            "QUARTER" => Self::Months(3),
            "YEAR" => Self::Months(12),
            _ => {
                return exec_err!(
                    "timestampdiff has no unit {name}; it takes FRAC_SECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER and YEAR"
                );
            }
        })
    }

    /// Returns the number of whole units between two times in microseconds since 1970.
    fn between(self, begin: i64, end: i64) -> Result<i64> {
        let out_of_range = || exec_datafusion_err!("the result of timestampdiff is out of range");
        match self {
            Self::Nanosecond => end
                .checked_sub(begin)
                .and_then(|micros| micros.checked_mul(1_000))
                .ok_or_else(out_of_range),
            Self::Micros(unit) => end
                .checked_sub(begin)
                .map(|micros| micros / unit)
                .ok_or_else(out_of_range),
            Self::Months(unit) => {
                let (begin, end) = (month_and_rest(begin), month_and_rest(end));
                let ((first, first_rest), (last, last_rest)) =
                    begin.zip(end).ok_or_else(out_of_range)?;
                let months = last - first;
                let months = match months {
                    1.. if last_rest < first_rest => months - 1,
                    ..=-1 if last_rest > first_rest => months + 1,
                    _ => months,
                };
                Ok(months / unit)
            }
        }
    }
}

/// Returns the number of months since the year 0, and the time since the beginning of the month:
/// its day, and the nanosecond of that day.
fn month_and_rest(micros: i64) -> Option<(i64, (u32, u64))> {
    let time = DateTime::from_timestamp_micros(micros)?.naive_utc();
    let month = i64::from(time.year()) * 12 + i64::from(time.month0());
    let of_day = u64::from(time.num_seconds_from_midnight()) * 1_000_000_000;
    Some((month, (time.day(), of_day + u64::from(time.nanosecond()))))
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDateTime;

    use super::*;

    fn micros(text: &str) -> i64 {
        let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap();
        time.and_utc().timestamp_micros()
    }

    #[test]
    fn whole_units_are_counted() {
        for (unit, begin, end, expected) in [
            ("DAY", "2024-02-28 12:00:00", "2024-03-01 11:59:59", 1),
            ("DAY", "2024-03-01 11:59:59", "2024-02-28 12:00:00", -1),
            (
                "SQL_TSI_HOUR",
                "2024-02-28 12:00:00",
                "2024-02-28 11:00:00",
                -1,
            ),
            ("week", "2024-01-01 00:00:00", "2024-01-15 00:00:00", 2),
            ("MONTH", "2024-01-31 00:00:00", "2024-02-29 00:00:00", 0),
            ("MONTH", "2024-02-29 00:00:01", "2024-01-29 00:00:02", 0),
            ("MONTH", "2024-02-29 00:00:01", "2024-01-29 00:00:01", -1),
            ("QUARTER", "2023-12-31 00:00:00", "2024-06-30 23:59:59", 1),
            ("YEAR", "2000-02-29 00:00:00", "2023-02-28 00:00:00", 22),
            ("YEAR", "0001-01-01 00:00:00", "9999-12-31 00:00:00", 9998),
            (
                "FRAC_SECOND",
                "2024-01-01 00:00:00",
                "2024-01-01 00:00:01",
                1_000_000_000,
            ),
        ] {
            let found = Unit::named(unit)
                .unwrap()
                .between(micros(begin), micros(end));
            assert_eq!(found.unwrap(), expected, "{unit}: {begin} to {end}");
        }
        assert!(Unit::named("fortnight").is_err());
        assert!(Unit::Nanosecond.between(i64::MIN, i64::MAX).is_err());
    }
}
