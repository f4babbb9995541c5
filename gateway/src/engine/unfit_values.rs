//! DataFusion computes the literals of an INSERT while it plans, and its error names only the
//! value, not the column.

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, LogicalPlan, Values};
use datafusion::scalar::ScalarValue;
use volary_exec::text_casts::cast_value;
use volary_flight_proto::{Error, SqlState};

use crate::sql_type::sql_type_name;

/// Returns an error about the first literal of the rows that does not fit its column. Returns
/// `None` if all literals fit: the INSERT then failed for another reason.
pub(super) fn unfit_value_error(rows: &LogicalPlan, table: &str) -> Option<Error> {
    for (index, column) in rows.schema().fields().iter().enumerate() {
        let wanted = column.data_type();
        let Some((values, position)) = origin(rows, index, wanted) else {
            continue;
        };
        let unfit = values.values.iter().find_map(|row| {
            let literal = Literal::of(row.get(position)?, wanted)?;
            cast_value(&literal.value, wanted).err().map(|_| literal)
        });
        if let Some(literal) = unfit {
            let sqlstate = if literal.value.data_type().is_string() {
                SqlState::InvalidTextRepresentation
            } else {
                SqlState::NumericValueOutOfRange
            };
            let error = Error::invalid(format!(
                "table {table}, column {}: {} does not fit {}",
                column.name(),
                literal.written,
                sql_type_name(wanted)
            ));
            return Some(error.with_sqlstate(sqlstate));
        }
    }
    None
}

/// Returns the VALUES from which a column of the plan comes, and the position of the column in
/// them.
fn origin<'a>(
    plan: &'a LogicalPlan,
    index: usize,
    wanted: &DataType,
) -> Option<(&'a Values, usize)> {
    match plan {
        LogicalPlan::Values(values) => Some((values, index)),
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index, wanted),
        LogicalPlan::Projection(projection) => {
            let Expr::Column(column) = strip_casts(projection.expr.get(index)?, wanted) else {
                return None;
            };
            let input = projection.input.schema().index_of_column(column).ok()?;
            origin(&projection.input, input, wanted)
        }
        _ => None,
    }
}

/// A literal of the statement.
struct Literal {
    value: ScalarValue,
    /// The literal as it is written in SQL.
    written: String,
}

impl Literal {
    fn of(expression: &Expr, wanted: &DataType) -> Option<Self> {
        match strip_casts(expression, wanted) {
            Expr::Literal(value, _) => Some(Self {
                value: value.clone(),
                written: if value.data_type().is_string() {
                    format!("'{value}'")
                } else {
                    value.to_string()
                },
            }),
            // A number with many digits is a cast of its text.
            Expr::Cast(cast) if cast.field.data_type().is_decimal() => match cast.expr.as_ref() {
                Expr::Literal(text, _) if text.data_type().is_string() => Some(Self {
                    value: cast_value(text, cast.field.data_type()).ok()?,
                    written: text.to_string(),
                }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns the expression without its outer aliases and without its outer casts to the column's
/// type. Casts to other types are the statement's own, so they stay.
fn strip_casts<'a>(expression: &'a Expr, wanted: &DataType) -> &'a Expr {
    match expression {
        Expr::Alias(alias) => strip_casts(&alias.expr, wanted),
        Expr::Cast(cast) if cast.field.data_type() == wanted => strip_casts(&cast.expr, wanted),
        other => other,
    }
}
