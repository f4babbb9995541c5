//! DataFusion 55 estimates how many rows pass a filter with interval arithmetic. For that, it
//! compares each part of the condition with all parts before it, and it does so again each time
//! that a rule replaces an operator around the filter. A chain of a hundred CTEs can make a
//! condition of ten thousand parts, for which this takes half a minute. DataFusion estimates
//! nothing if the condition contains an operator that interval arithmetic does not know, such as
//! IS TRUE. A filter passes the same rows with `c` and with `c IS TRUE`.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, lit};
use datafusion::physical_expr::intervals::utils::is_operator_supported;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner as _};
use volary_exec::checked_arithmetic::check_plan;

/// Maximum number of parts of a condition for which the number of passing rows is estimated.
const MAX_ESTIMATED_PARTS: usize = 256;

/// Number of parts of a comparison of a column with a value.
const COMPARISON_PARTS: usize = 3;

/// Makes DataFusion's physical plans, without estimates for filters with large conditions, and with
/// operators of integers that do not wrap around.
#[derive(Debug)]
pub struct LargeFilterPlanner;

#[async_trait]
impl QueryPlanner for LargeFilterPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        state: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = check_plan(without_large_estimates(plan)?)?;
        DefaultPhysicalPlanner::default()
            .create_physical_plan(&plan, state)
            .await
    }
}

fn without_large_estimates(plan: &LogicalPlan) -> Result<Cow<'_, LogicalPlan>> {
    let mut has_large = false;
    plan.apply_with_subqueries(|node| {
        has_large |= matches!(node, LogicalPlan::Filter(filter) if is_large(&filter.predicate));
        Ok(if has_large {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    if !has_large {
        return Ok(Cow::Borrowed(plan));
    }
    let plan = plan
        .clone()
        .transform_down_with_subqueries(|node| match node {
            LogicalPlan::Filter(filter) if is_large(&filter.predicate) => {
                let predicate = without_estimate(filter.predicate);
                let filter = Filter::try_new(predicate, filter.input)?;
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            node => Ok(Transformed::no(node)),
        })?;
    Ok(Cow::Owned(plan.data))
}

/// Puts IS TRUE after the largest of the conditions that AND connects. A comparison of a column
/// with a value stays as it is, because shards and row groups are pruned by it.
fn without_estimate(predicate: Expr) -> Expr {
    let conditions = split_conjunction_owned(predicate);
    let sizes = conditions.iter().map(part_count);
    let largest = sizes.enumerate().max_by_key(|(_, size)| *size);
    let largest = largest.and_then(|(at, size)| (size > COMPARISON_PARTS).then_some(at));
    let conditions = conditions.into_iter().enumerate().map(|(at, condition)| {
        if Some(at) == largest {
            Expr::IsTrue(Box::new(condition))
        } else {
            condition
        }
    });
    conjunction(conditions).unwrap_or_else(|| lit(true))
}

/// Returns whether DataFusion would estimate a filter with this condition, and would take long.
fn is_large(predicate: &Expr) -> bool {
    part_count(predicate) > MAX_ESTIMATED_PARTS && !has_part_without_estimate(predicate)
}

/// Returns whether a condition has a part that interval arithmetic does not know, such as an IN
/// with a list. DataFusion then estimates nothing by itself.
fn has_part_without_estimate(predicate: &Expr) -> bool {
    let found = predicate.exists(|part| {
        Ok(match part {
            Expr::BinaryExpr(binary) => !is_operator_supported(&binary.op),
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::Cast(_)
            | Expr::Negative(_)
            | Expr::Alias(_) => false,
            _ => true,
        })
    });
    found.unwrap_or(true)
}

/// Returns the number of operators, columns and values of an expression.
fn part_count(expression: &Expr) -> usize {
    let mut count = 0;
    let counted = expression.apply(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(0, |_| count)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::common::config::ConfigOptions;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::logical_expr::col;
    use datafusion::physical_expr::intervals::utils::check_support;
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::filter_operators::FilterOperators;

    /// Returns a query with a condition of this many operators, which is NULL for one row.
    fn query(operators: usize) -> String {
        let sums = "+ 1 ".repeat(operators);
        format!(
            "SELECT k FROM (VALUES (-1), (1), (NULL), (5)) t(k) \
             WHERE k {sums} > {operators} AND k < 5 ORDER BY k"
        )
    }

    async fn estimates(context: &SessionContext, sql: &str) -> bool {
        let frame = context.sql(sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let mut is_estimated = None;
        let plan = FilterOperators
            .optimize(plan, &ConfigOptions::default())
            .unwrap();
        plan.apply(|node| {
            if let Some(filter) = node.downcast_ref::<FilterExec>() {
                let schema = filter.input().schema();
                is_estimated = Some(check_support(filter.predicate(), &schema));
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        is_estimated.expect("the plan has a filter")
    }

    /// Returns a condition that a column is one of 500 values.
    fn long_list() -> Expr {
        col("k").in_list((0..500).map(lit).collect(), false)
    }

    #[tokio::test]
    async fn only_small_conditions_are_estimated_and_all_pass_the_same_rows() {
        let state = SessionStateBuilder::new().with_default_features();
        let ours = state.with_query_planner(Arc::new(LargeFilterPlanner));
        let ours = SessionContext::new_with_state(ours.build());
        let plain = SessionContext::new();
        let large = query(200);
        assert!(estimates(&plain, &large).await);
        assert!(!estimates(&ours, &large).await);
        assert!(estimates(&ours, &query(20)).await);
        let list = long_list();
        assert!(part_count(&list) > MAX_ESTIMATED_PARTS && !is_large(&list));
        for context in [&plain, &ours] {
            let rows = context.sql(&large).await.unwrap().collect().await.unwrap();
            let rows = pretty_format_batches(&rows).unwrap().to_string();
            assert_eq!(rows, "+---+\n| k |\n+---+\n| 1 |\n+---+");
        }
    }
}
