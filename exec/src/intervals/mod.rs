//! Arrow compares the parts of intervals one after another: months, then days, then nanoseconds.
//! One day is then longer than 25 hours. SQL's answer, as PostgreSQL gives it, counts a month as 30
//! days and a day as 24 hours. So the planner compares and sorts the lengths of intervals, which
//! [`length()`] computes. Durations, which are differences of timestamps, have lengths, too.

/// Finds the shortest and the longest of the intervals in a column.
mod extremes;
/// Finds the shortest and the longest of the intervals in a row.
mod greatest;
/// Computes the lengths of intervals and durations.
mod length;
/// Reads intervals from texts.
mod parse;

pub use extremes::{aggregate, aggregates};
pub use greatest::extreme_of_row;
pub(crate) use greatest::functions;
pub(crate) use length::to_duration;
pub use length::{INTERVAL, has_length, length};
pub(crate) use parse::parse;
