//! Functions that make large values of small ones, with a limit.
//!
//! DataFusion's memory pool knows what operators hold, and not what functions allocate: `repeat('x', 2000000000)` takes two
//! gigabytes whatever the pool says, and a node that has them no more ends. So the size of what such a function would make is
//! computed from its arguments first ([`growth`]), and the function is not called if that is too much ([`bounded`]).
//!
//! The same is done for functions that compute for long ([`steps`]).
//!
//! Aggregates that collect all values of their rows fail when they have too much ([`aggregate`]).
//!
//! Functions whose values are no larger than all their arguments together, or a few times that, are left as they are.

mod aggregate;
mod argument;
pub mod at_once;
mod bounded;
mod folding;
mod growth;
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

/// The values of the rows of a batch may take so many times the limit of one together, where there cannot be
/// fewer rows.
pub(crate) const VALUES_AT_ONCE: usize = 4;

/// How large a value may be, for those who have the settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct ValueLimit(pub Limit);

impl ValueLimit {
    /// The settings with the limit.
    pub fn set(self, settings: SessionConfig) -> SessionConfig {
        settings.with_extension(Arc::new(self))
    }

    /// The limit of the settings; `None` where there is none.
    pub fn of(settings: &SessionConfig) -> Option<Limit> {
        settings.get_extension::<Self>().map(|limit| limit.0)
    }
}

/// The functions among these that make large values of small ones, with this limit for each value; and the operators that do so
/// or that search for long (`||`, `~`, `LIKE`) as functions.
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
    // A function is known by each of its aliases.
    functions.sort_by(|left, right| left.name().cmp(right.name()));
    functions.dedup_by(|left, right| left.name() == right.name());
    functions
}

/// Returns whether the expression calls a function that may ask for fewer rows at once.
///
/// # Errors
/// Those of the expression, if it cannot be walked.
pub fn calls_bounded(expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expression.exists(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        Ok(call.is_some_and(|call| call.fun().inner().is::<Bounded>()))
    })
}

/// The aggregates among these that make one value of many, with this limit for it.
pub fn bounded_aggregates<'a>(
    known: impl IntoIterator<Item = &'a Arc<AggregateUDF>>,
    limit: Limit,
) -> Vec<Arc<AggregateUDF>> {
    let bounded = known
        .into_iter()
        .filter_map(|function| BoundedAggregate::of(Arc::clone(function), limit));
    bounded
        .map(|function| Arc::new(AggregateUDF::from(function)))
        .collect()
}

#[cfg(test)]
mod tests;
