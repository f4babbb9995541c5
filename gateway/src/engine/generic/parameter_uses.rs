//! From a comparison with a value, the planner learns more than which rows pass: the bounds of
//! columns, which columns hold only one value, or that no row passes. With this it removes sorts,
//! keys and limits from a plan. In a generic plan, everything that the planner learns must be right
//! for all values. So a generic plan has parameters in one kind of place only: a column equals a
//! parameter. Whatever the value is, the column then holds only one value.

use std::collections::HashSet;

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};

use crate::engine::parameters::parameter_index;

/// Counts how often each parameter occurs in the filters of an optimized plan. `parameters` is the
/// number of parameters. Returns `None` if a parameter stands where its value decides more than
/// which rows pass.
///
/// # Errors
/// No error is known to occur: the walk itself returns none.
pub(super) fn count_uses(plan: &LogicalPlan, parameters: usize) -> Result<Option<Vec<usize>>> {
    let mut uses = vec![0; parameters];
    let mut is_suitable = true;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Filter(filter) => {
                is_suitable &= has_only_column_equalities(&filter.predicate);
                count_parameters(&filter.predicate, &mut uses)?;
            }
            // The same filters stand above the scan.
            LogicalPlan::TableScan(_) => {}
            // With some values, a column may hold the same value in all branches. With other values
            // it may not.
            LogicalPlan::Union(_) => is_suitable &= parameters == 0,
            _ => {
                node.apply_expressions(|expression| {
                    is_suitable &= !has_parameter(expression);
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_suitable.then_some(uses))
}

/// Returns whether each parameter of the conjunction is compared for equality with a column that no
/// other part of the conjunction mentions.
fn has_only_column_equalities(predicate: &Expr) -> bool {
    let (with_parameter, without): (Vec<_>, Vec<_>) = split_conjunction(predicate)
        .into_iter()
        .partition(|conjunct| has_parameter(conjunct));
    let mut columns = HashSet::new();
    let are_equalities = with_parameter.into_iter().all(|conjunct| {
        let column = compared_column(conjunct);
        column.is_some_and(|column| columns.insert(column))
    });
    are_equalities
        && without.into_iter().all(|conjunct| {
            let mentioned = conjunct.column_refs();
            mentioned.is_disjoint(&columns)
        })
}

fn compared_column(conjunct: &Expr) -> Option<&Column> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = conjunct
    else {
        return None;
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), Expr::Placeholder(_))
        | (Expr::Placeholder(_), Expr::Column(column)) => Some(column),
        _ => None,
    }
}

fn has_parameter(expression: &Expr) -> bool {
    expression
        .exists(|node| Ok(matches!(node, Expr::Placeholder(_))))
        .unwrap_or(true)
}

fn count_parameters(expression: &Expr, uses: &mut [usize]) -> Result<()> {
    expression.apply(|node| {
        if let Expr::Placeholder(parameter) = node
            && let Some(uses) = parameter_index(parameter).and_then(|number| uses.get_mut(number))
        {
            *uses += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{LogicalPlanBuilder, cast, col, lit, placeholder, table_scan};

    use super::*;

    fn rows() -> LogicalPlanBuilder {
        let fields = ["k", "v", "w"].map(|name| Field::new(name, DataType::Int64, true));
        table_scan(Some("t"), &Schema::new(fields.to_vec()), None).unwrap()
    }

    fn uses_in_filter(predicate: Expr) -> Option<Vec<usize>> {
        let plan = rows().filter(predicate).unwrap().build().unwrap();
        count_uses(&plan, 2).unwrap()
    }

    #[test]
    fn a_column_equals_a_parameter() {
        let (first, second) = (placeholder("$1"), placeholder("$2"));
        let one = col("k").eq(first.clone()).and(col("v").gt(lit(1_i64)));
        assert_eq!(uses_in_filter(one), Some(vec![1, 0]));
        let two = first.clone().eq(col("k")).and(col("v").eq(second));
        assert_eq!(uses_in_filter(two), Some(vec![1, 1]));
        let same = col("k").eq(first.clone()).and(col("v").eq(first));
        assert_eq!(uses_in_filter(same), Some(vec![2, 0]));
        assert_eq!(uses_in_filter(col("k").is_null()), Some(vec![0, 0]));
    }

    #[test]
    fn where_more_may_be_learned_of_a_value_there_is_no_generic_plan() {
        let (first, second) = (|| placeholder("$1"), || placeholder("$2"));
        for predicate in [
            col("k").gt(first()),
            col("k").between(first(), second()),
            col("k").in_list(vec![first(), second()], false),
            col("k").eq(first()).or(col("v").eq(second())),
            col("k").eq(first()).and(col("k").eq(second())),
            col("k")
                .eq(first())
                .and((col("k") + col("v")).gt(lit(1_i64))),
            col("k").eq(first()).and(col("k").gt(lit(1_i64))),
            col("k").eq(first() + lit(1_i64)),
            cast(col("k"), DataType::Float64).eq(first()),
            first().eq(lit(1_i64)),
            first().eq(second()),
            col("k").like(first()),
        ] {
            assert_eq!(uses_in_filter(predicate.clone()), None, "{predicate}");
        }
    }

    #[test]
    fn a_parameter_outside_of_filters_is_part_of_the_plan() {
        let selected = rows().project(vec![col("k"), placeholder("$1")]).unwrap();
        assert_eq!(count_uses(&selected.build().unwrap(), 1).unwrap(), None);
        let limited = rows().limit_by_expr(None, Some(placeholder("$1"))).unwrap();
        assert_eq!(count_uses(&limited.build().unwrap(), 1).unwrap(), None);
        let branch = || rows().filter(col("k").eq(placeholder("$1"))).unwrap();
        let both = branch().union(branch().build().unwrap()).unwrap();
        assert_eq!(count_uses(&both.build().unwrap(), 1).unwrap(), None);
    }
}
