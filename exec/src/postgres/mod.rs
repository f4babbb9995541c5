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

/// Returns the functions that need no limit for their values. [`crate::instants::functions`]
/// returns those that read instants.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![
        multiply_interval(),
        divide_interval(),
        to_number::to_number(),
    ];
    functions.extend(with_templates([datetime::to_date()], 0));
    functions
}

/// Returns the functions whose values may be much larger than their arguments.
/// [`crate::value_limit`] gives them a limit.
pub(crate) fn growing_functions() -> [Arc<ScalarUDF>; 3] {
    let [like_escape, similar_to_escape] = escape::functions();
    [like_escape, similar_to_escape, to_char::to_char()]
}
