//! DataFusion 55 computes `date_bin` in nanoseconds, which do not have the years before 1677 and
//! after 2262, and returns NULL for them. It counts days in UTC, whatever the time zone of the
//! instants is.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::datatypes::{DataType, IntervalMonthDayNanoType, TimeUnit};
use chrono::{DateTime, Datelike, Months, NaiveDateTime, TimeDelta};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, not_impl_err, plan_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::instants::is_utc;
use crate::intervals::INTERVAL;
use crate::local_time::{first_moment, in_zone, map_times, zone_named};
use crate::nanos::{NANOS_PER_DAY, NANOS_PER_SECOND, nanos_per};

/// Returns the function `date_bin` for timestamps of all years.
pub(crate) fn date_bin() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DateBin {
        of_times: datetime::date_bin(),
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// The function that returns the begin of the interval that a time is in. All intervals, not only
/// those of days and months, follow the clocks of the time zone in the type of the time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin {
    /// The function of DataFusion, which is called for times of day.
    of_times: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &str {
        self.of_times.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let (stride, time, origin) = match arg_types {
            [stride, time] => (stride, time, None),
            [stride, time, origin] => (stride, time, Some(origin)),
            _ => {
                return plan_err!(
                    "date_bin takes an interval, a time, and optionally the begin of an interval"
                );
            }
        };
        if !matches!(stride, DataType::Interval(_) | DataType::Null) && !stride.is_string() {
            return plan_err!("the first argument of date_bin must be an interval, not {stride}");
        }
        let time = match time {
            DataType::Timestamp(_, _) | DataType::Time32(_) | DataType::Time64(_) => time.clone(),
            DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
            text if text.is_string() || text.is_null() => {
                DataType::Timestamp(TimeUnit::Nanosecond, None)
            }
            other => return plan_err!("date_bin takes timestamps and times, not {other}"),
        };
        let mut types = vec![INTERVAL, time.clone()];
        if let Some(origin) = origin {
            types.push(match (&time, origin) {
                (DataType::Timestamp(_, zone), DataType::Timestamp(unit, _)) => {
                    DataType::Timestamp(*unit, zone.clone())
                }
                _ => time,
            });
        }
        Ok(types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [_, time, ..] => Ok(time.clone()),
            _ => internal_err!("date_bin takes a time"),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.of_times.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_times.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [stride, times, origin @ ..] = args.args.as_slice() else {
            return internal_err!("date_bin takes a time");
        };
        let data_type = times.data_type();
        let DataType::Timestamp(unit, zone) = &data_type else {
            return self.of_times.invoke_with_args(args);
        };
        let null = ScalarValue::try_from(&data_type)?;
        let Some(stride) = Stride::of(stride)? else {
            return Ok(ColumnarValue::Scalar(null));
        };
        let zone = zone.as_ref().filter(|zone| !is_utc(zone));
        let zone = zone.map(|zone| zone_named(zone));
        let bins = Bins {
            stride,
            unit: i128::from(nanos_per(*unit)),
            zone: zone.transpose()?,
            origin: 0,
        };
        let Some(bins) = bins.counted_from(origin.first())? else {
            return Ok(ColumnarValue::Scalar(null));
        };
        match bins.simple() {
            Some((stride, origin)) => map_times(times, &data_type, |time| {
                let passed = time.checked_sub(origin)?.checked_rem_euclid(stride)?;
                time.checked_sub(passed)
            }),
            None => map_times(times, &data_type, |time| bins.begin_of(time)),
        }
    }
}

/// The length of the intervals.
#[derive(Debug, Clone, Copy)]
enum Stride {
    Nanos(i128),
    Months(i64),
}

impl Stride {
    /// Returns `None` for NULL.
    fn of(stride: &ColumnarValue) -> Result<Option<Self>> {
        let ColumnarValue::Scalar(stride) = stride else {
            return not_impl_err!("the interval of date_bin must be a constant");
        };
        let ScalarValue::IntervalMonthDayNano(stride) = stride else {
            return internal_err!("date_bin takes an interval");
        };
        let Some(stride) = stride else {
            return Ok(None);
        };
        let (months, days, nanos) = IntervalMonthDayNanoType::to_parts(*stride);
        let in_nanos = i128::from(days) * i128::from(NANOS_PER_DAY) + i128::from(nanos);
        let stride = match (months, in_nanos) {
            (0, nanos) => Self::Nanos(nanos),
            (months, 0) if days == 0 => Self::Months(i64::from(months)),
            _ => {
                return not_impl_err!(
                    "the interval of date_bin cannot have months together with days or parts of days"
                );
            }
        };
        if matches!(stride, Self::Nanos(..=0) | Self::Months(..=0)) {
            return exec_err!("the interval of date_bin must be longer than zero");
        }
        Ok(Some(stride))
    }
}

/// The intervals that times are in.
#[derive(Debug, Clone, Copy)]
struct Bins {
    stride: Stride,
    /// Number of nanoseconds of a unit of the times.
    unit: i128,
    /// The zone of the times, if it is not UTC.
    zone: Option<Tz>,
    /// The begin of an interval: the nanoseconds from 1970-01-01 00:00 on the clocks of the zone.
    origin: i128,
}

impl Bins {
    /// Returns the intervals, one of which begins at `origin`. Without an origin, this is midnight
    /// of 1970-01-01. Returns `None` for an origin that is NULL.
    fn counted_from(self, origin: Option<&ColumnarValue>) -> Result<Option<Self>> {
        let origin = match origin {
            None => return Ok(Some(self)),
            Some(ColumnarValue::Array(_)) => {
                return not_impl_err!("the third argument of date_bin must be a constant");
            }
            Some(ColumnarValue::Scalar(origin)) => origin,
        };
        let DataType::Timestamp(unit, _) = origin.data_type() else {
            return internal_err!("the origin of date_bin must be a timestamp");
        };
        let ScalarValue::Int64(Some(origin)) = origin.cast_to(&DataType::Int64)? else {
            return Ok(None);
        };
        let instant = i128::from(origin) * i128::from(nanos_per(unit));
        let local = match self.zone {
            None => Some(instant),
            Some(zone) => to_chrono(instant)
                .and_then(|utc| in_zone(&zone, utc))
                .map(|origin| of_chrono(origin.naive_local())),
        };
        match local {
            Some(origin) => Ok(Some(Self { origin, ..self })),
            None => exec_err!("the origin of date_bin is out of range"),
        }
    }

    /// Returns the stride and the origin in units of the times, if these two suffice to compute the
    /// intervals.
    fn simple(&self) -> Option<(i64, i64)> {
        let Stride::Nanos(nanos) = self.stride else {
            return None;
        };
        let is_whole = nanos % self.unit == 0 && self.origin % self.unit == 0;
        if self.zone.is_some() || !is_whole {
            return None;
        }
        let in_units = |nanos: i128| i64::try_from(nanos / self.unit).ok();
        Some((in_units(nanos)?, in_units(self.origin)?))
    }

    /// Returns the begin of the interval that a time is in. Both are numbers of units since 1970 in
    /// UTC.
    fn begin_of(&self, time: i64) -> Option<i64> {
        let nanos = i128::from(time) * self.unit;
        let begin = match self.zone {
            None => self.local_begin(nanos)?,
            Some(zone) => {
                let within = in_zone(&zone, to_chrono(nanos)?)?;
                let begin = self.local_begin(of_chrono(within.naive_local()))?;
                let begin = first_moment(&zone, to_chrono(begin)?, &within)?;
                of_chrono(begin.naive_utc())
            }
        };
        i64::try_from(begin.div_euclid(self.unit)).ok()
    }

    /// Returns the begin of the interval that a local time is in, as clocks show it.
    fn local_begin(&self, nanos: i128) -> Option<i128> {
        match self.stride {
            Stride::Nanos(stride) => Some(nanos - (nanos - self.origin).rem_euclid(stride)),
            Stride::Months(stride) => {
                let (time, origin) = (to_chrono(nanos)?, to_chrono(self.origin)?);
                let months =
                    |time: NaiveDateTime| i64::from(time.year()) * 12 + i64::from(time.month0());
                let passed = (months(time) - months(origin)).div_euclid(stride) * stride;
                let mut begin = add_months(origin, passed)?;
                if begin > time {
                    begin = add_months(origin, passed - stride)?;
                }
                Some(of_chrono(begin))
            }
        }
    }
}

fn add_months(time: NaiveDateTime, months: i64) -> Option<NaiveDateTime> {
    let count = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    if months < 0 {
        time.checked_sub_months(count)
    } else {
        time.checked_add_months(count)
    }
}

fn to_chrono(nanos: i128) -> Option<NaiveDateTime> {
    let per_second = i128::from(NANOS_PER_SECOND);
    let seconds = i64::try_from(nanos.div_euclid(per_second)).ok()?;
    let fraction = i64::try_from(nanos.rem_euclid(per_second)).ok()?;
    let whole = DateTime::from_timestamp(seconds, 0)?.naive_utc();
    whole.checked_add_signed(TimeDelta::nanoseconds(fraction))
}

fn of_chrono(time: NaiveDateTime) -> i128 {
    let time = time.and_utc();
    let seconds = i128::from(time.timestamp()) * i128::from(NANOS_PER_SECOND);
    seconds + i128::from(time.timestamp_subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nanos::NANOS_PER_HOUR;

    fn begin(stride: Stride, time: &str, zone: Option<&str>, origin: Option<&str>) -> String {
        let micros = |time: &str| {
            let time = DateTime::parse_from_rfc3339(time).unwrap();
            time.timestamp_micros()
        };
        let bins = Bins {
            stride,
            unit: 1_000,
            zone: zone.map(|zone| zone.parse().unwrap()),
            origin: 0,
        };
        let origin = origin.map(|origin| {
            let origin = ScalarValue::TimestampMicrosecond(Some(micros(origin)), None);
            ColumnarValue::Scalar(origin)
        });
        let bins = bins.counted_from(origin.as_ref()).unwrap().unwrap();
        let begin = bins.begin_of(micros(time)).unwrap();
        if let Some((stride, origin)) = bins.simple() {
            let time = micros(time);
            assert_eq!(time - (time - origin).rem_euclid(stride), begin);
        }
        let begin = DateTime::from_timestamp_micros(begin).unwrap();
        begin.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    }

    #[test]
    fn times_of_all_years_are_in_intervals() {
        let day = Stride::Nanos(i128::from(NANOS_PER_DAY));
        for (stride, time, origin, expected) in [
            (day, "9999-12-31T23:59:59Z", None, "9999-12-31T00:00:00Z"),
            (day, "0001-01-01T05:00:00Z", None, "0001-01-01T00:00:00Z"),
            (
                day,
                "1969-12-31T12:00:00Z",
                Some("2000-01-01T13:00:00Z"),
                "1969-12-30T13:00:00Z",
            ),
            (
                Stride::Months(3),
                "1400-02-03T00:00:00Z",
                None,
                "1400-01-01T00:00:00Z",
            ),
            (
                Stride::Months(1),
                "2026-03-15T05:00:00Z",
                Some("2026-01-31T06:00:00Z"),
                "2026-02-28T06:00:00Z",
            ),
        ] {
            assert_eq!(begin(stride, time, None, origin), expected, "{time}");
        }
    }

    #[test]
    fn intervals_follow_the_clocks_of_a_zone() {
        let (day, hour) = (i128::from(NANOS_PER_DAY), i128::from(NANOS_PER_HOUR));
        let day = Stride::Nanos(day);
        for (stride, time, expected) in [
            (day, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z"),
            (day, "2026-03-29T22:00:00Z", "2026-03-29T22:00:00Z"),
            // Clocks show this hour twice.
            (
                Stride::Nanos(hour),
                "2026-10-25T00:30:00Z",
                "2026-10-25T00:00:00Z",
            ),
            (
                Stride::Nanos(hour),
                "2026-10-25T01:30:00Z",
                "2026-10-25T01:00:00Z",
            ),
            (
                Stride::Months(1),
                "2026-07-31T22:00:00Z",
                "2026-07-31T22:00:00Z",
            ),
        ] {
            let begin = begin(stride, time, Some("Europe/Berlin"), None);
            assert_eq!(begin, expected, "{time}");
        }
    }

    #[test]
    fn an_interval_whose_begin_clocks_skip_begins_when_they_do() {
        let hour = Stride::Nanos(i128::from(NANOS_PER_HOUR));
        // The interval from 2:45 to 3:45 has the time 3:10.
        let origin = Some("2026-01-01T00:45:00Z");
        let begin = begin(hour, "2026-03-29T01:10:00Z", Some("Europe/Berlin"), origin);
        assert_eq!(begin, "2026-03-29T01:00:00Z");
    }
}
