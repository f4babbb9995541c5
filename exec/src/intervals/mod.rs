//! Arrow compares the parts of intervals one after another: months, then days, then nanoseconds.
//! One day is then longer than 25 hours. SQL's answer, as PostgreSQL gives it, counts a month as 30
//! days and a day as 24 hours. So the planner compares and sorts the lengths of intervals, which
//! [`length()`] computes. Durations, which are differences of timestamps, have lengths, too.

/// Finds the shortest and the longest of many intervals.
mod extremes;
/// Computes the lengths of intervals and durations.
mod length;
/// Reads intervals from texts.
mod parse;

pub use extremes::{aggregate, aggregates};
pub(crate) use length::to_duration;
pub use length::{INTERVAL, has_length, length};
pub(crate) use parse::parse;
