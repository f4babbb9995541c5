use arrow::array::AsArray;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::error::Result;

use super::argument::{Argument, NANOS_A_DAY, bytes_of};

/// Bytes of an element of a list of numbers or times.
const NUMBER_BYTES: u64 = 8;
/// The most bytes of text that one byte of a number becomes.
const DIGITS_PER_BYTE: u64 = 4;
/// The most bytes of a pattern that one byte of it becomes with another escape character: `(`
/// becomes `(?:`.
const BYTES_PER_PATTERN_BYTE: u64 = 3;
/// More than the bytes that a regular expression has before and after a pattern of SIMILAR TO.
const BYTES_AROUND_PATTERN: u64 = 16;
/// The most bytes of text that one byte of a template becomes: `TZ` becomes the name of a time
/// zone, and `%+` a time with nanoseconds and an offset.
const BYTES_PER_TEMPLATE_BYTE: u64 = 18;
/// Size in bytes from which the size of a value is computed more exactly. Below it, the upper bound
/// is used.
const EXACT_FROM_BYTES: u64 = 1 << 16;
const LONGEST_CHARACTER: u64 = 4;
const SHORTEST_MONTH: i128 = 28;

/// Function from a row to the size of its value in bytes, or to the steps that its value takes.
pub(super) type PerRow<'a> = Box<dyn Fn(usize) -> u64 + 'a>;

/// Returns the size of the value of each row, by the name of the function. Returns `None` for a
/// function that does not make large values from small ones.
///
/// # Errors
/// Fails if an argument is a number or a time that cannot be read.
pub(super) fn value_sizes<'a>(name: &str, arguments: &'a [Argument]) -> Result<Option<PerRow<'a>>> {
    Ok(Some(match name {
        "repeat" => {
            let count = integers(arguments, 1)?;
            Box::new(move |row| bytes(arguments, 0, row).saturating_mul(positive(count(row))))
        }
        "lpad" | "rpad" => {
            let count = integers(arguments, 1)?;
            Box::new(move |row| padded(arguments, row, positive(count(row))))
        }
        "replace" => Box::new(|row| replaced(arguments, row)),
        "regexp_replace" => Box::new(|row| regexp_replaced(arguments, row)),
        "concat" | "string_concat" | "array_concat" | "array_append" | "array_prepend" => {
            Box::new(|row| sum(arguments, row))
        }
        "concat_ws" => Box::new(|row| {
            let separators = bytes(arguments, 0, row).saturating_mul(arguments.len() as u64);
            sum(arguments, row).saturating_add(separators)
        }),
        "array_to_string" => Box::new(|row| joined(arguments, row)),
        "like_escape" | "similar_to_escape" => Box::new(|row| {
            let pattern = bytes(arguments, 0, row).saturating_mul(BYTES_PER_PATTERN_BYTE);
            pattern.saturating_add(BYTES_AROUND_PATTERN)
        }),
        // The template decides how long the text is. It is also copied for each row.
        "to_char" => {
            Box::new(|row| bytes(arguments, 1, row).saturating_mul(BYTES_PER_TEMPLATE_BYTE))
        }
        "string_to_array" => Box::new(|row| bytes(arguments, 0, row).saturating_mul(16)),
        "range" | "generate_series" => series_sizes(arguments)?,
        "array_repeat" => {
            let count = integers(arguments, 1)?;
            Box::new(move |row| {
                let each = bytes(arguments, 0, row).max(1);
                each.saturating_mul(positive(count(row)))
            })
        }
        "array_replace" | "array_replace_n" | "array_replace_all" => {
            Box::new(|row| elements_replaced(arguments, row))
        }
        "array_resize" => {
            let count = integers(arguments, 1)?;
            Box::new(move |row| {
                let each = bytes(arguments, 2, row).max(NUMBER_BYTES);
                let filled = each.saturating_mul(positive(count(row)));
                filled.saturating_add(bytes(arguments, 0, row))
            })
        }
        _ => return Ok(None),
    }))
}

fn bytes(arguments: &[Argument], position: usize, row: usize) -> u64 {
    arguments
        .get(position)
        .map_or(0, |argument| argument.bytes(row))
}

fn integers(arguments: &[Argument], position: usize) -> Result<Box<dyn Fn(usize) -> Option<i64>>> {
    Ok(match arguments.get(position) {
        Some(argument) => Box::new(argument.integers()?),
        None => Box::new(|_| None),
    })
}

fn positive(count: Option<i64>) -> u64 {
    count
        .and_then(|count| u64::try_from(count).ok())
        .unwrap_or(0)
}

fn sum(arguments: &[Argument], row: usize) -> u64 {
    let sizes = arguments.iter().map(|argument| argument.bytes(row));
    sizes.fold(0, u64::saturating_add)
}

/// Returns the size of a padded text. A character takes one byte if the text and the padding are
/// ASCII. NULL has a size as well, because the function allocates as much for it.
fn padded(arguments: &[Argument], row: usize, characters: u64) -> u64 {
    let most = characters.saturating_mul(LONGEST_CHARACTER);
    if most < EXACT_FROM_BYTES {
        return most;
    }
    let mut texts = [0, 2]
        .into_iter()
        .filter_map(|position| arguments.get(position));
    let is_ascii = texts.all(|text| text.text_at(row).is_none_or(<[u8]>::is_ascii));
    if is_ascii { characters } else { most }
}

