//! The expressions are analyzed by the same rules as statements, so that they mean the same.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, Projection, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{ExprWithAlias, visit_relations};
use volary_exec::checked_arithmetic::check_expression;
use volary_exec::text_casts::cast_expression;
use volary_flight_proto::{Error, Result};

use crate::sql::syntax::parse_expression;

/// Returns the expression with this text over rows with these columns.
///
/// # Errors
/// `INVALID_ARGUMENT` if the text is no expression, or if it has a subquery, an aggregate, a window
/// function or a parameter.
pub(crate) fn parse(state: &SessionState, schema: &Schema, text: &str) -> Result<Expr> {
    let refuse = |what: &str| {
        Err(Error::unsupported(format!(
            "{text} has {what}, but defaults and checks are computed from one row alone; leave it out"
        )))
    };
    let parsed = ExprWithAlias {
        expr: parse_expression(text)?,
        alias: None,
    };
    // The planner would look for the tables that a subquery reads, and find none.
    if visit_relations(&parsed.expr, |_| ControlFlow::Break(())).is_break() {
        return refuse("a subquery");
    }
    let columns = DFSchema::try_from(schema.clone())?;
    let expression = state.create_logical_expr_from_sql_expr(parsed, &columns)?;
    match unsupported_part(&expression) {
        Some(what) => refuse(what),
        None => Ok(expression),
    }
}

/// Casts an expression over rows with these columns.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is no such cast.
pub(crate) fn cast(expression: Expr, schema: &Schema, wanted: &DataType) -> Result<Expr> {
    let columns = DFSchema::try_from(schema.clone())?;
    Ok(cast_expression(expression, wanted, &columns)?)
}

fn unsupported_part(expression: &Expr) -> Option<&'static str> {
    let mut found = None;
    // The closure never fails.
    let _never_fails = expression.exists(|part| {
        found = match part {
            Expr::AggregateFunction(_) => Some("an aggregate"),
            Expr::WindowFunction(_) => Some("a window function"),
            Expr::Placeholder(_) => Some("a parameter"),
            Expr::Unnest(_) => Some("unnest"),
            Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..) => Some("a subquery"),
            _ => None,
        };
        Ok(found.is_some())
    });
    found
}

/// Returns whether the expression has the same value for the same row in each statement.
pub(crate) fn is_immutable(expression: &Expr) -> bool {
    let may_change = expression.exists(|part| {
        Ok(match part {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            Expr::ScalarVariable(..) => true,
            _ => false,
        })
    });
    // The closure never fails.
    !may_change.unwrap_or(true)
}

/// Plans expressions over rows with these columns.
///
/// # Errors
/// The errors of planning.
pub(crate) fn plan(
    state: &SessionState,
    schema: &Schema,
    expressions: Vec<Expr>,
) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let columns = DFSchema::try_from(schema.clone())?;
    let input = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(columns.clone()),
    });
    // The aliases make the names distinct.
    let named = expressions.into_iter().enumerate();
    let named = named.map(|(position, expression)| expression.alias(format!("#{position}")));
    let projection = Projection::try_new(named.collect(), Arc::new(input))?;
    let analyzed = state.analyzer().execute_and_check(
        LogicalPlan::Projection(projection),
        state.config_options(),
        |_, _| {},
    )?;
    let LogicalPlan::Projection(projection) = analyzed else {
        return Err(Error::internal(
            "the expressions of a table were planned as something else",
        ));
    };
    // Simplifying replaces functions such as now() by their values.
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(columns.clone()))
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let planned = projection.expr.into_iter().map(|expression| {
        let coerced = simplifier.coerce(expression.unalias(), &columns)?;
        let coerced = check_expression(coerced, &columns)?;
        state.create_physical_expr(simplifier.simplify(coerced)?, &columns)
    });
    Ok(planned.collect::<DfResult<_>>()?)
}

/// Returns the value of an expression that names no columns.
///
/// # Errors
/// The errors of planning and of the expression.
pub(crate) fn value_of(state: &SessionState, expression: Expr) -> Result<ScalarValue> {
    let planned = plan(state, &Schema::empty(), vec![expression])?;
    let row = rows_without_columns(1)?;
    let values = planned.iter().map(|planned| {
        let value = planned.evaluate(&row)?.into_array(1)?;
        ScalarValue::try_from_array(&value, 0)
    });
    let mut values = values.collect::<DfResult<Vec<_>>>()?;
    values
        .pop()
        .ok_or_else(|| Error::internal("an expression has no value"))
}

/// Returns this many rows without columns, over which expressions without columns are computed.
pub(super) fn rows_without_columns(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
    Ok(batch.map_err(DataFusionError::from)?)
}
