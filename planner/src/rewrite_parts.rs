use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use volary_exec::rewrite::{has_part, rewrite_expressions};

/// Rewrites the expressions of a plan and of its subqueries, part by part: see
/// [`rewrite_expressions`]. A node is left alone if `may_change` is true for no part of its
/// expressions.
///
/// # Errors
/// The errors of `rewrite`.
pub(crate) fn rewrite_parts(
    plan: LogicalPlan,
    may_change: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        if has_part(&node, &may_change)? {
            rewrite_expressions(node, &rewrite)
        } else {
            Ok(Transformed::no(node))
        }
    })?;
    Ok(plan.data)
}
