//! Multiplies and divides intervals and durations by numbers, as PostgreSQL does. Arrow cannot.

use std::sync::Arc;

use arrow::array::types::{
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DataFusionError, Result, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use volary_flight_proto::{Error, SqlState};

use crate::columnar::{finish, rows_of};
use crate::intervals::INTERVAL;

const NANOS_PER_DAY: f64 = 86_400e9;
const DAYS_PER_MONTH: f64 = 30.0;

/// Returns the function `multiply_interval(interval, number)`.
pub fn multiply_interval() -> Arc<ScalarUDF> {
    function("multiply_interval", Operation::Multiply)
}

/// Returns the function `divide_interval(interval, number)`.
pub fn divide_interval() -> Arc<ScalarUDF> {
    function("divide_interval", Operation::Divide)
}

fn function(name: &'static str, operation: Operation) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ScaledInterval {
        name,
        signature: Signature::user_defined(Volatility::Immutable),
        operation,
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Multiply,
    Divide,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ScaledInterval {
    name: &'static str,
    signature: Signature,
    operation: Operation,
}

impl ScalarUDFImpl for ScaledInterval {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [interval, number] = arg_types else {
            return plan_err!("{} takes an interval and a number", self.name);
        };
        let interval = match interval {
            DataType::Interval(_) | DataType::Null => INTERVAL,
            DataType::Duration(_) => interval.clone(),
            other => return plan_err!("{} takes an interval, not {other}", self.name),
        };
        let number = match number {
            DataType::UInt64 | DataType::Null => DataType::Float64,
            integer if integer.is_integer() => DataType::Int64,
            number if number.is_numeric() => DataType::Float64,
            other => return plan_err!("{} takes a number, not {other}", self.name),
        };
        Ok(vec![interval, number])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(duration @ DataType::Duration(_)) => Ok(duration.clone()),
            _ => Ok(INTERVAL),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [intervals, numbers] = args.args.as_slice() else {
            return internal_err!("{} takes two arguments", self.name);
        };
        let rows = rows_of(&args.args, args.number_rows);
        let intervals = intervals.to_array(rows)?;
        let numbers = numbers.to_array(rows)?;
        let numbers = Numbers::new(&numbers);
        let scaled = match intervals.data_type() {
            DataType::Duration(unit) => match unit {
                TimeUnit::Second => self.durations::<DurationSecondType>(&intervals, &numbers),
                TimeUnit::Millisecond => {
                    self.durations::<DurationMillisecondType>(&intervals, &numbers)
                }
                TimeUnit::Microsecond => {
                    self.durations::<DurationMicrosecondType>(&intervals, &numbers)
                }
                TimeUnit::Nanosecond => {
                    self.durations::<DurationNanosecondType>(&intervals, &numbers)
                }
            },
            _ => self.intervals(&intervals, &numbers),
        };
        finish(&args.args, scaled?)
    }
}

impl ScaledInterval {
    fn intervals(&self, intervals: &ArrayRef, numbers: &Numbers) -> Result<ArrayRef> {
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let scaled = intervals.iter().enumerate().map(|(row, interval)| {
            let (Some(interval), Some(number)) = (interval, numbers.at(row)) else {
                return Ok(None);
            };
            self.scale_interval(interval, number).map(Some)
        });
        let scaled: PrimitiveArray<IntervalMonthDayNanoType> = scaled.collect::<Result<_>>()?;
        Ok(Arc::new(scaled))
    }

    fn durations<T>(&self, durations: &ArrayRef, numbers: &Numbers) -> Result<ArrayRef>
    where
        T: ArrowPrimitiveType<Native = i64>,
    {
        let durations = durations.as_primitive::<T>();
        let scaled = durations.iter().enumerate().map(|(row, duration)| {
            let (Some(duration), Some(number)) = (duration, numbers.at(row)) else {
                return Ok(None);
            };
            self.scale_duration(duration, number).map(Some)
        });
        let scaled: PrimitiveArray<T> = scaled.collect::<Result<_>>()?;
        Ok(Arc::new(scaled))
    }

    fn scale_duration(&self, duration: i64, number: Number) -> Result<i64> {
        let scaled = match (self.operation, number) {
            (Operation::Multiply, Number::Integer(by)) => duration.checked_mul(by),
            (Operation::Multiply, Number::Float(by)) => to_i64(duration as f64 * by),
            (Operation::Divide, by) => to_i64(duration as f64 / by.divisor()?),
        };
        scaled.ok_or_else(out_of_range)
    }

    fn scale_interval(
        &self,
        interval: IntervalMonthDayNano,
        number: Number,
    ) -> Result<IntervalMonthDayNano> {
        if let (Operation::Multiply, Number::Integer(by)) = (self.operation, number) {
            let times = |count: i32| i32::try_from(i64::from(count).checked_mul(by)?).ok();
            let scaled = times(interval.months)
                .zip(times(interval.days))
                .zip(interval.nanoseconds.checked_mul(by))
                .map(|((months, days), nanos)| IntervalMonthDayNano::new(months, days, nanos));
            return scaled.ok_or_else(out_of_range);
        }
        let divisor = match self.operation {
            Operation::Multiply => None,
            Operation::Divide => Some(number.divisor()?),
        };
        let scale = |count: f64| match divisor {
            Some(by) => count / by,
            None => count * number.to_f64(),
        };
        spread(
            scale(f64::from(interval.months)),
            scale(f64::from(interval.days)),
            scale(interval.nanoseconds as f64),
        )
        .ok_or_else(out_of_range)
    }
}

/// Returns the interval of a number of days, which may have a fraction.
///
/// # Errors
/// Fails for a number that is out of range.
pub fn interval_of_days(days: f64) -> Result<IntervalMonthDayNano> {
    spread(0.0, days, 0.0).ok_or_else(out_of_range)
}

/// Makes an interval of fractions. A part of a month becomes days, and a part of a day becomes
/// nanoseconds, as in PostgreSQL's `interval_mul`.
fn spread(months: f64, days: f64, nanos: f64) -> Option<IntervalMonthDayNano> {
    let whole_months = months.trunc();
    let days_of_months = without_float_errors((months - whole_months) * DAYS_PER_MONTH);
    let whole_days = days.trunc();
    let whole_days_of_months = days_of_months.trunc();
    let mut rest_of_day =
        without_float_errors(days - whole_days + days_of_months - whole_days_of_months);
    let carried = rest_of_day.trunc();
    rest_of_day -= carried;
    let nanos = nanos + rest_of_day * NANOS_PER_DAY;
    Some(IntervalMonthDayNano::new(
        to_i32(whole_months)?,
        to_i32(whole_days + whole_days_of_months + carried)?,
        to_i64(nanos)?,
    ))
}

/// Rounds to twelve digits after the point, so that a tenth of ten is a whole.
fn without_float_errors(number: f64) -> f64 {
    const UNITS: f64 = 1e12;
    (number * UNITS).round() / UNITS
}

fn to_i32(number: f64) -> Option<i32> {
    to_i64(number).and_then(|number| i32::try_from(number).ok())
}

fn to_i64(number: f64) -> Option<i64> {
    let rounded = number.round_ties_even();
    let fits = (-(i64::MAX as f64)..i64::MAX as f64).contains(&rounded);
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    fits.then_some(rounded as i64)
}

fn out_of_range() -> DataFusionError {
    Error::invalid("the interval is out of range; use a smaller number")
        .with_sqlstate(SqlState::NumericValueOutOfRange)
        .into()
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i64),
    Float(f64),
}

