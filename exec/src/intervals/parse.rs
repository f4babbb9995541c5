use arrow::compute::kernels::cast_utils::{
    IntervalParseConfig, IntervalUnit, parse_interval_month_day_nano_config,
};
use arrow::datatypes::IntervalMonthDayNano;

use crate::nanos::{NANOS_PER_HOUR, NANOS_PER_MINUTE, NANOS_PER_SECOND};

/// Reads an interval from a text: `1 year 2 mons -3 days`, with a time of day such as `04:05:06.7`
/// behind it or alone, or in the form of ISO 8601, `P1Y2M3DT4H5M6.7S`. As in PostgreSQL, a number
/// without a unit counts days if a time of day follows it, and seconds otherwise.
pub(crate) fn parse(text: &str) -> Option<IntervalMonthDayNano> {
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
    let config = IntervalParseConfig::new(IntervalUnit::Second);
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
}
