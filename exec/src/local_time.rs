use arrow::array::timezone::Tz;
use arrow::array::types::Int64Type;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::ColumnarValue;

use crate::columnar::map_column;

/// Number of half hours that clocks skip at most: a whole day, as in Samoa in 2011.
const MAX_SKIPPED_HALF_HOURS: i32 = 48;

/// Returns the moment at which clocks in the zone show `begin`. If they show it twice, it is the
/// one with the offset of `within`, which is a time of the same period. If they skip it, it is the
/// moment after the gap.
pub(crate) fn first_moment(
    zone: &Tz,
    begin: NaiveDateTime,
    within: &DateTime<Tz>,
) -> Option<DateTime<Tz>> {
    let mut local = begin;
    for _ in 0..=MAX_SKIPPED_HALF_HOURS {
        match zone.from_local_datetime(&local) {
            LocalResult::Single(moment) => return Some(moment),
            LocalResult::Ambiguous(earlier, later) => {
                let is_later = later.naive_local() - later.naive_utc()
                    == within.naive_local() - within.naive_utc();
                return Some(if is_later && later <= *within {
                    later
                } else {
                    earlier
                });
            }
            LocalResult::None => local = local.checked_add_signed(TimeDelta::minutes(30))?,
        }
    }
    None
}

/// Computes a time from each time, which is given as a number of the units of its type.
/// `data_type` is the type of the computed times.
///
/// # Errors
/// Fails for a time for which `compute` returns `None`.
pub(crate) fn map_times(
    times: &ColumnarValue,
    data_type: &DataType,
    compute: impl Fn(i64) -> Option<i64>,
) -> Result<ColumnarValue> {
    let computed = |times: &ArrayRef| -> Result<ArrayRef> {
        let numbers = cast(times, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>().iter();
        let computed = numbers.map(|time| match time {
            None => Ok(None),
            Some(time) => match compute(time) {
                Some(computed) => Ok(Some(computed)),
                None => exec_err!("the timestamp {time} is out of range"),
            },
        });
        let computed: Int64Array = computed.collect::<Result<_>>()?;
        Ok(cast(&computed, data_type)?)
    };
    map_column(times, computed)
}