fn replaced(arguments: &[Argument], row: usize) -> u64 {
    let texts = [0, 1, 2].map(|position| arguments.get(position)?.text_at(row));
    let [Some(text), Some(from), Some(to)] = texts else {
        return 0;
    };
    let (length, to) = (text.len() as u64, to.len() as u64);
    let size = |matches: u64| length.saturating_add(matches.saturating_mul(to));
    let most = size(length / (from.len() as u64).max(1) + 1);
    if most < EXACT_FROM_BYTES || from.is_empty() {
        return most;
    }
    match (std::str::from_utf8(text), std::str::from_utf8(from)) {
        (Ok(text), Ok(from)) => size(text.matches(from).count() as u64),
        _ => most,
    }
}

/// Returns an upper bound of the size. How often the expression matches is not computed.
fn regexp_replaced(arguments: &[Argument], row: usize) -> u64 {
    let texts = [0, 2].map(|position| arguments.get(position)?.text_at(row));
    let [Some(text), Some(to)] = texts else {
        return 0;
    };
    let flags = arguments.get(3).and_then(|flags| flags.text_at(row));
    let is_global = flags.is_some_and(|flags| flags.contains(&b'g'));
    let length = text.len() as u64;
    let groups = to
        .iter()
        .filter(|byte| matches!(byte, b'\\' | b'$'))
        .count() as u64;
    let literal = to.len() as u64;
    if is_global {
        // All matches together are at most as long as the text, and each group is at most as long
        // as its match.
        let literals = literal.saturating_mul(length + 1);
        let of_groups = groups.saturating_mul(length);
        length.saturating_add(literals).saturating_add(of_groups)
    } else {
        length + literal + groups.saturating_mul(length)
    }
}

/// Returns an upper bound of the size: every element counts as replaced.
fn elements_replaced(arguments: &[Argument], row: usize) -> u64 {
    let elements = arguments.first().and_then(|list| list.elements(row));
    let count = elements.map_or(0, |elements| elements.len() as u64);
    let replacements = bytes(arguments, 2, row).saturating_mul(count);
    bytes(arguments, 0, row).saturating_add(replacements)
}

fn joined(arguments: &[Argument], row: usize) -> u64 {
    let elements = arguments.first().and_then(|list| list.elements(row));
    let Some(elements) = elements else {
        return 0;
    };
    let is_text = matches!(
        elements.data_type(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    let per_byte = if is_text { 1 } else { DIGITS_PER_BYTE };
    let texts = bytes_of(&elements).saturating_mul(per_byte);
    let between = bytes(arguments, 1, row).saturating_add(bytes(arguments, 2, row));
    texts.saturating_add(between.saturating_mul(elements.len() as u64))
}

/// Returns the size of the list that `range` or `generate_series` makes.
fn series_sizes(arguments: &[Argument]) -> Result<PerRow<'_>> {
    if arguments
        .iter()
        .all(|argument| argument.data_type().is_integer())
    {
        return number_series_sizes(arguments);
    }
    match arguments {
        [start, stop, step] => time_series_sizes(start, stop, step),
        _ => Ok(Box::new(|_| 0)),
    }
}

fn number_series_sizes(arguments: &[Argument]) -> Result<PerRow<'_>> {
    let numbers = arguments.iter().map(Argument::integers);
    let numbers: Vec<_> = numbers.collect::<Result<_>>()?;
    Ok(Box::new(move |row| {
        let at = |position: usize| numbers.get(position)?(row).map(i128::from);
        let (start, stop) = match numbers.len() {
            1 => (Some(0), at(0)),
            _ => (at(0), at(1)),
        };
        let step = if numbers.len() > 2 { at(2) } else { Some(1) };
        series_bytes(start, stop, step)
    }))
}

fn time_series_sizes<'a>(
    start: &'a Argument,
    stop: &'a Argument,
    step: &'a Argument,
) -> Result<PerRow<'a>> {
    if step.data_type() != &DataType::Interval(IntervalUnit::MonthDayNano) {
        return Ok(Box::new(|_| 0));
    }
    let (start, stop) = (start.nanos()?, stop.nanos()?);
    let steps = step.array().as_primitive::<IntervalMonthDayNanoType>();
    Ok(Box::new(move |row| {
        let step = nanos_of(steps.value(step.position(row)));
        series_bytes(start(row), stop(row), Some(step))
    }))
}

/// Returns the least length of an interval in nanoseconds. Every month counts as a short one, so
/// that the number of steps is never too low.
fn nanos_of(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * SHORTEST_MONTH + i128::from(interval.days);
    days * NANOS_A_DAY + i128::from(interval.nanoseconds)
}

fn series_bytes(start: Option<i128>, stop: Option<i128>, step: Option<i128>) -> u64 {
    let (Some(start), Some(stop), Some(step)) = (start, stop, step) else {
        return 0;
    };
    // The function refuses a step of zero. A step away from the end makes an empty list.
    if step == 0 || (stop - start).signum() * step.signum() < 0 {
        return 0;
    }
    let steps = (stop - start).abs() / step.abs() + 1;
    u64::try_from(steps)
        .unwrap_or(u64::MAX)
        .saturating_mul(NUMBER_BYTES)
}
