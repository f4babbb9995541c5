use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite_parts::rewrite_parts;

/// Aggregates whose value depends on the order of their rows. Those with WITHIN GROUP also do.
const ORDERED: [&str; 5] = [
    "array_agg",
    "first_value",
    "last_value",
    "nth_value",
    "string_agg",
];

/// Removes the ORDER BY within aggregates that do not depend on it, such as `avg(x ORDER BY y)`.
/// DataFusion 55 gives them the values of `y` as further arguments, at which `avg` panics.
#[derive(Debug)]
pub struct UnorderedAggregates;

impl AnalyzerRule for UnorderedAggregates {
    fn name(&self) -> &'static str {
        "unordered_aggregates"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite_parts(plan, has_useless_order, |mut part, _| {
            if !has_useless_order(&part) {
                return Ok(Transformed::no(part));
            }
            if let Expr::AggregateFunction(aggregate) = &mut part {
                aggregate.params.order_by.clear();
            }
            Ok(Transformed::yes(part))
        })
    }
}

fn has_useless_order(expression: &Expr) -> bool {
    let Expr::AggregateFunction(aggregate) = expression else {
        return false;
    };
    let function = &aggregate.func;
    !aggregate.params.order_by.is_empty()
        && !ORDERED.contains(&function.name())
        && !function.supports_within_group_clause()
}
