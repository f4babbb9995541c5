//! Functions that make large values of small ones, with a limit.
//!
//! DataFusion's memory pool knows what operators hold, and not what functions allocate: `repeat('x', 2000000000)` takes two
//! gigabytes whatever the pool says, and a node that has them no more ends. So the size of what such a function would make is
//! computed from its arguments first ([`growth`]), and the function is not called if that is too much ([`bounded`]).
//!
//! Functions whose values are no larger than all their arguments together, or a few times that, are left as they are.

mod argument;
mod bounded;
mod growth;
mod rule;
mod string_concat;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

use crate::memory::Limit;

use bounded::Bounded;
use string_concat::StringConcat;

pub use rule::BoundedFunctions;

/// The functions among these that make large values of small ones, with this limit for each value; and the operator `||` as a
/// function.
pub fn bounded<'a>(
    known: impl IntoIterator<Item = &'a Arc<ScalarUDF>>,
    limit: Limit,
) -> Vec<Arc<ScalarUDF>> {
    let operator = Arc::new(ScalarUDF::from(StringConcat::default()));
    let mut functions: Vec<_> = known
        .into_iter()
        .cloned()
        .chain([operator])
        .filter_map(|function| Bounded::of(function, limit))
        .map(|function| Arc::new(ScalarUDF::from(function)))
        .collect();
    // A function is known by each of its aliases.
    functions.sort_by(|left, right| left.name().cmp(right.name()));
    functions.dedup_by(|left, right| left.name() == right.name());
    functions
}

#[cfg(test)]
mod tests;
