use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Rewrites all expressions of a node, and the parts of each expression from the inside out.
/// `rewrite` is given each part together with the columns that the part can refer to. The output
/// columns of the node keep their names.
///
/// # Errors
/// The errors of `rewrite`.
pub fn rewrite_expressions(
    node: LogicalPlan,
    mut rewrite: impl FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        let columns = scan.source.schema();
        let of_table = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &columns)?;
        schema.merge(&of_table);
    }
    let names = NamePreserver::new(&node);
    node.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = expression.transform_up(|part| rewrite(part, &schema))?;
        Ok(rewritten.update_data(|expression| name.restore(expression)))
    })
}

/// Returns whether `is_match` is true for any part of the expressions of a node. Subqueries are not
/// searched.
///
/// # Errors
/// Fails if the expressions cannot be traversed.
pub fn has_part(node: &LogicalPlan, is_match: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found |= expression.exists(|part| Ok(is_match(part)))?;
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    Ok(found)
}
