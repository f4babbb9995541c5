use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;

use crate::sql::names::SYSTEM;

/// Returns whether a query only filters, sorts and counts the rows of one table of the schema
/// `system`. Such a query ends soon.
pub(super) fn is_listing(plan: &LogicalPlan) -> bool {
    let mut tables = 0;
    let mut is_simple = true;
    let walked = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) if scan.table_name.schema() == Some(SYSTEM) => tables += 1,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::SubqueryAlias(_) => {}
            _ => is_simple = false,
        }
        Ok(if is_simple {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    });
    walked.is_ok() && is_simple && tables == 1
}
