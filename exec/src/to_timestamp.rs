//! DataFusion 55 reads texts in nanoseconds, whatever the unit of the result, and `to_timestamp`
//! returns nanoseconds, which do not have the years before 1677 and after 2262. These functions
//! read texts of all years in their own unit, and `to_timestamp` returns microseconds, as `now`
//! does. `to_timestamp_nanos` of DataFusion drops the time zone of texts that it reads in a format.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringViewArray};
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Decimal256Type, Float64Type, TimeUnit};
use chrono::format::{Parsed, StrftimeItems, parse};
use chrono::{DateTime, NaiveDateTime, TimeZone, Utc};
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::functions::datetime;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::columnar::{finish, map_column, rows_of};
use crate::local_time::zone_named;

/// The time zone of options that name none.
const DEFAULT_ZONE: &str = "UTC";

/// Returns `to_timestamp` and its variants, which read texts without an offset in the time zone of
/// the options.
pub(crate) fn functions(options: &ConfigOptions) -> [Arc<ScalarUDF>; 5] {
    [
        (datetime::to_timestamp(options), TimeUnit::Microsecond),
        (datetime::to_timestamp_seconds(options), TimeUnit::Second),
        (
            datetime::to_timestamp_millis(options),
            TimeUnit::Millisecond,
        ),
        (
            datetime::to_timestamp_micros(options),
            TimeUnit::Microsecond,
        ),
        (datetime::to_timestamp_nanos(options), TimeUnit::Nanosecond),
    ]
    .map(|(of_nanos, unit)| function(of_nanos, unit, options))
}

fn function(of_nanos: Arc<ScalarUDF>, unit: TimeUnit, options: &ConfigOptions) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ToTimestamp {
        zone: options
            .execution
            .time_zone
            .as_deref()
            .unwrap_or(DEFAULT_ZONE)
            .into(),
        inner: of_nanos,
        unit,
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    /// DataFusion's function, for everything but texts.
    inner: Arc<ScalarUDF>,
    unit: TimeUnit,
    /// The time zone of the result and of texts without an offset.
    zone: Arc<str>,
}

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result())
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = self.inner.inner().with_updated_config(config);
        let inner = inner.map_or_else(|| Arc::clone(&self.inner), Arc::new);
        let function = function(inner, self.unit, config);
        Some(ScalarUDF::clone(&function))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(first) = args.args.first() else {
            return exec_err!("{} takes at least one argument", self.name());
        };
        let from = first.data_type();
        if from.is_string() {
            return self.read(&args);
        }
        if self.name() != "to_timestamp" {
            return self.inner.invoke_with_args(args);
        }
        if from.is_integer() {
            let seconds = first.cast_to(&DataType::Timestamp(TimeUnit::Second, None), None)?;
            return seconds.cast_to(&self.result(), None);
        }
        if from.is_floating() {
            return self.of_seconds(&first.cast_to(&DataType::Float64, None)?);
        }
        if from.is_decimal() {
            // The digits of a number with six digits after the point are microseconds.
            let micros = DataType::Decimal256(MAX_DIGITS, MICROSECOND_DIGITS);
            let micros = first.cast_to(&micros, None)?;
            let micros = unscaled(&micros)?;
            return micros.cast_to(&self.result(), None);
        }
        first.cast_to(&self.result(), None)
    }
}

/// Number of digits of the numbers of seconds that `to_timestamp` takes.
const MAX_DIGITS: u8 = 76;
/// Number of those that are after the point.
const MICROSECOND_DIGITS: i8 = 6;

/// Returns decimals with six digits after the point as numbers of microseconds.
fn unscaled(decimals: &ColumnarValue) -> Result<ColumnarValue> {
    let unscaled = |decimals: &ArrayRef| -> Result<ArrayRef> {
        let decimals = decimals.as_primitive::<Decimal256Type>();
        let decimals = decimals.clone().with_precision_and_scale(MAX_DIGITS, 0)?;
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        Ok(cast_with_options(&decimals, &DataType::Int64, &options)?)
    };
    map_column(decimals, unscaled)
}

impl ToTimestamp {
    fn result(&self) -> DataType {
        DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone)))
    }

    /// Returns the times of these numbers of seconds since 1970.
    fn of_seconds(&self, seconds: &ColumnarValue) -> Result<ColumnarValue> {
        const MICROS: f64 = 1_000_000.0;
        let convert = |seconds: &ArrayRef| -> Result<ArrayRef> {
            let seconds: &Float64Array = seconds.as_primitive::<Float64Type>();
            let micros = seconds.iter().map(|seconds| match seconds {
                None => Ok(None),
                // Without rounding, 0.000249 seconds would be 248 microseconds.
                Some(seconds) if (seconds * MICROS).abs() < i64::MAX as f64 => {
                    Ok(Some((seconds * MICROS).round_ties_even() as i64))
                }
                Some(seconds) => exec_err!("to_timestamp: {seconds} is out of range"),
            });
            let micros: Int64Array = micros.collect::<Result<_>>()?;
            Ok(cast(&micros, &self.result())?)
        };
        map_column(seconds, convert)
    }

    /// Reads the texts in the first argument with the formats in the others.
    fn read(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = zone_named(&self.zone)?;
        let rows = rows_of(&args.args, args.number_rows);
        let columns = args
            .args
            .iter()
            .map(|argument| argument.cast_to(&DataType::Utf8View, None)?.to_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let Some((texts, formats)) = columns.split_first() else {
            return internal_err!("{} takes a text", self.name());
        };
        let texts: &StringViewArray = texts.as_string_view();
        let read = texts.iter().enumerate().map(|(row, text)| {
            let Some(text) = text else {
                return Ok(None);
            };
            let known = formats.iter().map(|formats| formats.as_string_view());
            let known = known.filter(|formats| formats.is_valid(row));
            let known: Vec<&str> = known.map(|formats| formats.value(row)).collect();
            if known.is_empty() && !formats.is_empty() {
                return Ok(None);
            }
            self.number(&self.time(&zone, text, &known)?).map(Some)
        });
        let read: Int64Array = read.collect::<Result<_>>()?;
        finish(&args.args, cast(&read, &self.result())?)
    }

    /// Returns the time that the text says in the first of the formats that it has.
    fn time(&self, zone: &Tz, text: &str, formats: &[&str]) -> Result<DateTime<Utc>> {
        if formats.is_empty() {
            return Ok(string_to_datetime(zone, text)?.to_utc());
        }
        let mut last = None;
        for format in formats {
            match formatted(zone, text, format) {
                Ok(time) => return Ok(time),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| exec_datafusion_err!("{} has no format", self.name())))
    }

    fn number(&self, time: &DateTime<Utc>) -> Result<i64> {
        match self.unit {
            TimeUnit::Second => Ok(time.timestamp()),
            TimeUnit::Millisecond => Ok(time.timestamp_millis()),
            TimeUnit::Microsecond => Ok(time.timestamp_micros()),
            TimeUnit::Nanosecond => time.timestamp_nanos_opt().ok_or_else(|| {
                exec_datafusion_err!("{time} does not fit nanoseconds, which end in 2262")
            }),
        }
    }
}

