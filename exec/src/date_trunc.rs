//! DataFusion 55 truncates timestamps in nanoseconds, which do not have the years before 1677 and
//! after 2262. It truncates instants in UTC as slowly as those in other time zones.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use chrono::{DateTime, Datelike, Days, NaiveDateTime, Timelike};
use datafusion::common::{Result, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::instants::is_utc;
use crate::local_time::{first_moment, in_zone, map_times, zone_named};
use crate::nanos::units_per_second;

/// Returns the function `date_trunc` for timestamps of all years.
pub(crate) fn date_trunc() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DateTrunc(datetime::date_trunc())))
}

/// The function of DataFusion, which is called where its answer is right.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc(Arc<ScalarUDF>);

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [precision, times] = args.args.as_slice() else {
            return internal_err!("date_trunc takes two arguments");
        };
        let wanted = times.data_type();
        let DataType::Timestamp(unit, zone) = &wanted else {
            return self.0.invoke_with_args(args);
        };
        let unit = *unit;
        let period = match precision {
            ColumnarValue::Scalar(name) => name.try_as_str().flatten().and_then(Period::named),
            ColumnarValue::Array(_) => None,
        };
        let local_zone = zone.as_ref().filter(|zone| !is_utc(zone));
        match (period, local_zone) {
            (Some(period), None) if unit != TimeUnit::Nanosecond => {
                map_times(times, &wanted, |time| period.begin_of(time, unit, None))
            }
            (Some(period), Some(zone)) if unit != TimeUnit::Nanosecond => {
                let zone = zone_named(zone)?;
                map_times(times, &wanted, |time| {
                    period.begin_of(time, unit, Some(&zone))
                })
            }
            (_, None) if zone.is_some() => self.in_utc(args, &wanted, unit),
            _ => self.0.invoke_with_args(args),
        }
    }
}

impl DateTrunc {
    /// Truncates instants as timestamps without a time zone, which is the same in UTC.
    fn in_utc(
        &self,
        mut args: ScalarFunctionArgs,
        wanted: &DataType,
        unit: TimeUnit,
    ) -> Result<ColumnarValue> {
        let plain = DataType::Timestamp(unit, None);
        let renamed = |field: &FieldRef| {
            let field = field.as_ref().clone();
            Arc::new(field.with_data_type(plain.clone()))
        };
        args.args[1] = args.args[1].cast_to(&plain, None)?;
        args.arg_fields[1] = renamed(&args.arg_fields[1]);
        args.return_field = renamed(&args.return_field);
        self.0.invoke_with_args(args)?.cast_to(wanted, None)
    }
}

