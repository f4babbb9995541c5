//! Clients that write SQL for PostgreSQL expect these functions. Gateways and workers both have
//! them, so that workers can compute them.

/// Parses, writes and reads templates for times.
mod date_template;
/// Turns patterns with any escape character into patterns that LIKE and `~` take.
mod escape;
/// Parses, writes and reads templates for numbers.
mod number_template;
/// Reads times with templates.
mod read_times;
/// Multiplies and divides intervals.
mod scaled_intervals;
/// Defines what templates for times and templates for numbers have in common.
mod template;
/// Defines `to_char`.
mod to_char;
/// Defines `to_number`, which reads a number with a template.
mod to_number;

use std::sync::Arc;

use datafusion::functions::datetime;
use datafusion::logical_expr::ScalarUDF;

pub use escape::{LIKE_ESCAPE, SIMILAR_TO_ESCAPE, escape_char, like_pattern, similar_to_regex};
pub(crate) use read_times::with_templates;
pub use scaled_intervals::{divide_interval, interval_of_days, multiply_interval};

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
