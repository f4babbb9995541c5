use datafusion::sql::sqlparser::ast::{
    AlterTableOperation, CommentObject, Ident, ObjectName, Statement as Ast,
};
use volary_flight_proto::{Error, Result};

use super::names::WrittenName;

/// A statement that changes what a table declares, or the comment on a view.
#[derive(Debug)]
pub enum AlterStatement {
    /// ALTER TABLE.
    Table {
        /// The name of the table.
        table: WrittenName,
        /// Says whether nothing is done if the table does not exist.
        if_exists: bool,
        /// The changes, which are made together.
        operations: Vec<AlterTableOperation>,
    },
    /// COMMENT ON TABLE or COMMENT ON COLUMN.
    Comment {
        /// The name of the table.
        table: WrittenName,
        /// The column. `None` for a comment on the table.
        column: Option<Ident>,
        /// Says whether nothing is done if the table does not exist.
        if_exists: bool,
        /// The comment. `None` removes it.
        text: Option<String>,
    },
    /// COMMENT ON VIEW.
    ViewComment {
        /// The name of the view.
        view: WrittenName,
        /// Says whether nothing is done if the view does not exist.
        if_exists: bool,
        /// The comment. `None` removes it.
        text: Option<String>,
    },
}

/// Returns the statement, if it is ALTER TABLE or COMMENT ON.
///
/// # Errors
/// `INVALID_ARGUMENT` for a comment on something that has none.
pub(super) fn convert(statement: &Ast) -> Result<Option<AlterStatement>> {
    Ok(Some(match statement {
        Ast::AlterTable(alter) => AlterStatement::Table {
            table: WrittenName::of_object(&alter.name)?,
            if_exists: alter.if_exists,
            operations: alter.operations.clone(),
        },
        Ast::Comment {
            object_type,
            object_name: name,
            comment,
            if_exists,
        } => {
            let (table, column) = match object_type {
                CommentObject::Table => (WrittenName::of_object(name)?, None),
                CommentObject::Column => {
                    let (table, column) = split_column(name)?;
                    (WrittenName::of_object(&table)?, Some(column))
                }
                CommentObject::View => {
                    return Ok(Some(AlterStatement::ViewComment {
                        view: WrittenName::of_object(name)?,
                        if_exists: *if_exists,
                        text: comment.clone(),
                    }));
                }
                other => {
                    return Err(Error::unsupported(format!(
                        "COMMENT ON {other} is not supported; comments are on schemas, tables, views and columns"
                    )));
                }
            };
            AlterStatement::Comment {
                table,
                column,
                if_exists: *if_exists,
                text: comment.clone(),
            }
        }
        _ => return Ok(None),
    }))
}

/// Splits the name of a column into the name of its table and its own name.
fn split_column(name: &ObjectName) -> Result<(ObjectName, Ident)> {
    if let [table @ .., column] = name.0.as_slice()
        && !table.is_empty()
        && let Some(column) = column.as_ident()
    {
        return Ok((ObjectName(table.to_vec()), column.clone()));
    }
    Err(Error::invalid(format!(
        "{name} is no column; write COMMENT ON COLUMN table.column IS 'text'"
    )))
}
