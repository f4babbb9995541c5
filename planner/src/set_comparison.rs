//! DataFusion 55 rewrites comparisons with ALL and ANY to EXISTS. It confuses columns of the same
//! name inside and outside the subquery, and it makes EXISTS in places where it cannot plan EXISTS.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DataFusionError, ExprSchema, Result, ScalarValue, Spans,
};
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
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
/// - In conditions on rows, DataFusion rewrites the others. Before that, the column of the subquery
///   gets a new name. In other places, they become CASE and EXISTS.
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
            rewrite_expressions(node, |part, schema| match part {
                Expr::SetComparison(comparison) => {
                    rewrite(comparison, is_filter, schema, config).map(Transformed::yes)
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
    schema: &DFSchema,
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
    let SetComparison { subquery, .. } = comparison;
    let value = Column::from(subquery.subquery.schema().qualified_field(0));
    let name = config.alias_generator().next("__quantified");
    let renamed = LogicalPlanBuilder::from(subquery.subquery)
        .project([Expr::Column(value).alias(&name)])?
        .build()?;
    let comparison = SetComparison {
        subquery: Subquery {
            subquery: Arc::new(renamed),
            outer_ref_columns: subquery.outer_ref_columns,
            spans: subquery.spans,
        },
        ..comparison
    };
    if is_filter {
        return Ok(Expr::SetComparison(comparison));
    }
    with_exists(&comparison, Column::new_unqualified(name), schema)
}

/// Rewrites a comparison as tests of whether there is a row that decides it, and whether there is
/// one for which it is NULL.
fn with_exists(comparison: &SetComparison, value: Column, schema: &DFSchema) -> Result<Expr> {
    let outer = comparison.expr.as_ref().clone().transform(|part| {
        Ok(match part {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Transformed::yes(Expr::OuterReferenceColumn(field, column))
            }
            Expr::OuterReferenceColumn(_, _)
            | Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_) => {
                return Err(Error::unsupported(
                    "this comparison with ALL or ANY (SELECT …) is not supported outside WHERE and HAVING, because another subquery is compared; join that subquery",
                )
                .into());
            }
            other => Transformed::no(other),
        })
    })?;
    let compared = binary_expr(outer.data, comparison.op, Expr::Column(value));
    let is_all = matches!(comparison.quantifier, SetQuantifier::All);
    let decides = if is_all {
        !compared.clone()
    } else {
        compared.clone()
    };
    let has_row = |condition: Expr| {
        let rows = LogicalPlanBuilder::from(Arc::clone(&comparison.subquery.subquery))
            .filter(condition)?
            .build()?;
        Ok::<_, DataFusionError>(Expr::Exists(Exists {
            subquery: Subquery {
                outer_ref_columns: rows.all_out_ref_exprs(),
                subquery: Arc::new(rows),
                spans: comparison.subquery.spans.clone(),
            },
            negated: false,
        }))
    };
    when(has_row(decides)?, lit(!is_all))
        .when(
            has_row(compared.is_null())?,
            lit(ScalarValue::Boolean(None)),
        )
        .otherwise(lit(is_all))
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
