use datafusion::sql::sqlparser::ast::{Expr, Value};

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
