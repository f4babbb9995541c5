use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{AlterColumnOperation, AlterTableOperation, Ident};
use volary_catalog::{CatalogState, Constraint, ConstraintKind, Declarations, Table};
use volary_flight_proto::{Error, Result, SqlState};

use super::declare::{constraint, position};
use super::expressions::default_text;
use super::retention::altered as altered_retention;
use crate::engine::Engine;
use crate::engine::context::StatementContext;
use crate::sql::alter::AlterStatement;
use crate::sql::names::identifier;

/// Changes what a table declares, or the comment on a view. Returns whether there was something to
/// change.
///
/// # Errors
/// `NOT_FOUND` if the table does not exist, `PERMISSION_DENIED` if it belongs to somebody else,
/// `INVALID_ARGUMENT` for a change that cannot be made, and the errors of the catalog.
pub(in crate::engine) async fn run(
    engine: &Engine,
    context: Arc<StatementContext>,
    statement: AlterStatement,
) -> Result<bool> {
    let (AlterStatement::Table {
        table: name,
        if_exists,
        ..
    }
    | AlterStatement::Comment {
        table: name,
        if_exists,
        ..
    }
    | AlterStatement::ViewComment {
        view: name,
        if_exists,
        ..
    }) = &statement;
    let (name, if_exists) = (context.user_relation(name)?, *if_exists);
    let is_visible = context.catalog.is_visible_to(&name, &context.rights);
    if if_exists && !is_visible {
        return Ok(false);
    }
    let rights = Arc::clone(&context.rights);
    if let AlterStatement::ViewComment { text, .. } = statement {
        engine
            .catalog
            .set_view_comment(&name, text, &rights)
            .await?;
        return Ok(true);
    }
    let alter =
        move |catalog: &CatalogState, table: &Table| altered(&context, catalog, table, &statement);
    engine
        .catalog
        .alter_declarations(&name, &rights, alter)
        .await?;
    Ok(true)
}

fn altered(
    context: &StatementContext,
    catalog: &CatalogState,
    table: &Table,
    statement: &AlterStatement,
) -> Result<Declarations> {
    let mut declarations = table.declarations().clone();
    let schema = table.schema();
    match statement {
        AlterStatement::Table { operations, .. } => {
            for operation in operations {
                apply(context, catalog, table, &mut declarations, operation)
                    .map_err(|error| error.at(format!("table {}", table.name())))?;
            }
        }
        AlterStatement::Comment { column, text, .. } => {
            comment(&mut declarations, schema, column.as_ref(), text.as_ref())?;
        }
        // This changes no declarations.
        AlterStatement::ViewComment { .. } => {}
    }
    Ok(declarations)
}

fn comment(
    declarations: &mut Declarations,
    schema: &Schema,
    column: Option<&Ident>,
    text: Option<&String>,
) -> Result<()> {
    let Some(column) = column else {
        declarations.comment = text.cloned();
        return Ok(());
    };
    let column = position(schema, column)?;
    match text {
        Some(text) => declarations.column_comments.insert(column, text.clone()),
        None => declarations.column_comments.remove(&column),
    };
    Ok(())
}

fn apply(
    context: &StatementContext,
    catalog: &CatalogState,
    table: &Table,
    declarations: &mut Declarations,
    operation: &AlterTableOperation,
) -> Result<()> {
    let schema = table.schema();
    match operation {
        AlterTableOperation::AddConstraint {
            constraint: written,
            not_valid,
        } => {
            let own = (table.name(), schema.as_ref(), &*declarations);
            let added = constraint(context, catalog, own, written)?;
            refuse_nullable_key(schema, &added)?;
            refuse_unchecked_rows(table, &added, *not_valid)?;
            declarations.constraints.push(added);
        }
        AlterTableOperation::DropConstraint {
            if_exists, name, ..
        } => {
            let name = identifier(name);
            let before = declarations.constraints.len();
            declarations.constraints.retain(|it| it.name != name);
            if declarations.constraints.len() == before && !if_exists {
                return Err(
                    Error::not_found(format!("there is no constraint \"{name}\""))
                        .with_sqlstate(SqlState::UndefinedObject),
                );
            }
        }
        AlterTableOperation::AlterColumn {
            column_name,
            op: AlterColumnOperation::SetDefault { value },
        } => {
            let column = position(schema, column_name)?;
            let text = default_text(context, schema.field(column), value)?;
            declarations.defaults.insert(column, text);
        }
        AlterTableOperation::AlterColumn {
            column_name,
            op: AlterColumnOperation::DropDefault,
        } => {
            let column = position(schema, column_name)?;
            declarations.defaults.remove(&column);
        }
        AlterTableOperation::SetOptionsParens { options } => {
            declarations.retention = altered_retention(schema, declarations.retention, options)?;
        }
        other => {
            return Err(Error::unsupported(format!(
                "{other} is not supported; ALTER TABLE takes ADD CONSTRAINT, DROP CONSTRAINT, ALTER COLUMN … SET DEFAULT, ALTER COLUMN … DROP DEFAULT, SET (retention = …) and OWNER TO"
            )));
        }
    }
    Ok(())
}

/// Refuses a primary key over columns that may be NULL. The columns of a table never change.
fn refuse_nullable_key(schema: &Schema, constraint: &Constraint) -> Result<()> {
    if constraint.kind != ConstraintKind::PrimaryKey {
        return Ok(());
    }
    let mut columns = constraint.columns.iter().map(|it| schema.field(*it));
    match columns.find(|field| field.is_nullable()) {
        Some(field) => Err(Error::invalid(format!(
            "column \"{}\" may be NULL, so it cannot be in a primary key; declare the key UNIQUE, or create the table with it",
            field.name()
        ))
        .with_sqlstate(SqlState::InvalidTableDefinition)),
        None => Ok(()),
    }
}

/// Refuses a check that would hold only for later rows, unless the statement says NOT VALID.
fn refuse_unchecked_rows(table: &Table, added: &Constraint, not_valid: bool) -> Result<()> {
    let is_enforced = matches!(added.kind, ConstraintKind::Check { enforced: true, .. });
    if is_enforced && !not_valid && table.statistics().rows > 0 {
        return Err(Error::unsupported(format!(
            "the table has rows, and check \"{}\" would be enforced only for rows that are written from now on; find rows that violate it with a query, and write NOT VALID behind the check",
            added.name
        )));
    }
    Ok(())
}
