use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::columnar::map_column;
use crate::nanos::{NANOS_PER_DAY, nanos_per};

/// The Arrow type of SQL's INTERVAL.
pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The type of lengths: numbers of nanoseconds.
const LENGTH: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

const DAYS_PER_MONTH: i64 = 30;

/// Returns whether values of the type are intervals or durations.
pub fn has_length(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// Returns the length of an interval in nanoseconds.
pub(super) fn nanos_of(interval: IntervalMonthDayNano) -> i128 {
    let days = i64::from(interval.months) * DAYS_PER_MONTH + i64::from(interval.days);
    i128::from(days) * i128::from(NANOS_PER_DAY) + i128::from(interval.nanoseconds)
}

/// Returns a duration of the same length, with days of 24 hours. Returns `None` for an interval
/// with months, and for a length that is too long or has digits below the unit.
pub(crate) fn to_duration(interval: IntervalMonthDayNano, unit: TimeUnit) -> Option<i64> {
    let nanos = (interval.months == 0).then(|| nanos_of(interval))?;
    let unit = i128::from(nanos_per(unit));
    (nanos % unit == 0)
        .then(|| i64::try_from(nanos / unit).ok())
        .flatten()
}

/// Returns the function of intervals and durations that tells their lengths.
pub fn length() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Length(Signature::any(
        1,
        Volatility::Immutable,
    ))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length(Signature);

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if has_length(data_type) || data_type.is_null() => Ok(LENGTH),
            _ => exec_err!("interval_length takes an interval or a duration"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = args.args.as_slice() else {
            return internal_err!("interval_length takes one argument");
        };
        map_column(values, lengths)
    }
}

fn lengths(values: &ArrayRef) -> Result<ArrayRef> {
    let lengths: Decimal128Array = match values.data_type() {
        DataType::Duration(unit) => {
            let per_unit = i128::from(nanos_per(*unit));
            macro_rules! units {
                ($type:ty) => {
                    values.as_primitive::<$type>().unary(i128::from)
                };
            }
            let units: Decimal128Array = match unit {
                TimeUnit::Second => units!(DurationSecondType),
                TimeUnit::Millisecond => units!(DurationMillisecondType),
                TimeUnit::Microsecond => units!(DurationMicrosecondType),
                TimeUnit::Nanosecond => units!(DurationNanosecondType),
            };
            units.unary(|units| units * per_unit)
        }
        _ => {
            let intervals = cast(values, &INTERVAL)?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
            intervals.unary(nanos_of)
        }
    };
    let lengths = lengths.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?;
    Ok(Arc::new(lengths))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_month_is_30_days_and_a_day_24_hours() {
        let of = |text| nanos_of(parse(text).unwrap());
        assert_eq!(of("1 mon"), of("30 days"));
        assert_eq!(of("1 day"), of("24:00:00"));
        assert!(of("1 day") < of("25 hours"));
        assert!(of("1 mon") < of("31 days"));
        assert!(of("-1 mon") < of("-29 days"));
    }

    #[test]
    fn durations_have_no_months_and_no_finer_digits() {
        let of = |text, unit| to_duration(parse(text).unwrap(), unit);
        assert_eq!(of("1 day", TimeUnit::Second), Some(86_400));
        assert_eq!(of("00:00:00.001", TimeUnit::Millisecond), Some(1));
        assert_eq!(of("00:00:00.001", TimeUnit::Second), None);
        assert_eq!(of("1 mon", TimeUnit::Second), None);
        assert_eq!(of("2000000 days", TimeUnit::Nanosecond), None);
    }
}
