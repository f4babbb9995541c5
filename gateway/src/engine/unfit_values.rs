//! The literal of an INSERT that does not fit its column. DataFusion computes literals while it plans, and then names the value alone.

use datafusion::logical_expr::{Expr, LogicalPlan, Values};
use datafusion::scalar::ScalarValue;
use volary_flight_proto::Error;

use crate::sql_type::sql_type_name;

/// What is wrong with the first such literal of the rows to insert; `None` if it is something else that is wrong.
pub(super) fn unfit_value(rows: &LogicalPlan, table: &str) -> Option<Error> {
    for (index, column) in rows.schema().fields().iter().enumerate() {
        let Some((values, position)) = origin(rows, index) else {
            continue;
        };
        let unfit = values.values.iter().find_map(|row| {
            let value = literal(row.get(position)?)?;
            value.cast_to(column.data_type()).err().map(|_| value)
        });
        if let Some(value) = unfit {
            let quote = if value.data_type().is_string() {
                "'"
            } else {
                ""
            };
            return Some(Error::invalid(format!(
                "table {table}, column {}: {quote}{value}{quote} does not fit {}",
                column.name(),
                sql_type_name(column.data_type())
            )));
        }
    }
    None
}

/// The VALUES that a column of the plan comes from, and its position there.
fn origin(plan: &LogicalPlan, index: usize) -> Option<(&Values, usize)> {
    match plan {
        LogicalPlan::Values(values) => Some((values, index)),
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index),
        LogicalPlan::Projection(projection) => {
            let Expr::Column(column) = bare(projection.expr.get(index)?) else {
                return None;
            };
            let input = projection.input.schema().index_of_column(column).ok()?;
            origin(&projection.input, input)
        }
        _ => None,
    }
}

fn literal(expression: &Expr) -> Option<&ScalarValue> {
    match bare(expression) {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// The expression without casts and aliases around it.
fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => bare(&alias.expr),
        Expr::Cast(cast) => bare(&cast.expr),
        other => other,
    }
}
