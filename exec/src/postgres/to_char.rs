//! The function `to_char`. A pattern with a `%` is one of DataFusion, such as `%Y-%m-%d`, and every
//! other one is a template of PostgreSQL.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::array::timezone::Tz;
use arrow::array::types::{
    DurationMicrosecondType, Float64Type, IntervalMonthDayNanoType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, not};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::{DateTime, NaiveDateTime, Offset};
use datafusion::common::{Result, exec_datafusion_err, internal_err, plan_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use volary_flight_proto::{Error, SqlState};

use super::date_template::{DateTemplate, Moment};
use super::number_template::{MAX_DIGITS, NumberTemplate};
use crate::columnar::{finish, rows_of};
use crate::intervals::INTERVAL;
use crate::local_time::{in_zone, zone_named};

const MICROS: DataType = DataType::Duration(TimeUnit::Microsecond);

/// Returns the function `to_char`.
pub(super) fn to_char() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(ToChar {
        signature: Signature::user_defined(Volatility::Immutable),
        aliases: vec!["date_format".to_owned()],
        of_datafusion: datetime::to_char(),
    }))
}

/// Returns whether a pattern is one of DataFusion.
pub(super) fn is_chrono(pattern: &str) -> bool {
    pattern.contains('%')
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
    aliases: Vec<String>,
    of_datafusion: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &'static str {
        "to_char"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, pattern] = arg_types else {
            return plan_err!("to_char takes a value and a pattern");
        };
        if !pattern.is_string() && !pattern.is_null() {
            return plan_err!("the pattern of to_char is a text, not {pattern}");
        }
        let value = match value {
            DataType::Timestamp(_, _) | DataType::Date32 | DataType::Date64 => value.clone(),
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Nanosecond),
            DataType::Interval(_) => INTERVAL,
            DataType::Duration(_) => MICROS,
            DataType::Float16 | DataType::Float32 => DataType::Float64,
            number if number.is_numeric() => number.clone(),
            text if text.is_string() || text.is_null() => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            other => return plan_err!("to_char takes a time or a number, not {other}"),
        };
        Ok(vec![value, DataType::Utf8])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, pattern] = args.args.as_slice() else {
            return internal_err!("to_char takes two arguments");
        };
        if let ColumnarValue::Scalar(pattern) = pattern
            && pattern.try_as_str().flatten().is_some_and(is_chrono)
        {
            return self.with_chrono(args);
        }
        let rows = rows_of(&args.args, args.number_rows);
        let (value, pattern) = (value.to_array(rows)?, pattern.to_array(rows)?);
        let patterns = pattern.as_string::<i32>();
        let are_chrono: BooleanArray = patterns
            .iter()
            .map(|pattern| Some(pattern.is_some_and(is_chrono)))
            .collect();
        if are_chrono.true_count() == 0 {
            return finish(&args.args, format_all(&value, patterns)?);
        }
        let own = arrow::compute::nullif(&pattern, &are_chrono)?;
        let own = format_all(&value, own.as_string())?;
        let others = arrow::compute::nullif(&pattern, &not(&are_chrono)?)?;
        let mut args = args;
        // DataFusion ignores a column of patterns if the value is a constant.
        args.args[0] = ColumnarValue::Array(value);
        args.args[1] = ColumnarValue::Array(others);
        let others = self.with_chrono(args)?.into_array(rows)?;
        Ok(ColumnarValue::Array(zip(&are_chrono, &others, &own)?))
    }
}

impl ToChar {
    fn with_chrono(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let data_type = args.args[0].data_type();
        if data_type.is_numeric() || data_type == INTERVAL {
            return Err(Error::invalid(
                "a pattern of to_char with % is for times; write a template such as 999.99 or HH24:MI",
            )
            .with_sqlstate(SqlState::InvalidTextRepresentation)
            .into());
        }
        args.arg_fields[0] = args.arg_fields[0]
            .as_ref()
            .clone()
            .with_data_type(data_type)
            .into();
        self.of_datafusion.invoke_with_args(args)
    }
}

/// Formats each value with the template of its row.
fn format_all(values: &ArrayRef, templates: &StringArray) -> Result<ArrayRef> {
    let mut formatted = StringBuilder::with_capacity(values.len(), values.len() * 16);
    if values.data_type().is_numeric() {
        let numbers = Numbers::new(values)?;
        each_row(
            values,
            templates,
            &mut formatted,
            NumberTemplate::parse,
            |template, row, text| {
                let number = numbers.text_at(row)?;
                template.format(&number, |digits| numbers.round(row, &number, digits), text);
                Ok(())
            },
        )?;
    } else {
        let moments = Moments::new(values)?;
        let parse = |template: &str| Ok(DateTemplate::parse(template));
        each_row(
            values,
            templates,
            &mut formatted,
            parse,
            |template, row, text| template.format(moments.at(row)?, text),
        )?;
    }
    Ok(Arc::new(formatted.finish()))
}

/// Appends a text for each row. A template that is the same as in the row before is parsed once.
fn each_row<T>(
    values: &ArrayRef,
    templates: &StringArray,
    formatted: &mut StringBuilder,
    parse: impl Fn(&str) -> Result<T>,
    format: impl Fn(&T, usize, &mut String) -> Result<()>,
) -> Result<()> {
    let mut last: Option<(&str, T)> = None;
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) || templates.is_null(row) {
            formatted.append_null();
            continue;
        }
        let written = templates.value(row);
        let template = match last.take() {
            Some((known, template)) if known == written => template,
            _ => parse(written)?,
        };
        text.clear();
        format(&template, row, &mut text)?;
        formatted.append_value(&text);
        last = Some((written, template));
    }
    Ok(())
}

