use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use volary_flight_proto::{Error, ErrorCode, SqlState};

use crate::sql::row_subqueries::ROWS;

/// Maximum number of existing column names that an error lists if no name is close to the unknown
/// one.
const SHOWN_NAMES: usize = 8;

/// Converts an error of DataFusion, with advice: for an unknown column, the error suggests the
/// nearest names.
pub(super) fn with_advice(error: DataFusionError) -> Error {
    match unknown_column(&error) {
        Some((field, _)) if is_of_rewrite(field) => correlation_error(),
        Some((field, valid)) => no_such_column(field, valid),
        None if has_no_join(&error) => correlation_error(),
        None => without_report_advice(error.into()),
    }
}

/// Returns whether the optimizer looks for a column of the outer query in the query that takes the
/// place of `(a, b) IN (SELECT …)`.
fn is_of_rewrite(column: &Column) -> bool {
    let relation = column.relation.as_ref();
    relation.is_some_and(|relation| relation.table() == ROWS)
}

/// Returns whether the planner found no join that computes a subquery.
fn has_no_join(error: &DataFusionError) -> bool {
    let text = error.message();
    text.contains("does not support logical expression") && text.contains("OuterReferenceColumn")
}

/// Returns the error for a subquery that reads columns of the outer query in a way for which there
/// is no join.
pub(super) fn correlation_error() -> Error {
    Error::unsupported(
        "a subquery, or the query of a LATERAL, reads columns of the outer query in a way that is not supported, such as below a LIMIT or an aggregate without an equality; write it as a join, or with row_number() OVER (…)",
    )
}

/// Removes DataFusion's request to file a bug report. DataFusion reports some mistakes of users as
/// bugs of its own, and writes the message for the user after that request.
fn without_report_advice(error: Error) -> Error {
    const ADVICE: &str =
        "filing a bug report in our issue tracker: https://github.com/apache/datafusion/issues. ";
    match error.message().split_once(ADVICE) {
        Some((_, rest)) if error.code() == ErrorCode::InvalidArgument => {
            let rest = rest.to_owned();
            error.with_message(rest)
        }
        _ => error,
    }
}

/// Returns whether the planner refuses a list because of equal names in it.
pub(super) fn has_equal_names(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::SchemaError(schema, _) => matches!(
            schema.as_ref(),
            SchemaError::AmbiguousReference { .. }
                | SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. }
        ),
        // DataFusion has no error of its own for the columns of a SELECT list.
        DataFusionError::Plan(message) => message.contains("require unique expression names"),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            has_equal_names(inner)
        }
        DataFusionError::Collection(errors) => errors.first().is_some_and(has_equal_names),
        DataFusionError::Shared(inner) => has_equal_names(inner),
        _ => false,
    }
}

fn unknown_column(error: &DataFusionError) -> Option<(&Column, &[Column])> {
    match error {
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::FieldNotFound {
                field,
                valid_fields,
            } => Some((field, valid_fields)),
            _ => None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            unknown_column(inner)
        }
        DataFusionError::Collection(errors) => errors.first().and_then(unknown_column),
        DataFusionError::Shared(inner) => unknown_column(inner),
        _ => None,
    }
}

fn no_such_column(column: &Column, valid: &[Column]) -> Error {
    let mut near: Vec<(usize, &str)> = valid
        .iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&column.name, &candidate.name),
                candidate.name.as_str(),
            )
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    let close: Vec<&str> = near
        .iter()
        .filter(|(distance, _)| *distance <= column.name.len() / 3 + 1)
        .map(|(_, name)| *name)
        .take(3)
        .collect();
    let advice = if !close.is_empty() {
        format!("did you mean {}?", close.join(" or "))
    } else if valid.is_empty() {
        "the statement reads no table that has columns".to_owned()
    } else {
        let shown: Vec<&str> = valid
            .iter()
            .take(SHOWN_NAMES)
            .map(|candidate| candidate.name.as_str())
            .collect();
        let more = valid.len().saturating_sub(shown.len());
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("there are {}{more}", shown.join(", "))
    };
    Error::not_found(format!(
        "there is no column {}: {advice}",
        column.flat_name()
    ))
    .with_sqlstate(SqlState::UndefinedColumn)
}
