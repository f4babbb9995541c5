use arrow::array::timezone::Tz;
use arrow::array::types::Int64Type;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use chrono::{DateTime, Days, LocalResult, Months, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::ColumnarValue;

use crate::columnar::map_column;

/// The step in which an end of a gap is looked for.
const STEP: TimeDelta = TimeDelta::minutes(30);
/// Number of steps that clocks skip at most: a whole day, as in Samoa in 2011.
const MAX_SKIPPED_STEPS: i32 = 48;

/// Returns the time zone with this name or offset.
///
/// # Errors
/// Fails if there is no such zone.
pub(crate) fn zone_named(name: &str) -> Result<Tz> {
    name.parse()
        .map_err(|_| exec_datafusion_err!("there is no time zone \"{name}\""))
}

/// Returns an instant with what clocks in the zone show at it. Returns `None` if chrono has no such
/// local time, for which its other functions panic.
pub(crate) fn in_zone(zone: &Tz, utc: NaiveDateTime) -> Option<DateTime<Tz>> {
    let time = zone.from_utc_datetime(&utc);
    utc.checked_add_offset(time.offset().fix())?;
    Some(time)
}

/// Returns the moment at which clocks in the zone show `begin`. If they show it twice, it is the
/// one with the offset of `within`, which is a time of the same period. If they skip it, it is the
/// moment at which they do.
pub(crate) fn first_moment(
    zone: &Tz,
    begin: NaiveDateTime,
    within: &DateTime<Tz>,
) -> Option<DateTime<Tz>> {
    match zone.from_local_datetime(&begin) {
        LocalResult::Single(moment) => Some(moment),
        LocalResult::Ambiguous(earlier, later) => {
            let has_same_offset = later.offset().fix() == within.offset().fix();
            Some(if has_same_offset && later <= *within {
                later
            } else {
                earlier
            })
        }
        LocalResult::None => end_of_gap(zone, begin),
    }
}

/// Returns the moment at which clocks in the zone skip a time.
fn end_of_gap(zone: &Tz, skipped: NaiveDateTime) -> Option<DateTime<Tz>> {
    let mut local = skipped;
    for _ in 0..MAX_SKIPPED_STEPS {
        local = local.checked_add_signed(STEP)?;
        let Some(after) = zone.from_local_datetime(&local).earliest() else {
            continue;
        };
        // Clocks change at whole seconds. They did so after `before`, because the time one step
        // earlier was skipped, too.
        let mut after = after.timestamp();
        let mut before = after - STEP.num_seconds();
        let at = |seconds| in_zone(zone, DateTime::from_timestamp(seconds, 0)?.naive_utc());
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if at(middle)?.naive_local() > skipped {
                after = middle;
            } else {
                before = middle;
            }
        }
        return at(after);
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
        let local = time.naive_utc().checked_add_offset(time.offset().fix())?;
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
    map_column(times, computed)
}

#[cfg(test)]
mod tests {
    use chrono::{NaiveDate, Utc};

    use super::*;

    #[test]
    fn a_skipped_time_stands_for_the_moment_at_which_clocks_skip_it() {
        for (zone, day, hour, minute, expected) in [
            (
                "Europe/Berlin",
                (2026, 3, 29),
                2,
                45,
                "2026-03-29T01:00:00+00:00",
            ),
            (
                "Europe/Berlin",
                (2026, 3, 29),
                2,
                0,
                "2026-03-29T01:00:00+00:00",
            ),
            (
                "Australia/Lord_Howe",
                (2026, 10, 4),
                2,
                10,
                "2026-10-03T15:30:00+00:00",
            ),
            // Samoa skipped this day.
            (
                "Pacific/Apia",
                (2011, 12, 30),
                0,
                0,
                "2011-12-30T10:00:00+00:00",
            ),
        ] {
            let zone: Tz = zone.parse().unwrap();
            let (year, month, day) = day;
            let date = NaiveDate::from_ymd_opt(year, month, day).unwrap();
            let begin = date.and_hms_opt(hour, minute, 0).unwrap();
            let within = in_zone(&zone, begin).unwrap();
            let moment = first_moment(&zone, begin, &within).unwrap();
            assert_eq!(moment.to_utc().to_rfc3339(), expected, "{begin}");
        }
    }

    #[test]
    fn local_times_beyond_all_years_do_not_exist() {
        let latest = DateTime::<Utc>::MAX_UTC.naive_utc();
        let earliest = DateTime::<Utc>::MIN_UTC.naive_utc();
        let of = |name: &str, utc| in_zone(&name.parse().unwrap(), utc);
        assert_eq!(of("Asia/Tokyo", latest), None);
        assert_eq!(of("-05:00", earliest), None);
        assert!(of("-05:00", latest).is_some());
    }
}
