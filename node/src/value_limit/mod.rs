//! Limits functions that make large values from small ones.
//!
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

mod aggregate;
mod argument;
pub(crate) mod at_once;
mod bounded;
mod folding;
mod growth;
mod one_state;
mod padding;
mod pattern;
mod rule;
mod steps;
mod string_concat;
mod text_match;

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::prelude::SessionConfig;

use crate::memory::Limit;

use aggregate::BoundedAggregate;
use bounded::Bounded;
use string_concat::StringConcat;

pub use folding::SmallConstants;
pub use rule::BoundedFunctions;

/// The values of a batch together may take this many times the limit of one value, if the batch
/// cannot have fewer rows.
pub(crate) const VALUES_AT_ONCE: usize = 4;

/// The limit on the size of a value, as an extension of a session's settings.
#[derive(Debug, Clone, Copy)]
pub struct ValueLimit(pub Limit);

impl ValueLimit {
    /// Adds the limit to the settings.
    pub fn set(self, settings: SessionConfig) -> SessionConfig {
        settings.with_extension(Arc::new(self))
    }

    /// Returns the limit from the settings, or `None` if there is none.
    pub fn of(settings: &SessionConfig) -> Option<Limit> {
        settings.get_extension::<Self>().map(|limit| limit.0)
    }
}

/// Returns the `known` functions that make large values from small ones or compute for long, with
/// this limit for each value. Also returns functions for the operators that do so: `||`, `~` and
/// `LIKE`.
pub fn bounded<'a>(
    known: impl IntoIterator<Item = &'a Arc<ScalarUDF>>,
    limit: Limit,
) -> Vec<Arc<ScalarUDF>> {
    let concat = Arc::new(ScalarUDF::from(StringConcat::default()));
    let matches = text_match::functions().map(|operator| Arc::new(ScalarUDF::from(operator)));
    let mut functions: Vec<_> = known
        .into_iter()
        .cloned()
        .chain([concat])
        .chain(matches)
        .filter_map(|function| Bounded::of(function, limit))
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
/// The errors of the expression, if it cannot be walked.
pub(crate) fn calls_bounded(expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expression.exists(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        Ok(call.is_some_and(|call| call.fun().inner().is::<Bounded>()))
    })
}

/// Returns the `known` aggregates that may make one large value from many, with this limit for
/// their value. Also returns corrected versions of the aggregates that lose partial states.
pub fn bounded_aggregates<'a>(
    known: impl IntoIterator<Item = &'a Arc<AggregateUDF>>,
    limit: Limit,
) -> Vec<Arc<AggregateUDF>> {
    let mut functions: Vec<_> = known
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
