use arrow::array::timezone::Tz;
use arrow::array::types::Int64Type;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use chrono::{DateTime, Days, LocalResult, Months, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::ColumnarValue;

/// Most half hours by which clocks skip at once.
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

/// Adds the months, then the days, then the nanoseconds of the interval to a time. Months and days
/// are those of the calendar in the zone of the time. If clocks skip the local time that they lead
/// to, the result is later by the length of the gap. If clocks show it twice, the result has the
/// offset of `time` if that is possible. Returns `None` if the result is out of range.
pub(crate) fn add_interval(
    time: &DateTime<Tz>,
    interval: IntervalMonthDayNano,
) -> Option<DateTime<Tz>> {
    let mut moved = *time;
    if interval.months != 0 || interval.days != 0 {
        let months = Months::new(interval.months.unsigned_abs());
        let days = Days::new(u64::from(interval.days.unsigned_abs()));
        let local = time.naive_local();
        let local = if interval.months < 0 {
            local.checked_sub_months(months)?
        } else {
            local.checked_add_months(months)?
        };
        let local = if interval.days < 0 {
            local.checked_sub_days(days)?
        } else {
            local.checked_add_days(days)?
        };
        let offset = time.offset().fix();
        moved = match time.timezone().from_local_datetime(&local) {
            LocalResult::Single(moment) => moment,
            LocalResult::Ambiguous(earlier, later) => {
                if later.offset().fix() == offset {
                    later
                } else {
                    earlier
                }
            }
            LocalResult::None => offset
                .from_local_datetime(&local)
                .single()?
                .with_timezone(&time.timezone()),
        };
    }
    moved.checked_add_signed(TimeDelta::nanoseconds(interval.nanoseconds))
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
    match times {
        ColumnarValue::Array(times) => Ok(ColumnarValue::Array(computed(times)?)),
        ColumnarValue::Scalar(time) => {
            let time = computed(&time.to_array()?)?;
            debug_assert_eq!(time.len(), 1);
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &time, 0,
            )?))
        }
    }
}
