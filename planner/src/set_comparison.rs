//! DataFusion 55 rewrites comparisons with ALL and ANY to EXISTS. It confuses columns of the same
//! name inside and outside the subquery, and it makes EXISTS in places where it cannot plan EXISTS.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, Spans};
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, binary_expr, lit, when,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use volary_exec::rewrite::rewrite_expressions;
use volary_flight_proto::Error;

/// Rewrites comparisons with ALL and ANY. It must run before DataFusion's rule for them.
///
/// - `= ANY` and `<> ALL` become IN and NOT IN.
/// - Other comparisons with a subquery that reads no outer column become comparisons with its
///   minimum and maximum.
/// - DataFusion rewrites the others. Before that, the column of the subquery gets a new name.
#[derive(Debug)]
pub(crate) struct SetComparisons;

impl OptimizerRule for SetComparisons {
    fn name(&self) -> &'static str {
        "set_comparisons"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            if !has_set_comparison(&node)? {
                return Ok(Transformed::no(node));
            }
            let is_filter = matches!(node, LogicalPlan::Filter(_));
            rewrite_expressions(node, |part, _| match part {
                Expr::SetComparison(comparison) => {
                    rewrite(comparison, is_filter, config).map(Transformed::yes)
                }
                other => Ok(Transformed::no(other)),
            })
        })
    }
}

fn has_set_comparison(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found |= expression.exists(|part| Ok(matches!(part, Expr::SetComparison(_))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Rewrites a comparison. `is_filter` says whether it stands in a condition on rows, where
/// DataFusion can plan EXISTS.
fn rewrite(
    comparison: SetComparison,
    is_filter: bool,
    config: &dyn OptimizerConfig,
) -> Result<Expr> {
    let is_all = matches!(comparison.quantifier, SetQuantifier::All);
    let is_in = matches!(
        (comparison.op, is_all),
        (Operator::Eq, false) | (Operator::NotEq, true)
    );
    if is_in {
        return Ok(Expr::InSubquery(InSubquery::new(
            comparison.expr,
            comparison.subquery,
            is_all,
        )));
    }
    let subquery_type = comparison.subquery.subquery.schema().field(0).data_type();
    let has_extremes = !subquery_type.is_nested() && *subquery_type != DataType::Null;
    if comparison.subquery.outer_ref_columns.is_empty()
        && has_extremes
        && let Some(compared) = with_extremes(&comparison)?
    {
        return Ok(compared);
    }
    if !is_filter {
        return Err(Error::unsupported(
            "this comparison with ALL or ANY (SELECT …) is not supported outside WHERE and HAVING; write it there, or join the subquery",
        )
        .into());
    }
    let SetComparison { subquery, .. } = comparison;
    let value = Column::from(subquery.subquery.schema().qualified_field(0));
    let name = config.alias_generator().next("__quantified");
    let renamed = LogicalPlanBuilder::from(subquery.subquery)
        .project([Expr::Column(value).alias(name)])?
        .build()?;
    Ok(Expr::SetComparison(SetComparison {
        subquery: Subquery {
            subquery: Arc::new(renamed),
            outer_ref_columns: subquery.outer_ref_columns,
            spans: subquery.spans,
        },
        ..comparison
    }))
}

/// Rewrites a comparison as comparisons with the minimum and the maximum of the subquery. Returns
/// `None` for an operator that does not depend on these.
///
/// With ALL, the comparison is true if the subquery has no rows. It is false if it is false for any
/// row. Otherwise it is NULL if a value is NULL on either side, and true if none is. ANY is its
/// mirror image.
fn with_extremes(comparison: &SetComparison) -> Result<Option<Expr>> {
    let rows = &comparison.subquery.subquery;
    let value = Expr::Column(Column::from(rows.schema().qualified_field(0)));
    let of_rows = |aggregate: Expr| scalar(rows, aggregate);
    let least = || of_rows(min(value.clone()));
    let greatest = || of_rows(max(value.clone()));
    let x = || comparison.expr.as_ref().clone();
    let compare = |op: Operator, y: Expr| binary_expr(x(), op, y);
    let is_all = matches!(comparison.quantifier, SetQuantifier::All);
    // This is true if a single row decides the result: false for ALL, true for ANY.
    let decides = match (comparison.op, is_all) {
        (op @ (Operator::Gt | Operator::GtEq), true) => !compare(op, greatest()?),
        (op @ (Operator::Lt | Operator::LtEq), true) => !compare(op, least()?),
        (op @ (Operator::Gt | Operator::GtEq), false) => compare(op, least()?),
        (op @ (Operator::Lt | Operator::LtEq), false) => compare(op, greatest()?),
        (Operator::Eq, true) | (Operator::NotEq, false) => {
            let differs = |y| compare(Operator::NotEq, y);
            differs(least()?).or(differs(greatest()?))
        }
        _ => return Ok(None),
    };
    let all_rows = || of_rows(count(lit(1_i64)));
    let has_no_nulls = all_rows()?.eq(of_rows(count(value.clone()))?);
    let compared = when(all_rows()?.eq(lit(0_i64)), lit(is_all))
        .when(decides, lit(!is_all))
        .when(has_no_nulls.and(x().is_not_null()), lit(is_all))
        .otherwise(lit(ScalarValue::Boolean(None)))?;
    Ok(Some(compared))
}

fn scalar(rows: &Arc<LogicalPlan>, aggregate: Expr) -> Result<Expr> {
    let value = LogicalPlanBuilder::from(Arc::clone(rows))
        .aggregate(Vec::<Expr>::new(), [aggregate])?
        .build()?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(value),
        outer_ref_columns: Vec::new(),
        spans: Spans::new(),
    }))
}