/// Reads a text by a format of chrono. A name of a time zone may only be at the end, after a space.
fn formatted(zone: &Tz, text: &str, format: &str) -> Result<DateTime<Utc>> {
    let invalid = |reason: String| {
        exec_datafusion_err!(
            "Error parsing timestamp from '{text}' using format '{format}': {reason}"
        )
    };
    let mut zone = *zone;
    let (mut rest, mut items) = (text, format);
    if let Some(before) = format.trim_end().strip_suffix(" %Z") {
        let (time, name) = text
            .trim_end()
            .rsplit_once(' ')
            .ok_or_else(|| invalid("it has no time zone".to_owned()))?;
        zone = name
            .parse()
            .map_err(|_| invalid(format!("there is no time zone \"{name}\"")))?;
        (rest, items) = (time, before);
    } else if format.contains("%Z") {
        return Err(invalid(
            "'%Z' is only supported at the end of the format string preceded by a space".to_owned(),
        ));
    }
    let mut parsed = Parsed::new();
    parse(&mut parsed, rest, StrftimeItems::new(items))
        .map_err(|error| invalid(error.to_string()))?;
    if let Ok(time) = parsed.to_datetime() {
        return Ok(time.to_utc());
    }
    let local: NaiveDateTime = parsed
        .to_naive_datetime_with_offset(0)
        .or_else(|_| parsed.to_naive_date().map(Into::into))
        .map_err(|error| invalid(error.to_string()))?;
    let time = zone.from_local_datetime(&local).single();
    let time = time.ok_or_else(|| invalid("clocks do not show it exactly once".to_owned()))?;
    Ok(time.to_utc())
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::*;

    fn read(text: &str, formats: &[&str], zone: &str) -> String {
        let mut options = ConfigOptions::default();
        options.execution.time_zone = Some(zone.to_owned());
        let [function, ..] = functions(&options);
        let function = function.inner();
        let args: Vec<_> = std::iter::once(&text)
            .chain(formats)
            .map(|text| ColumnarValue::Scalar(ScalarValue::from(*text)))
            .collect();
        let data_type = function.return_type(&[]).unwrap();
        let args = ScalarFunctionArgs {
            arg_fields: Vec::new(),
            args,
            number_rows: 1,
            return_field: Arc::new(arrow::datatypes::Field::new("", data_type, true)),
            config_options: Arc::new(options),
        };
        match function.invoke_with_args(args) {
            Ok(ColumnarValue::Scalar(value)) => {
                let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                let value = value.cast_to(&utc).unwrap().to_array().unwrap();
                arrow::util::display::array_value_to_string(&value, 0).unwrap()
            }
            Ok(ColumnarValue::Array(_)) => "an array".to_owned(),
            Err(error) => format!("{error}"),
        }
    }

    #[test]
    fn texts_of_all_years_are_read() {
        let (day_first, named) = ("%d.%m.%Y", "%Y-%m-%d %H:%M %Z");
        for (text, formats, zone, expected) in [
            ("0001-01-01", &[][..], "UTC", "0001-01-01T00:00:00Z"),
            (
                "9999-12-31T23:59:59.999999Z",
                &[],
                "UTC",
                "9999-12-31T23:59:59.999999Z",
            ),
            ("31.12.9999", &[day_first], "UTC", "9999-12-31T00:00:00Z"),
            (
                "2026-07-01",
                &[day_first, "%Y-%m-%d"],
                "Europe/Berlin",
                "2026-06-30T22:00:00Z",
            ),
            (
                "2026-07-01 10:00 Asia/Tokyo",
                &[named],
                "UTC",
                "2026-07-01T01:00:00Z",
            ),
            (
                "2026-07-01 10:00 +02:00",
                &["%Y-%m-%d %H:%M %:z"],
                "Asia/Tokyo",
                "2026-07-01T08:00:00Z",
            ),
        ] {
            assert_eq!(read(text, formats, zone), expected, "{text}");
        }
        for (text, formats, expected) in [
            ("kea", &[][..], "Error parsing timestamp from 'kea'"),
            ("2026-07-01", &[day_first], "using format '%d.%m.%Y'"),
            ("2026-07-01 10:00 Moon", &[named], "no time zone \"Moon\""),
        ] {
            let error = read(text, formats, "UTC");
            assert!(error.contains(expected), "{error}");
        }
    }
}
