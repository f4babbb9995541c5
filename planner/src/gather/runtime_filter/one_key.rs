//! What a join's filter says of one of its keys alone.
//!
//! A filter on several keys goes down a plan as one, and stops where one of them is computed: below the minimum that a join
//! compares, or where two keys come from two tables. What it says of each of its keys is a filter as well, and may go further.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, UnKnownColumn};

use super::Expr;

/// The filter once for each of its keys, with the other keys unknown.
///
/// # Errors
/// Never, for filters that joins make.
pub fn of_each_key(filter: &Arc<DynamicFilterPhysicalExpr>) -> Result<Vec<Expr>> {
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

/// The keys of which a filter says something where it is.
pub fn known_keys(filter: &Expr) -> impl Iterator<Item = &Expr> {
    filter.children().into_iter().filter(|key| is_known(key))
}

/// Whether all of an expression's columns are there.
pub(super) fn is_known(expression: &Expr) -> bool {
    let unknown = expression.exists(|part| Ok(part.is::<UnKnownColumn>()));
    !unknown.unwrap_or(true)
}
