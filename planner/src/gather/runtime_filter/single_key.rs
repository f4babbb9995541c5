//! A filter on several keys goes down a plan as a whole, and stops where one of the keys is
//! computed. It cannot go below an aggregate that computes a key, such as a minimum. It cannot go
//! to one of two tables if the keys come from both. The conditions on one of the keys are also a
//! filter, and may go further.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, UnKnownColumn};

use super::Expr;

/// Returns the filter once for each of its keys, with the other keys marked as unknown.
///
/// # Errors
/// No error is known for filters that joins make.
pub(crate) fn split_by_key(filter: &Arc<DynamicFilterPhysicalExpr>) -> Result<Vec<Expr>> {
    let keys: Vec<_> = filter.children().into_iter().cloned().collect();
    let unknown = |key: &Expr| Arc::new(UnKnownColumn::new(&key.to_string())) as Expr;
    (0..keys.len())
        .map(|known| {
            let keys = keys.iter().enumerate();
            let keys = keys.map(|(at, key)| match at == known {
                true => Arc::clone(key),
                false => unknown(key),
            });
            (Arc::clone(filter) as Expr).with_new_children(keys.collect())
        })
        .collect()
}

/// Returns the keys that a filter restricts at its place in the plan.
pub(crate) fn resolved_keys(filter: &Expr) -> impl Iterator<Item = &Expr> {
    filter.children().into_iter().filter(|key| is_resolved(key))
}

/// Returns whether all columns of an expression are known at its place.
pub(super) fn is_resolved(expression: &Expr) -> bool {
    let unknown = expression.exists(|part| Ok(part.is::<UnKnownColumn>()));
    !unknown.unwrap_or(true)
}
