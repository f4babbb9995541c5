//! Nothing can stop a function between its first and its last row. Computing the distance of two
//! texts of one megabyte each would keep a thread busy for half an hour after its statement has
//! ended. So the steps are counted before the function is called.

use std::cell::Cell;

use super::argument::Argument;
use super::growth::PerRow;
use super::pattern::Pattern;

/// The most steps that one value may take. They take about half a second.
pub(super) const MAX_PER_VALUE: u64 = 1 << 28;
/// Number of bytes that the comparison of two texts handles in one step.
const COMPARED_AT_ONCE: u64 = 32;

/// Returns the steps for each row, by the name of the function. Returns `None` for a function whose
/// time grows only with the size of its arguments.
pub(super) fn value_steps<'a>(name: &str, arguments: &'a [Argument]) -> Option<PerRow<'a>> {
    let product = |row| bytes(arguments, 0, row).saturating_mul(bytes(arguments, 1, row));
    Some(match name {
        "levenshtein" | "btrim" | "ltrim" | "rtrim" => Box::new(product),
        "strpos" => Box::new(move |row| product(row) / COMPARED_AT_ONCE),
        "regexp_like" | "regexp_match" | "regex_match" | "regex_imatch" => {
            search_steps(arguments, Pattern::regex, Pattern::steps_of_first)
        }
        "like_match" | "ilike_match" => {
            search_steps(arguments, Pattern::like, Pattern::steps_of_first)
        }
        // Without flags, the function replaces only the first match.
        "regexp_replace" if arguments.len() < 4 => {
            search_steps(arguments, Pattern::regex, Pattern::steps_of_first)
        }
        "regexp_replace" | "regexp_count" | "regexp_instr" => {
            search_steps(arguments, Pattern::regex, Pattern::steps_of_all)
        }
        "array_has_all" | "array_has_any" => {
            Box::new(|row| elements(arguments, 0, row).saturating_mul(elements(arguments, 1, row)))
        }
        _ => return None,
    })
}

/// Returns the steps of searching the first argument for the pattern in the second one. A pattern
/// that is the same as in the row before is analysed only once here, and compiled only once by the
/// function.
fn search_steps<'a>(
    arguments: &'a [Argument],
    read: fn(&str) -> Pattern,
    steps: fn(Pattern, u64) -> u64,
) -> PerRow<'a> {
    let last = Cell::new(None::<(&'a [u8], Pattern)>);
    Box::new(move |row| {
        let pattern = arguments.get(1).and_then(|pattern| pattern.text_at(row));
        let Some(text) = pattern else {
            return 0;
        };
        let bytes = bytes(arguments, 0, row);
        match last.get() {
            Some((of, pattern)) if of == text => steps(pattern, bytes),
            _ => {
                let pattern = std::str::from_utf8(text).map_or_else(|_| read(""), read);
                last.set(Some((text, pattern)));
                steps(pattern, bytes).saturating_add(pattern.compile_steps())
            }
        }
    })
}

fn bytes(arguments: &[Argument], position: usize, row: usize) -> u64 {
    let argument = arguments.get(position);
    argument.map_or(0, |argument| argument.bytes(row))
}

fn elements(arguments: &[Argument], position: usize, row: usize) -> u64 {
    let list = arguments.get(position);
    let elements = list.and_then(|list| list.elements(row));
    elements.map_or(0, |elements| elements.len() as u64)
}
