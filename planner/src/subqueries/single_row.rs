use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortExpr};
use datafusion::logical_expr::{
    AggregateUDF, Expr, FetchType, Limit, LogicalPlan, LogicalPlanBuilder, SkipType, Subquery,
};
use volary_exec::rewrite::{has_part, rewrite_expressions};
use volary_exec::single_row::single_row;

/// Rewrites correlated subqueries that are used as values, because DataFusion takes only aggregates
/// there:
///
/// - `(SELECT v … ORDER BY w LIMIT 1)` to `(SELECT first_value(v ORDER BY w) …)`.
/// - `(SELECT v …)` to `single_row((SELECT array_agg(v) …))`, which fails for several rows.
///
/// # Errors
/// Fails if a plan cannot be traversed.
pub fn rewrite_scalar_subqueries(
    plan: LogicalPlan,
    functions: &dyn FunctionRegistry,
) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        if !has_part(&node, is_correlated_scalar)? {
            return Ok(Transformed::no(node));
        }
        rewrite_expressions(node, |part, _| match part {
            Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => {
                rewrite(subquery, functions)
            }
            other => Ok(Transformed::no(other)),
        })
    })?;
    Ok(plan.data)
}

fn is_correlated_scalar(part: &Expr) -> bool {
    matches!(part, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty())
}

fn rewrite(subquery: Subquery, functions: &dyn FunctionRegistry) -> Result<Transformed<Expr>> {
    let rows = &subquery.subquery;
    if rows.schema().fields().len() != 1 || is_aggregate(rows) {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let first = first_row(rows)?;
    Ok(match first {
        Some(first) => {
            let function = functions.udaf("first_value")?;
            let call = call(function, first.value, first.order);
            Transformed::yes(aggregate(&subquery, first.input, call)?)
        }
        None if rows.max_rows().is_some_and(|most| most <= 1) => {
            Transformed::no(Expr::ScalarSubquery(subquery))
        }
        None => {
            let value = Expr::Column(Column::from(rows.schema().qualified_field(0)));
            let call = call(functions.udaf("array_agg")?, value, Vec::new());
            let values = aggregate(&subquery, rows, call)?;
            Transformed::yes(single_row().call(vec![values]))
        }
    })
}

fn call(function: Arc<AggregateUDF>, value: Expr, order: Vec<SortExpr>) -> Expr {
    let call = AggregateFunction::new_udf(function, vec![value], false, None, order, None);
    Expr::AggregateFunction(call)
}

/// Returns the subquery with an aggregate of the rows of `input` in place of its own rows.
fn aggregate(subquery: &Subquery, input: &Arc<LogicalPlan>, call: Expr) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(Arc::clone(input))
        .aggregate(Vec::<Expr>::new(), [call])?
        .build()?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns: subquery.outer_ref_columns.clone(),
        spans: subquery.spans.clone(),
    }))
}

/// Returns whether the rows are those of an aggregate, or what is left of them.
fn is_aggregate(rows: &LogicalPlan) -> bool {
    match rows {
        LogicalPlan::Aggregate(_) => true,
        LogicalPlan::Projection(node) => is_aggregate(&node.input),
        LogicalPlan::Filter(node) => is_aggregate(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_aggregate(&node.input),
        LogicalPlan::Sort(node) => is_aggregate(&node.input),
        LogicalPlan::Limit(node) => is_aggregate(&node.input),
        _ => false,
    }
}

/// The first row of a query with ORDER BY and LIMIT 1.
struct FirstRow<'a> {
    input: &'a Arc<LogicalPlan>,
    value: Expr,
    order: Vec<SortExpr>,
}

fn first_row(rows: &LogicalPlan) -> Result<Option<FirstRow<'_>>> {
    let LogicalPlan::Limit(limit) = rows else {
        return Ok(None);
    };
    if !takes_one_row(limit)? {
        return Ok(None);
    }
    let column = |plan: &LogicalPlan| Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let sorted = |node: &LogicalPlan| match node {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => Some(sort.expr.clone()),
        _ => None,
    };
    Ok(Some(match limit.input.as_ref() {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => FirstRow {
            input: &sort.input,
            value: column(&sort.input),
            order: sort.expr.clone(),
        },
        // The planner adds the columns of an ORDER BY that the SELECT list does not have, and
        // removes them above the sort.
        LogicalPlan::Projection(projection)
            if let Some(order) = sorted(&projection.input)
                && let LogicalPlan::Sort(sort) = projection.input.as_ref()
                && let [value] = projection.expr.as_slice() =>
        {
            FirstRow {
                input: &sort.input,
                value: value.clone().unalias(),
                order,
            }
        }
        _ => FirstRow {
            input: &limit.input,
            value: column(&limit.input),
            order: Vec::new(),
        },
    }))
}

fn takes_one_row(limit: &Limit) -> Result<bool> {
    Ok(matches!(limit.get_skip_type()?, SkipType::Literal(0))
        && matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1))))
}
