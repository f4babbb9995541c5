//! The literal of an INSERT that does not fit its column. DataFusion computes literals while it plans, and then names the value alone.

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, LogicalPlan, Values};
use datafusion::scalar::ScalarValue;
use volary_flight_proto::Error;

use crate::sql_type::sql_type_name;

/// What is wrong with the first such literal of the rows to insert; `None` if it is something else that is wrong.
pub(super) fn unfit_value(rows: &LogicalPlan, table: &str) -> Option<Error> {
    for (index, column) in rows.schema().fields().iter().enumerate() {
        let wanted = column.data_type();
        let Some((values, position)) = origin(rows, index, wanted) else {
            continue;
        };
        let unfit = values.values.iter().find_map(|row| {
            let value = literal(row.get(position)?, wanted)?;
            value.cast_to(wanted).err().map(|_| value)
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
                sql_type_name(wanted)
            )));
        }
    }
    None
}

/// The VALUES that a column of the plan comes from, and its position there.
fn origin<'a>(
    plan: &'a LogicalPlan,
    index: usize,
    wanted: &DataType,
) -> Option<(&'a Values, usize)> {
    match plan {
        LogicalPlan::Values(values) => Some((values, index)),
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index, wanted),
        LogicalPlan::Projection(projection) => {
            let Expr::Column(column) = bare(projection.expr.get(index)?, wanted) else {
                return None;
            };
            let input = projection.input.schema().index_of_column(column).ok()?;
            origin(&projection.input, input, wanted)
        }
        _ => None,
    }
}

fn literal<'a>(expression: &'a Expr, wanted: &DataType) -> Option<&'a ScalarValue> {
    match bare(expression, wanted) {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// The expression without the aliases and the casts to its column's type around it. Casts to other types are the statement's own.
fn bare<'a>(expression: &'a Expr, wanted: &DataType) -> &'a Expr {
    match expression {
        Expr::Alias(alias) => bare(&alias.expr, wanted),
        Expr::Cast(cast) if cast.field.data_type() == wanted => bare(&cast.expr, wanted),
        other => other,
    }
}