/// A period of the calendar to which times are truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Period {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Period {
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "microsecond" => Self::Microsecond,
            "millisecond" => Self::Millisecond,
            "second" => Self::Second,
            "minute" => Self::Minute,
            "hour" => Self::Hour,
            "day" => Self::Day,
            "week" => Self::Week,
            "month" => Self::Month,
            "quarter" => Self::Quarter,
            "year" => Self::Year,
            _ => return None,
        })
    }

    /// Returns the begin of the period that a time is in. Times are numbers of units since 1970 in
    /// UTC. The period is one of the calendar in the zone.
    fn begin_of(self, time: i64, unit: TimeUnit, zone: Option<&Tz>) -> Option<i64> {
        let per_second = units_per_second(unit);
        if let Some(length) = self.fixed_length(per_second, zone) {
            return time.checked_sub(time.rem_euclid(length));
        }
        let utc = DateTime::from_timestamp(time.div_euclid(per_second), 0)?.naive_utc();
        let begin = match zone {
            None => self.begin(utc)?.and_utc().timestamp(),
            Some(zone) => {
                let local = in_zone(zone, utc)?;
                let begin = self.begin(local.naive_local())?;
                first_moment(zone, begin, &local)?.timestamp()
            }
        };
        begin.checked_mul(per_second)
    }

    /// Returns the number of time units in each period, if all periods have the same length and
    /// begin in any zone when they begin in UTC. Offsets of zones are whole numbers of seconds.
    fn fixed_length(self, per_second: i64, zone: Option<&Tz>) -> Option<i64> {
        match self {
            Self::Microsecond => Some((per_second / 1_000_000).max(1)),
            Self::Millisecond => Some((per_second / 1_000).max(1)),
            Self::Second => Some(per_second),
            _ if zone.is_some() => None,
            Self::Minute => Some(60 * per_second),
            Self::Hour => Some(3_600 * per_second),
            Self::Day => Some(86_400 * per_second),
            Self::Week | Self::Month | Self::Quarter | Self::Year => None,
        }
    }

    /// Returns the begin of the period in the calendar.
    fn begin(self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        let date = time.date();
        let date = match self {
            Self::Microsecond | Self::Millisecond | Self::Second => return Some(time),
            Self::Minute => return date.and_hms_opt(time.hour(), time.minute(), 0),
            Self::Hour => return date.and_hms_opt(time.hour(), 0, 0),
            Self::Day => date,
            Self::Week => {
                let passed = date.weekday().num_days_from_monday();
                date.checked_sub_days(Days::new(u64::from(passed)))?
            }
            Self::Month => date.with_day(1)?,
            Self::Quarter => date.with_day(1)?.with_month(date.month0() / 3 * 3 + 1)?,
            Self::Year => date.with_day(1)?.with_month(1)?,
        };
        date.and_hms_opt(0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(period: &str, time: &str, zone: Option<&str>) -> String {
        let zone: Option<Tz> = zone.map(|zone| zone.parse().unwrap());
        let time = DateTime::parse_from_rfc3339(time)
            .unwrap()
            .timestamp_micros();
        let period = Period::named(period).unwrap();
        let begin = period.begin_of(time, TimeUnit::Microsecond, zone.as_ref());
        let begin = DateTime::from_timestamp_micros(begin.unwrap()).unwrap();
        begin.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    }

    #[test]
    fn periods_of_all_years_begin_at_midnight() {
        for (period, time, expected) in [
            ("year", "0001-06-07T08:09:10Z", "0001-01-01T00:00:00Z"),
            ("Quarter", "9999-12-31T23:59:59Z", "9999-10-01T00:00:00Z"),
            ("month", "9999-12-31T23:59:59Z", "9999-12-01T00:00:00Z"),
            ("week", "2026-11-25T18:00:00Z", "2026-11-23T00:00:00Z"),
            ("week", "1969-12-31T18:00:00Z", "1969-12-29T00:00:00Z"),
            ("day", "1969-12-31T18:00:00.5Z", "1969-12-31T00:00:00Z"),
            ("hour", "1969-12-31T18:59:59.5Z", "1969-12-31T18:00:00Z"),
            ("day", "0001-01-01T18:00:00.5Z", "0001-01-01T00:00:00Z"),
            ("minute", "9999-12-31T18:59:59.5Z", "9999-12-31T18:59:00Z"),
            ("second", "0001-01-01T18:59:59.5Z", "0001-01-01T18:59:59Z"),
            (
                "millisecond",
                "1969-12-31T18:59:59Z",
                "1969-12-31T18:59:59Z",
            ),
        ] {
            assert_eq!(begin(period, time, None), expected, "{period} of {time}");
        }
    }

    #[test]
    fn days_and_hours_follow_the_clocks_of_a_zone() {
        let berlin = Some("Europe/Berlin");
        for (period, time, zone, expected) in [
            (
                "day",
                "2026-03-29T12:00:00Z",
                berlin,
                "2026-03-28T23:00:00Z",
            ),
            (
                "day",
                "2026-03-28T22:59:00Z",
                berlin,
                "2026-03-27T23:00:00Z",
            ),
            // Clocks show this hour twice.
            (
                "hour",
                "2026-10-25T00:30:00Z",
                berlin,
                "2026-10-25T00:00:00Z",
            ),
            (
                "hour",
                "2026-10-25T01:30:00Z",
                berlin,
                "2026-10-25T01:00:00Z",
            ),
            // In Cairo, clocks skip the first hour of this day.
            (
                "day",
                "2026-04-24T12:00:00Z",
                Some("Africa/Cairo"),
                "2026-04-23T22:00:00Z",
            ),
        ] {
            assert_eq!(begin(period, time, zone), expected, "{period} of {time}");
        }
    }
}
