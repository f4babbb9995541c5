//! The value of `x NOT IN (SELECT y …)` is NULL, not true, if `x` or any `y` is NULL and no `y`
//! equals `x`. DataFusion 55 respects this by itself for a column and a subquery. But it returns
//! true instead of NULL if the subquery reads columns of the outer query, if `x` is a constant, or
//! within OR (apache/datafusion#25336). In these cases the rule rewrites the condition to its
//! meaning: there is no row for which `x = y` is true or unknown.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Spans};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator, Subquery, lit,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use volary_flight_proto::Error;

/// Rewrites NOT IN. It must run before the rule that turns such subqueries into joins.
#[derive(Debug)]
pub(crate) struct NotInWithNulls;

impl OptimizerRule for NotInWithNulls {
    fn name(&self) -> &'static str {
        "not_in_of_nulls"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else {
            return Ok(Transformed::no(plan));
        };
        if !has_in_subquery(&filter.predicate)? {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let schema = filter.input.schema();
        let mut changed = false;
        let mut conditions = Vec::new();
        for condition in split_conjunction_owned(filter.predicate) {
            if is_handled_by_datafusion(&condition) {
                conditions.push(condition);
            } else {
                let condition = rewrite(condition, NullMeaning::False, schema)?;
                changed |= condition.transformed;
                conditions.push(condition.data);
            }
        }
        let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
        let filter = LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?);
        Ok(Transformed::new_transformed(filter, changed))
    }
}

/// The truth value that a NULL result of an expression counts as, depending on where the expression
/// is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NullMeaning {
    True,
    False,
}

impl NullMeaning {
    fn negated(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
        }
    }
}

/// Returns whether DataFusion handles the condition correctly. It does for a column that is NOT IN
/// a subquery, if the subquery reads no columns of the outer query.
fn is_handled_by_datafusion(condition: &Expr) -> bool {
    let in_subquery = match condition {
        Expr::InSubquery(in_subquery) if in_subquery.negated => in_subquery,
        Expr::Not(not) => match not.as_ref() {
            Expr::InSubquery(in_subquery) if !in_subquery.negated => in_subquery,
            _ => return false,
        },
        _ => return false,
    };
    in_subquery.subquery.outer_ref_columns.is_empty() && in_subquery.expr.any_column_refs()
}

fn has_in_subquery(expression: &Expr) -> Result<bool> {
    expression.exists(|part| Ok(matches!(part, Expr::InSubquery(_))))
}

fn rewrite(expression: Expr, null: NullMeaning, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let boxed =
        |inner: Expr, null| rewrite(inner, null, schema).map(|inner| inner.update_data(Box::new));
    match expression {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) => {
            let (left, right) = (boxed(*left, null)?, boxed(*right, null)?);
            let changed = left.transformed || right.transformed;
            let both = BinaryExpr::new(left.data, op, right.data);
            Ok(Transformed::new_transformed(
                Expr::BinaryExpr(both),
                changed,
            ))
        }
        Expr::Not(inner) => Ok(boxed(*inner, null.negated())?.update_data(Expr::Not)),
        Expr::IsTrue(inner) => Ok(boxed(*inner, NullMeaning::False)?.update_data(Expr::IsTrue)),
        Expr::IsNotTrue(inner) => {
            Ok(boxed(*inner, NullMeaning::False)?.update_data(Expr::IsNotTrue))
        }
        Expr::IsFalse(inner) => Ok(boxed(*inner, NullMeaning::True)?.update_data(Expr::IsFalse)),
        Expr::IsNotFalse(inner) => {
            Ok(boxed(*inner, NullMeaning::True)?.update_data(Expr::IsNotFalse))
        }
        // A result of NULL counts as false here for IN, and as true for NOT IN. A join has the same
        // result.
        Expr::InSubquery(in_subquery)
            if in_subquery.negated == (null == NullMeaning::True)
                || !may_be_null(&in_subquery, schema)? =>
        {
            Ok(Transformed::no(Expr::InSubquery(in_subquery)))
        }
        Expr::InSubquery(in_subquery) => {
            rewrite_as_exists(in_subquery, schema).map(Transformed::yes)
        }
        // Another rule has turned IN within other expressions into columns.
        other => Ok(Transformed::no(other)),
    }
}

fn may_be_null(in_subquery: &InSubquery, schema: &DFSchema) -> Result<bool> {
    let subquery_schema = in_subquery.subquery.subquery.schema();
    let nullable = subquery_schema
        .fields()
        .iter()
        .any(|field| field.is_nullable());
    Ok(nullable || in_subquery.expr.nullable(schema)?)
}

/// Rewrites the condition as `[NOT] EXISTS (SELECT … WHERE (x = y) IS NOT FALSE)`.
fn rewrite_as_exists(in_subquery: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let InSubquery {
        expr,
        subquery,
        negated,
    } = in_subquery;
    let mut outer_ref_columns = subquery.outer_ref_columns;
    let outer = expr.transform(|part| match part {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            let outer = Expr::OuterReferenceColumn(Arc::clone(field), column);
            outer_ref_columns.push(outer.clone());
            Ok(Transformed::yes(outer))
        }
        Expr::OuterReferenceColumn(_, column) => Err(Error::invalid(format!(
            "NOT IN (SELECT …) is not supported for {column}, a column of a query two levels further out; use NOT EXISTS"
        ))
        .into()),
        other => Ok(Transformed::no(other)),
    })?;
    let y = Column::from(subquery.subquery.schema().qualified_field(0));
    let unknown_or_equal = Expr::IsNotFalse(Box::new(outer.data.eq(Expr::Column(y))));
    let rows = Filter::try_new(unknown_or_equal, subquery.subquery)?;
    Ok(Expr::Exists(Exists {
        subquery: Subquery {
            subquery: Arc::new(LogicalPlan::Filter(rows)),
            outer_ref_columns,
            spans: Spans::new(),
        },
        negated,
    }))
}