impl Number {
    fn to_f64(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    fn divisor(self) -> Result<f64> {
        let divisor = self.to_f64();
        if divisor == 0.0 {
            return Err(Error::invalid("an interval is divided by zero")
                .with_sqlstate(SqlState::DivisionByZero)
                .into());
        }
        Ok(divisor)
    }
}

/// A column of numbers.
enum Numbers<'a> {
    Integers(&'a PrimitiveArray<Int64Type>),
    Floats(&'a PrimitiveArray<Float64Type>),
}

impl<'a> Numbers<'a> {
    fn new(numbers: &'a ArrayRef) -> Self {
        match numbers.data_type() {
            DataType::Int64 => Self::Integers(numbers.as_primitive()),
            _ => Self::Floats(numbers.as_primitive()),
        }
    }

    fn at(&self, row: usize) -> Option<Number> {
        match self {
            Self::Integers(numbers) => {
                let valid = numbers.is_valid(row);
                valid.then(|| Number::Integer(numbers.value(row)))
            }
            Self::Floats(numbers) => {
                let valid = numbers.is_valid(row);
                valid.then(|| Number::Float(numbers.value(row)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_months_and_days_become_days_and_nanoseconds() {
        const HOUR: f64 = 3_600e9;
        for (months, days, nanos, expected) in [
            (1.5, 0.0, 0.0, (1, 15, 0)),
            (0.0, 1.5, 0.0, (0, 1, 43_200_000_000_000)),
            (0.1, 0.0, HOUR, (0, 3, 3_600_000_000_000)),
            (-0.5, -1.0, 0.0, (0, -16, 0)),
            (0.0, 1.0 / 3.0 * 3.0, 0.0, (0, 1, 0)),
        ] {
            let (months_of, days_of, nanos_of) = expected;
            let expected = IntervalMonthDayNano::new(months_of, days_of, nanos_of);
            assert_eq!(spread(months, days, nanos), Some(expected));
        }
        assert_eq!(spread(1e10, 0.0, 0.0), None);
        assert_eq!(spread(0.0, 0.0, f64::NAN), None);
    }
}
