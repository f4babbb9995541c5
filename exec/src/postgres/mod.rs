//! Clients that write SQL for PostgreSQL expect these functions. Gateways and workers have the same
//! ones, so that workers compute them.

/// Parses, writes and reads templates for times.
mod date_template;
/// Turns patterns with any escape character into patterns that LIKE and `~` take.
mod escape;
/// Multiplies and divides intervals.
mod interval;
/// Parses, writes and reads templates for numbers.
mod number_template;
/// Reads times with templates.
mod read_times;
/// Numbers the rows of windows with signed integers.
mod row_numbers;
/// Computes a function row by row.
mod rows;
/// Defines `to_char`.
mod to_char;
/// Defines `to_number`, which reads a number with a template.
mod to_number;

use std::sync::Arc;

use datafusion::functions::datetime;
use datafusion::logical_expr::ScalarUDF;

pub use escape::{LIKE_ESCAPE, SIMILAR_TO_ESCAPE, escape_char, like_pattern, similar_to_regex};
pub use interval::{divide_interval, interval_of_days, multiply_interval};
pub(crate) use read_times::with_templates;
pub use row_numbers::window_functions;

/// Returns the functions. [`crate::instants::functions`] returns those that read instants.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![
        multiply_interval(),
        divide_interval(),
        to_char::to_char(),
        to_number::to_number(),
    ];
    functions.extend(escape::functions());
    functions.extend(with_templates([datetime::to_date()], 0));
    functions
}
