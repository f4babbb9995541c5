//! Arrow compares the parts of intervals one after another: months, then days, then nanoseconds.
//! One day is then longer than 25 hours. SQL's answer, as PostgreSQL gives it, counts a month as 30
//! days and a day as 24 hours. So the planner compares and sorts the lengths of intervals, which
//! [`length`] computes. Durations, which are differences of timestamps, have lengths, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, PrimitiveArray};
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::{
    IntervalParseConfig, IntervalUnit as TextUnit, parse_interval_month_day_nano_config,
};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Field, FieldRef, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::columnar::map_column;
use crate::nanos::{NANOS_PER_DAY, NANOS_PER_HOUR, NANOS_PER_MINUTE, NANOS_PER_SECOND, nanos_per};

/// The Arrow type of SQL's INTERVAL.
pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The type of lengths: numbers of nanoseconds.
const LENGTH: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

const DAYS_PER_MONTH: i64 = 30;

/// Returns whether values of the type are intervals or durations.
pub fn has_length(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// Returns the length in nanoseconds.
fn nanos_of(interval: IntervalMonthDayNano) -> i128 {
    let days = i64::from(interval.months) * DAYS_PER_MONTH + i64::from(interval.days);
    i128::from(days) * i128::from(NANOS_PER_DAY) + i128::from(interval.nanoseconds)
}

/// Reads an interval from a text: `1 year 2 mons -3 days`, with a time of day such as `04:05:06.7`
/// behind it or alone, or in the form of ISO 8601, `P1Y2M3DT4H5M6.7S`. As in PostgreSQL, a number
/// without a unit counts days if a time of day follows it, and seconds otherwise.
pub fn parse(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim();
    if text.trim_start_matches(['+', '-']).starts_with(['P', 'p']) {
        return parse_iso(text);
    }
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let (times, mut others): (Vec<_>, Vec<_>) =
        words.iter().copied().partition(|word| word.contains(':'));
    let time = match times.as_slice() {
        [] => 0,
        [time] => parse_time(time)?,
        _ => return None,
    };
    if others.is_empty() {
        return (!times.is_empty()).then(|| IntervalMonthDayNano::new(0, 0, time));
    }
    let ends_with_number = others.last().is_some_and(|word| is_number(word));
    if ends_with_number && !times.is_empty() {
        if words.last() != times.first() {
            return None;
        }
        others.push("days");
    }
    let config = IntervalParseConfig::new(TextUnit::Second);
    let parsed = parse_interval_month_day_nano_config(&others.join(" "), config).ok()?;
    let nanos = parsed.nanoseconds.checked_add(time)?;
    Some(IntervalMonthDayNano::new(parsed.months, parsed.days, nanos))
}

fn is_number(word: &str) -> bool {
    word.chars()
        .all(|char| char.is_ascii_digit() || matches!(char, '+' | '-' | '.'))
}

/// Reads `[-]hours:minutes[:seconds]` as nanoseconds.
fn parse_time(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = digits.split(':');
    let hours = whole(parts.next()?)?;
    let minutes = whole(parts.next()?).filter(|minutes| *minutes < 60)?;
    let seconds = parts.next().map_or(Some(0), parse_seconds)?;
    if seconds >= NANOS_PER_MINUTE || parts.next().is_some() {
        return None;
    }
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    let nanos = minutes.checked_mul(NANOS_PER_MINUTE)?;
    nanos.checked_add(seconds)?.checked_mul(sign)
}

fn whole(text: &str) -> Option<i64> {
    let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| text.parse().ok()).flatten()
}

/// Reads a number of seconds without a sign as nanoseconds. Digits below nanoseconds are refused,
/// unless they are zeros.
fn parse_seconds(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (kept, below) = fraction.split_at_checked(9).unwrap_or((fraction, ""));
    if !kept.is_empty() {
        whole(kept)?;
    }
    if below.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let nanos = format!("{kept:0<9}").parse::<i64>().ok()?;
    whole(seconds)?
        .checked_mul(NANOS_PER_SECOND)?
        .checked_add(nanos)
}

fn parse_iso(text: &str) -> Option<IntervalMonthDayNano> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1_i64, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let upper = text.to_ascii_uppercase();
    let (dates, times) = match upper.strip_prefix('P')?.split_once('T') {
        Some((dates, times)) if !times.is_empty() => (dates, times),
        Some(_) => return None,
        None => (upper.strip_prefix('P')?, ""),
    };
    if dates.is_empty() && times.is_empty() {
        return None;
    }
    let (mut months, mut days, mut nanos) = (0_i64, 0_i64, 0_i64);
    for (number, unit) in iso_parts(dates)? {
        let number = parse_signed(number, whole)?.checked_mul(sign)?;
        let (total, factor) = match unit {
            'Y' => (&mut months, 12),
            'M' => (&mut months, 1),
            'W' => (&mut days, 7),
            'D' => (&mut days, 1),
            _ => return None,
        };
        *total = total.checked_add(number.checked_mul(factor)?)?;
    }
    for (number, unit) in iso_parts(times)? {
        let part = match unit {
            'H' => parse_signed(number, whole)?.checked_mul(NANOS_PER_HOUR)?,
            'M' => parse_signed(number, whole)?.checked_mul(NANOS_PER_MINUTE)?,
            'S' => parse_signed(number, parse_seconds)?,
            _ => return None,
        };
        nanos = nanos.checked_add(part.checked_mul(sign)?)?;
    }
    let (months, days) = (i32::try_from(months).ok()?, i32::try_from(days).ok()?);
    Some(IntervalMonthDayNano::new(months, days, nanos))
}

