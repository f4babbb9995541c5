//! DataFusion's memory pool counts what operators hold, but not what functions allocate:
//! `repeat('x', 2000000000)` takes two gigabytes whatever the pool says, and ends a node that has
//! less memory left. So the size of the value is computed from the arguments first ([`growth`]),
//! and the function is not called if the value would be too large ([`bounded`]).
//!
//! Functions that compute for long are limited in the same way ([`steps`]).
//!
//! Aggregates that collect all values of their rows fail when they have collected too much
//! ([`aggregate`]).
//!
//! Functions are left as they are if their values are at most a few times as large as all their
//! arguments together.

/// Limits aggregates that make one value from many, and corrects one that loses states.
mod aggregate;
/// Reads the argument of a function row by row.
mod argument;
/// Wraps functions so that they refuse to make values that are too large.
mod bounded;
/// Prevents the computation of large constants while a statement is planned.
mod folding;
/// Computes how large the values are that functions would make.
mod growth;
/// Merges partial states one by one, for an aggregate that reads only the first of several.
mod one_state;
/// Corrects the lengths that texts are padded to, and checks those of lists.
mod padding;
/// Estimates how long it takes to search for a pattern.
mod pattern;
/// Evaluates expressions again for fewer rows.
pub(crate) mod row_retry;
/// Replaces functions by the same functions with limits.
mod rule;
/// Estimates the steps of functions whose time grows with the product of two arguments.
mod steps;
/// Implements the operator `||` as a function, because operators cannot be given limits.
mod string_concat;
/// Provides functions for the operators that search a text for a pattern: functions can have
/// limits, but operators cannot.
mod text_match;

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::prelude::SessionConfig;

use volary_node::memory::ByteLimit;

use crate::postgres;
use aggregate::BoundedAggregate;
use bounded::BoundedFunction;
use string_concat::StringConcat;

use crate::timestamp_series::with_all_years;

pub use folding::SmallConstantFolding;
pub use rule::BoundedFunctions;

/// The values of a batch together may take this many times the limit of one value, if the caller
/// cannot reduce the rows.
pub(crate) const MAX_VALUES_PER_BATCH: usize = 4;

/// The limit on the size of a value, as an extension of a session's settings.
#[derive(Debug, Clone, Copy)]
pub struct ValueLimit(pub ByteLimit);

impl ValueLimit {
    /// Adds the limit to the settings.
    pub fn set(self, settings: SessionConfig) -> SessionConfig {
        settings.with_extension(Arc::new(self))
    }

    /// Returns the limit from the settings, or `None` if there is none.
    pub fn of(settings: &SessionConfig) -> Option<ByteLimit> {
        settings.get_extension::<Self>().map(|limit| limit.0)
    }
}

/// Returns the `available` functions that make large values from small ones or compute for long,
/// with this limit for each value. Also returns functions for the operators that do so: `||`, `~`
/// and `LIKE`, and the functions of PostgreSQL that need a limit.
pub fn bounded_functions<'a>(
    available: impl IntoIterator<Item = &'a Arc<ScalarUDF>>,
    limit: ByteLimit,
) -> Vec<Arc<ScalarUDF>> {
    let concat = Arc::new(ScalarUDF::from(StringConcat::default()));
    let matches = text_match::functions().map(|operator| Arc::new(ScalarUDF::from(operator)));
    // The sort below keeps the first function of each name: `to_char` of PostgreSQL.
    let mut functions: Vec<_> = postgres::growing_functions()
        .into_iter()
        .chain(available.into_iter().cloned())
        .chain([concat])
        .chain(matches)
        .map(with_all_years)
        .filter_map(|function| BoundedFunction::of(function, limit))
        .map(|function| Arc::new(ScalarUDF::from(function)))
        .collect();
    // A function is listed once for each of its aliases.
    functions.sort_by(|left, right| left.name().cmp(right.name()));
    functions.dedup_by(|left, right| left.name() == right.name());
    functions
}

/// Returns whether the expression calls a function that may ask for fewer rows at once.
///
/// # Errors
/// Fails if the expression cannot be traversed.
pub(crate) fn calls_bounded_function(expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expression.exists(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        Ok(call.is_some_and(|call| call.fun().inner().is::<BoundedFunction>()))
    })
}

/// Returns the `available` aggregates that may make one large value from many, with this limit for
/// their value. Also returns corrected versions of the aggregates that lose partial states.
pub(crate) fn bounded_aggregates<'a>(
    available: impl IntoIterator<Item = &'a Arc<AggregateUDF>>,
    limit: ByteLimit,
) -> Vec<Arc<AggregateUDF>> {
    let mut functions: Vec<_> = available
        .into_iter()
        .filter_map(|function| BoundedAggregate::of(Arc::clone(function), limit))
        .map(|function| Arc::new(AggregateUDF::from(function)))
        .collect();
    // A function is listed once for each of its aliases.
    functions.sort_by(|left, right| left.name().cmp(right.name()));
    functions.dedup_by(|left, right| left.name() == right.name());
    functions
}

#[cfg(test)]
mod tests;
