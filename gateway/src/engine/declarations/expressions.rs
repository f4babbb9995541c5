use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::Expr as Ast;
use volary_flight_proto::{Error, Result, SqlState};

use crate::engine::context::StatementContext;
use crate::load::expressions;
use crate::sql::printing::printed;

/// Returns the text that is kept of a column's default.
///
/// # Errors
/// `INVALID_ARGUMENT` if the expression names columns, if it cannot be computed, or if its value
/// has another type than the column.
pub(super) fn default_text(
    context: &StatementContext,
    column: &Field,
    default: &Ast,
) -> Result<String> {
    let text = printed(default);
    let value = || {
        let parsed = expressions::parse(&context.state, &Schema::empty(), &text)?;
        let cast = expressions::cast(parsed.clone(), &Schema::empty(), column.data_type())?;
        let value = expressions::value_of(&context.state, cast)?;
        Ok::<_, Error>((parsed, value))
    };
    let (parsed, value) =
        value().map_err(|error| error.at(format!("the default of column {}", column.name())))?;
    // The instant that a text stands for depends on the time zone of the session.
    match (column.data_type(), &value) {
        (DataType::Timestamp(_, Some(_)), value)
            if expressions::is_immutable(&parsed) && !value.is_null() =>
        {
            Ok(format!("TIMESTAMP WITH TIME ZONE '{}'", text_of(value)?))
        }
        _ => Ok(text),
    }
}

fn text_of(value: &ScalarValue) -> Result<String> {
    let text = value.cast_to(&DataType::Utf8)?;
    match text {
        ScalarValue::Utf8(Some(text)) => Ok(text),
        other => Err(Error::internal(format!("{other} is no text"))),
    }
}

/// Returns the text that is kept of a check's condition, and the positions of the columns that it
/// names.
///
/// # Errors
/// `INVALID_ARGUMENT` if the expression is no condition, or if its outcome for a row may change.
pub(super) fn check_text(
    context: &StatementContext,
    schema: &Schema,
    condition: &Ast,
) -> Result<(String, Vec<usize>)> {
    let text = printed(condition);
    let parsed = expressions::parse(&context.state, schema, &text)?;
    if !expressions::is_immutable(&parsed) {
        return Err(Error::invalid(format!(
            "CHECK ({text}) calls a function whose result changes from time to time, but a row that was written must stay valid; leave the function out"
        ))
        .with_sqlstate(SqlState::InvalidTableDefinition));
    }
    let columns = datafusion::common::DFSchema::try_from(schema.clone())?;
    let is_condition = matches!(
        parsed.get_type(&columns)?,
        DataType::Boolean | DataType::Null
    );
    if !is_condition {
        return Err(Error::invalid(format!(
            "CHECK ({text}) is not a condition; compare the value with something"
        ))
        .with_sqlstate(SqlState::InvalidTableDefinition));
    }
    expressions::plan(&context.state, schema, vec![parsed.clone()])?;
    let mut named: Vec<usize> = parsed
        .column_refs()
        .iter()
        .filter_map(|column| schema.index_of(column.name()).ok())
        .collect();
    named.sort_unstable();
    named.dedup();
    Ok((text, named))
}