fn parse_signed(text: &str, parse: impl Fn(&str) -> Option<i64>) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(rest) => parse(rest)?.checked_neg(),
        None => parse(text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Splits `1Y2M` into numbers and units.
fn iso_parts(text: &str) -> Option<Vec<(&str, char)>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let unit = rest[end..].chars().next()?;
        parts.push((&rest[..end], unit));
        rest = &rest[end + 1..];
    }
    Some(parts)
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

/// Returns the aggregates that stand for MIN and MAX of intervals.
pub fn aggregates() -> [Arc<AggregateUDF>; 2] {
    [Extreme::Min, Extreme::Max].map(|extreme| {
        let signature = Signature::exact(vec![INTERVAL], Volatility::Immutable);
        Arc::new(AggregateUDF::from(ExtremeInterval { extreme, signature }))
    })
}

/// Returns the aggregate that stands for MIN or MAX, by the name of these.
pub fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    let [min, max] = aggregates();
    match name {
        "min" => Some(min),
        "max" => Some(max),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Extreme {
    Min,
    Max,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExtremeInterval {
    extreme: Extreme,
    signature: Signature,
}

impl AggregateUDFImpl for ExtremeInterval {
    fn name(&self) -> &str {
        match self.extreme {
            Extreme::Min => "interval_min",
            Extreme::Max => "interval_max",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(ExtremeAccumulator {
            extreme: self.extreme,
            value: None,
        }))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SlidingExtreme {
            extreme: self.extreme,
            counts: BTreeMap::new(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(
            format!("{}[value]", args.name),
            INTERVAL,
            true,
        ))])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct ExtremeAccumulator {
    extreme: Extreme,
    value: Option<IntervalMonthDayNano>,
}

/// Returns by what an interval is compared: its length, and then its parts, so that the answer does
/// not depend on the order of the rows.
fn order_of(interval: IntervalMonthDayNano) -> (i128, IntervalMonthDayNano) {
    (nanos_of(interval), interval)
}

impl Accumulator for ExtremeAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only_column(values)?.iter().flatten() {
            let is_better = self.value.is_none_or(|known| match self.extreme {
                Extreme::Min => order_of(value) < order_of(known),
                Extreme::Max => order_of(value) > order_of(known),
            });
            if is_better {
                self.value = Some(value);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.value))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

fn only_column(values: &[ArrayRef]) -> Result<&PrimitiveArray<IntervalMonthDayNanoType>> {
    match values {
        [values] => Ok(values.as_primitive()),
        _ => internal_err!("the minimum of intervals takes one argument"),
    }
}

/// The extreme of the rows of a window, which rows enter and leave.
#[derive(Debug)]
struct SlidingExtreme {
    extreme: Extreme,
    /// How many rows of the window have each interval.
    counts: BTreeMap<(i128, IntervalMonthDayNano), usize>,
}

impl Accumulator for SlidingExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only_column(values)?.iter().flatten() {
            *self.counts.entry(order_of(value)).or_default() += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only_column(values)?.iter().flatten() {
            let order = order_of(value);
            if let Some(count) = self.counts.get_mut(&order) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&order);
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let extreme = match self.extreme {
            Extreme::Min => self.counts.keys().next(),
            Extreme::Max => self.counts.keys().next_back(),
        };
        let value = extreme.map(|(_, interval)| *interval);
        Ok(ScalarValue::IntervalMonthDayNano(value))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.counts.len() * size_of::<((i128, IntervalMonthDayNano), usize)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = NANOS_PER_HOUR;

    #[test]
    fn intervals_are_read() {
        for (text, months, days, nanos) in [
            ("1 day", 0, 1, 0),
            (" 1 year 2 mons -3 days ", 14, -3, 0),
            ("1 day 02:00:00", 0, 1, 2 * HOUR),
            ("-01:30", 0, 0, -3 * HOUR / 2),
            ("00:00:01.5", 0, 0, 1_500_000_000),
            ("100:00:00", 0, 0, 100 * HOUR),
            ("5", 0, 0, 5_000_000_000),
            ("1 02:00:00", 0, 1, 2 * HOUR),
            ("1 mon -1 02:00:00", 1, -1, 2 * HOUR),
            ("02:00:00 1 day", 0, 1, 2 * HOUR),
            ("P1Y2M3DT4H5M6.5S", 14, 3, 4 * HOUR + 306_500_000_000),
            ("-P1M", -1, 0, 0),
            ("PT-1H", 0, 0, -HOUR),
            ("P2W", 0, 14, 0),
            ("PT0.000000001S", 0, 0, 1),
        ] {
            let expected = IntervalMonthDayNano::new(months, days, nanos);
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1",
            "1 kea",
            "1:60",
            "1:00:60",
            "1:2:3:4",
            "1:00 2:00",
            "02:00:00 1",
            "P1Y2",
            "P1.5D",
            "PT0.0000000001S",
            "P99999999999Y",
            "PT99999999999999999H",
            ":",
            "P1Ö",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

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
