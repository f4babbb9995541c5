//! How long functions compute whose time grows with the product of two arguments.
//!
//! Nothing ends a function between its first and its last row: the distance of two texts of a megabyte each
//! keeps a thread for half an hour after its statement has ended. So the steps are counted before the
//! function is called.

use super::argument::Argument;
use super::growth::PerRow;

/// One value may take this many steps, which is about half a second.
pub(super) const MOST_OF_VALUE: u64 = 1 << 28;
/// Bytes that a comparison of two texts takes in one step.
const COMPARED_AT_ONCE: u64 = 32;

/// Returns the steps for each row, by the function's name, or `None` for a function whose time grows with
/// the size of its arguments.
pub(super) fn of<'a>(name: &str, arguments: &'a [Argument]) -> Option<PerRow<'a>> {
    let product = |row| bytes(arguments, 0, row).saturating_mul(bytes(arguments, 1, row));
    Some(match name {
        "levenshtein" | "btrim" | "ltrim" | "rtrim" => Box::new(product),
        "strpos" => Box::new(move |row| product(row) / COMPARED_AT_ONCE),
        "array_has_all" | "array_has_any" => {
            Box::new(|row| elements(arguments, 0, row).saturating_mul(elements(arguments, 1, row)))
        }
        _ => return None,
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
