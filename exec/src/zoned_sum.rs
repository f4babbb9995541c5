//! DataFusion 55 adds whole days and months to what clocks in a time zone show. It fails if clocks
//! skip the local time to which these lead, or show it twice.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::types::{
    ArrowTimestampType, IntervalMonthDayNanoType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use arrow::temporal_conversions::as_datetime_with_timezone;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::columnar::{finish, rows_of};
use crate::intervals::INTERVAL;
use crate::local_time::{add_interval, zone_named};

const ADD: &str = "add_interval";
const SUBTRACT: &str = "subtract_interval";

/// Returns the functions that gateways and workers need.
pub(crate) fn functions() -> [Arc<ScalarUDF>; 2] {
    [function(false), function(true)]
}

/// Returns the sum, or the difference, of a timestamp with a time zone and an interval, according
/// to the clocks of that zone.
pub fn zoned_sum(time: Expr, interval: Expr, is_difference: bool) -> Expr {
    function(is_difference).call(vec![time, interval])
}

fn function(is_difference: bool) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ZonedSum {
        is_difference,
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ZonedSum {
    is_difference: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ZonedSum {
    fn name(&self) -> &str {
        if self.is_difference { SUBTRACT } else { ADD }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [
                time @ DataType::Timestamp(_, Some(_)),
                DataType::Interval(_),
            ] => Ok(time.clone()),
            _ => exec_err!(
                "{} takes a timestamp with a time zone and an interval",
                self.name()
            ),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, intervals] = take_function_args(self.name(), &args.args)?;
        let DataType::Timestamp(unit, Some(zone)) = times.data_type() else {
            return exec_err!("{} takes a timestamp with a time zone", self.name());
        };
        let zone = zone_named(&zone)?;
        let rows = rows_of(&args.args, args.number_rows);
        let times = times.to_array(rows)?;
        let intervals = intervals.cast_to(&INTERVAL, None)?.to_array(rows)?;
        let sums = match unit {
            TimeUnit::Second => self.sums::<TimestampSecondType>(&times, &intervals, zone),
            TimeUnit::Millisecond => {
                self.sums::<TimestampMillisecondType>(&times, &intervals, zone)
            }
            TimeUnit::Microsecond => {
                self.sums::<TimestampMicrosecondType>(&times, &intervals, zone)
            }
            TimeUnit::Nanosecond => self.sums::<TimestampNanosecondType>(&times, &intervals, zone),
        }?;
        finish(&args.args, sums)
    }
}

impl ZonedSum {
    fn sums<T: ArrowTimestampType>(
        &self,
        times: &ArrayRef,
        intervals: &ArrayRef,
        zone: Tz,
    ) -> Result<ArrayRef> {
        let with_zone = times.data_type().clone();
        let times = times.as_primitive::<T>().iter();
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
        let sums = times.zip(intervals).map(|pair| match pair {
            (Some(time), Some(interval)) => match self.sum::<T>(time, interval, zone) {
                Some(sum) => Ok(Some(sum)),
                None => exec_err!("Timestamp out of range: the result of + or - of an interval"),
            },
            _ => Ok(None),
        });
        let sums: PrimitiveArray<T> = sums.collect::<Result<_>>()?;
        Ok(Arc::new(sums.with_data_type(with_zone)))
    }

    fn sum<T: ArrowTimestampType>(
        &self,
        time: i64,
        interval: IntervalMonthDayNano,
        zone: Tz,
    ) -> Option<i64> {
        let interval = if self.is_difference {
            interval.checked_neg()?
        } else {
            interval
        };
        let sum = add_interval(&as_datetime_with_timezone::<T>(time, zone)?, interval)?;
        T::from_naive_datetime(sum.naive_utc(), None)
    }
}