/// A column of numbers as texts.
struct Numbers<'a> {
    floats: Option<&'a arrow::array::Float64Array>,
    exact: ArrayFormatter<'a>,
}

impl<'a> Numbers<'a> {
    fn new(values: &'a ArrayRef) -> Result<Self> {
        const OPTIONS: FormatOptions<'static> = FormatOptions::new();
        Ok(Self {
            floats: values.as_primitive_opt::<Float64Type>(),
            exact: ArrayFormatter::try_new(values.as_ref(), &OPTIONS)?,
        })
    }

    /// Returns the number with all its digits.
    fn text_at(&self, row: usize) -> Result<String> {
        if let Some(floats) = self.floats {
            return Ok(format!("{}", floats.value(row)));
        }
        let mut text = String::new();
        write!(text, "{}", self.exact.value(row))
            .map_err(|_| exec_datafusion_err!("a number cannot be written"))?;
        Ok(text)
    }

    /// Returns the number, rounded to so many digits after the point.
    fn round(&self, row: usize, number: &str, digits: usize) -> String {
        match self.floats {
            // NaN and infinity have no digits, and are written as a number that does not fit.
            Some(floats) if !floats.value(row).is_finite() => "#".repeat(MAX_DIGITS + 1),
            Some(floats) => format!("{:.digits$}", floats.value(row)),
            None => super::number_template::round_decimal(number, digits),
        }
    }
}

/// A column of times.
enum Moments {
    /// Dates and timestamps, with the unit and the time zone of their type.
    Times(ArrayRef, TimeUnit, Option<(Tz, Arc<str>)>),
    /// Times of day, in nanoseconds.
    TimesOfDay(ArrayRef),
    Intervals(ArrayRef),
    /// Durations in microseconds.
    Durations(ArrayRef),
}

impl Moments {
    fn new(values: &ArrayRef) -> Result<Self> {
        Ok(match values.data_type() {
            DataType::Timestamp(unit, zone) => {
                let zone = zone
                    .as_ref()
                    .map(|name| -> Result<_> { Ok((zone_named(name)?, Arc::clone(name))) });
                Self::Times(Arc::clone(values), *unit, zone.transpose()?)
            }
            DataType::Date32 | DataType::Date64 => {
                let seconds = cast(values, &DataType::Timestamp(TimeUnit::Second, None))?;
                Self::Times(seconds, TimeUnit::Second, None)
            }
            DataType::Time64(TimeUnit::Nanosecond) => Self::TimesOfDay(Arc::clone(values)),
            DataType::Interval(_) => Self::Intervals(Arc::clone(values)),
            DataType::Duration(_) => Self::Durations(Arc::clone(values)),
            other => return internal_err!("to_char does not format {other}"),
        })
    }

    fn at(&self, row: usize) -> Result<Moment<'_>> {
        Ok(match self {
            Self::Times(times, unit, zone) => {
                let out_of_range = || exec_datafusion_err!("a time is out of the range of to_char");
                let utc = utc_time(times, *unit, row).ok_or_else(out_of_range)?;
                match zone {
                    None => Moment::Time(utc, None),
                    Some((zone, name)) => {
                        let local = in_zone(zone, utc).ok_or_else(out_of_range)?;
                        let offset = local.offset().fix().local_minus_utc();
                        Moment::Time(local.naive_local(), Some((offset, name)))
                    }
                }
            }
            Self::TimesOfDay(times) => Moment::Interval {
                months: 0,
                days: 0,
                nanos: times.as_primitive::<Time64NanosecondType>().value(row),
            },
            Self::Intervals(intervals) => {
                let interval = intervals
                    .as_primitive::<IntervalMonthDayNanoType>()
                    .value(row);
                Moment::Interval {
                    months: interval.months,
                    days: interval.days,
                    nanos: interval.nanoseconds,
                }
            }
            Self::Durations(durations) => {
                const DAY: i64 = 86_400_000_000;
                let micros = durations
                    .as_primitive::<DurationMicrosecondType>()
                    .value(row);
                Moment::Interval {
                    months: 0,
                    // A duration is at most 106,751,991 days long.
                    days: i32::try_from(micros / DAY).unwrap_or_default(),
                    nanos: micros % DAY * 1_000,
                }
            }
        })
    }
}

fn utc_time(times: &ArrayRef, unit: TimeUnit, row: usize) -> Option<NaiveDateTime> {
    let time = match unit {
        TimeUnit::Second => {
            DateTime::from_timestamp(times.as_primitive::<TimestampSecondType>().value(row), 0)
        }
        TimeUnit::Millisecond => DateTime::from_timestamp_millis(
            times.as_primitive::<TimestampMillisecondType>().value(row),
        ),
        TimeUnit::Microsecond => DateTime::from_timestamp_micros(
            times.as_primitive::<TimestampMicrosecondType>().value(row),
        ),
        TimeUnit::Nanosecond => Some(DateTime::from_timestamp_nanos(
            times.as_primitive::<TimestampNanosecondType>().value(row),
        )),
    };
    time.map(|time| time.naive_utc())
}
