use arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{Expr, Value};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::identifier;

/// Returns the text of an option's value, without its quotes.
pub(crate) fn literal_text(value: &Expr) -> String {
    match value {
        Expr::Value(literal) => match &literal.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(name) => identifier(name),
        other => other.to_string(),
    }
}

/// Returns the position of the column that an option names.
///
/// # Errors
/// `NOT_FOUND` if the table has no such column.
pub(crate) fn named_column(schema: &Schema, option: &str, column: &str) -> Result<usize> {
    schema.index_of(column).map_err(|_| {
        let fields = schema.fields().iter();
        let names: Vec<_> = fields.map(|field| field.name().as_str()).collect();
        Error::not_found(format!(
            "{option} names column {column}, which the table does not have; its columns are {}",
            names.join(", ")
        ))
        .with_sqlstate(SqlState::UndefinedColumn)
    })
}
