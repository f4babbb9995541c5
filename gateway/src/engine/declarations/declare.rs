use arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, ColumnOptionDef, ConstraintCharacteristics,
    CreateTable, Expr, ForeignKeyConstraint, Ident, IndexColumn,
    ReferentialAction as WrittenAction, TableConstraint,
};
use volary_catalog::{
    CatalogState, Constraint, ConstraintKind, Declarations, ForeignKey, ReferentialAction,
    RelationName,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::expressions::{check_text, default_text};
use crate::engine::context::StatementContext;
use crate::sql::names::{WrittenName, identifier};

/// The defaults, constraints and comments as a CREATE TABLE writes them.
#[derive(Debug, Default)]
pub(in crate::engine) struct WrittenDeclarations {
    defaults: Vec<(Ident, Expr)>,
    comments: Vec<(Ident, String)>,
    constraints: Vec<TableConstraint>,
}

impl WrittenDeclarations {
    /// Takes the declarations out of the statement. Columns of a primary key become NOT NULL.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an option of a column that is not supported.
    pub(in crate::engine) fn take_from(create: &mut CreateTable) -> Result<Self> {
        let mut written = Self {
            constraints: std::mem::take(&mut create.constraints),
            ..Self::default()
        };
        let table = create.name.to_string();
        for column in &mut create.columns {
            for option in std::mem::take(&mut column.options) {
                written.take_option(&table, column, option)?;
            }
        }
        let keys = written.constraints.iter().filter_map(|it| match it {
            TableConstraint::PrimaryKey(key) => Some(&key.columns),
            _ => None,
        });
        let key_columns: Vec<String> = keys
            .flatten()
            .filter_map(|column| key_column(column).map(identifier))
            .collect();
        for column in &mut create.columns {
            if key_columns.contains(&identifier(&column.name)) {
                column.options.push(ColumnOptionDef {
                    name: None,
                    option: ColumnOption::NotNull,
                });
            }
        }
        Ok(written)
    }

    fn take_option(
        &mut self,
        table: &str,
        column: &mut ColumnDef,
        option: ColumnOptionDef,
    ) -> Result<()> {
        let ColumnOptionDef { name, option } = option;
        let column_of_key = || vec![IndexColumn::from(column.name.clone())];
        match option {
            ColumnOption::NotNull | ColumnOption::Null => {
                column.options.push(ColumnOptionDef { name, option });
            }
            ColumnOption::Default(value) => self.defaults.push((column.name.clone(), value)),
            ColumnOption::Comment(text) => self.comments.push((column.name.clone(), text)),
            ColumnOption::PrimaryKey(mut key) => {
                key.columns = column_of_key();
                key.name = key.name.or(name);
                self.constraints.push(key.into());
            }
            ColumnOption::Unique(mut key) => {
                key.columns = column_of_key();
                key.name = key.name.or(name);
                self.constraints.push(key.into());
            }
            ColumnOption::ForeignKey(mut key) => {
                key.columns = vec![column.name.clone()];
                key.name = key.name.or(name);
                self.constraints.push(key.into());
            }
            ColumnOption::Check(mut check) => {
                check.name = check.name.or(name);
                self.constraints.push(check.into());
            }
            other => {
                return Err(Error::unsupported(format!(
                    "table {table}, column {}: {other} is not supported; a column takes NOT NULL, DEFAULT, PRIMARY KEY, UNIQUE, REFERENCES, CHECK and COMMENT",
                    column.name
                )));
            }
        }
        Ok(())
    }

    /// Returns the declarations for a table with these columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a default or a check that cannot be computed, and for a key that
    /// refers to columns that do not exist. `NOT_FOUND` if a foreign key refers to a table that
    /// does not exist.
    pub(in crate::engine) fn resolve(
        self,
        context: &StatementContext,
        table: &RelationName,
        schema: &Schema,
    ) -> Result<Declarations> {
        let mut declarations = Declarations::default();
        for (column, value) in &self.defaults {
            let column = position(schema, column)?;
            let text = default_text(context, schema.field(column), value)?;
            declarations.defaults.insert(column, text);
        }
        for (column, text) in self.comments {
            let column = position(schema, &column)?;
            declarations.column_comments.insert(column, text);
        }
        // The primary key comes first, because a foreign key may refer to its own table.
        let (keys, others): (Vec<_>, Vec<_>) = self
            .constraints
            .iter()
            .partition(|it| matches!(it, TableConstraint::PrimaryKey(_)));
        for written in keys.into_iter().chain(others) {
            let own = (table, schema, &declarations);
            let constraint = constraint(context, &context.catalog, own, written)?;
            declarations.constraints.push(constraint);
        }
        Ok(declarations)
    }
}

/// Returns the constraint that a statement writes for the table `own`: its name, its columns and
/// its declarations so far.
///
/// # Errors
/// As for [`WrittenDeclarations::resolve`].
pub(super) fn constraint(
    context: &StatementContext,
    catalog: &CatalogState,
    own: (&RelationName, &Schema, &Declarations),
    written: &TableConstraint,
) -> Result<Constraint> {
    let (table, schema, declared) = own;
    let (name, columns, kind, suffix) = match written {
        TableConstraint::PrimaryKey(key) => {
            refuse_enforced(key.characteristics.as_ref(), written)?;
            let columns = key_positions(schema, &key.columns)?;
            (&key.name, columns, ConstraintKind::PrimaryKey, "pkey")
        }
        TableConstraint::Unique(key) => {
            refuse_enforced(key.characteristics.as_ref(), written)?;
            let columns = key_positions(schema, &key.columns)?;
            (&key.name, columns, ConstraintKind::Unique, "key")
        }
        TableConstraint::ForeignKey(key) => {
            refuse_enforced(key.characteristics.as_ref(), written)?;
            let columns = key.columns.iter().map(|column| position(schema, column));
            let columns = columns.collect::<Result<_>>()?;
            let kind = ConstraintKind::ForeignKey(foreign_key(context, catalog, own, key)?);
            (&key.name, columns, kind, "fkey")
        }
        TableConstraint::Check(CheckConstraint {
            name,
            expr,
            enforced,
        }) => {
            let (condition, columns) = check_text(context, schema, expr)?;
            let kind = ConstraintKind::Check {
                condition,
                enforced: enforced.unwrap_or(true),
            };
            (name, columns, kind, "check")
        }
        other => {
            return Err(Error::unsupported(format!(
                "table {table}: {other} is not supported; a table takes PRIMARY KEY, UNIQUE, FOREIGN KEY and CHECK"
            )));
        }
    };
    let name = match name {
        Some(name) => identifier(name),
        None => free_name(table.name(), schema, declared, (&columns, &kind), suffix),
    };
    Ok(Constraint {
        name,
        columns,
        kind,
    })
}

/// Returns a name that no other constraint of the table has. PostgreSQL forms names in the same
/// way.
fn free_name(
    table: &str,
    schema: &Schema,
    declared: &Declarations,
    (columns, kind): (&[usize], &ConstraintKind),
    suffix: &str,
) -> String {
    let mut parts = vec![table];
    if *kind != ConstraintKind::PrimaryKey {
        parts.extend(columns.iter().map(|it| schema.field(*it).name().as_str()));
    }
    parts.push(suffix);
    let base = parts.join("_");
    let is_free = |name: &String| declared.constraints.iter().all(|it| it.name != *name);
    let numbered = (1..).map(|number: u32| format!("{base}{number}"));
    std::iter::once(base.clone())
        .chain(numbered)
        .find(is_free)
        .unwrap_or(base)
}

fn foreign_key(
    context: &StatementContext,
    catalog: &CatalogState,
    (own_name, own_schema, own_declarations): (&RelationName, &Schema, &Declarations),
    written: &ForeignKeyConstraint,
) -> Result<ForeignKey> {
    let written_table = WrittenName::of_object(&written.foreign_table)?;
    let is_own = written_table.name() == own_name.name()
        && match written_table.schema() {
            Some(schema) => schema == own_name.schema(),
            None => own_name.is_temporary() || own_name.schema() == context.schema(),
        };
    let table = match is_own {
        true => own_name.clone(),
        false => context.search_path().find(catalog, &written_table),
    };
    if table.is_temporary() && !own_name.is_temporary() {
        return Err(Error::invalid(format!(
            "the foreign key refers to {table}, which is temporary and ends with the session; refer to another table"
        ))
        .with_sqlstate(SqlState::InvalidTableDefinition));
    }
    let referenced = catalog
        .table(&table)
        .filter(|_| catalog.is_visible_to(&table, &context.rights));
    let (schema, declarations) = match referenced {
        _ if is_own => (own_schema, own_declarations),
        Some(referenced) => (referenced.schema().as_ref(), referenced.declarations()),
        None => return Err(catalog.no_such_table(&table, &context.rights)),
    };
    let columns = if written.referred_columns.is_empty() {
        let key = declarations.primary_key().ok_or_else(|| {
            Error::invalid(format!(
                "table {table} has no primary key; name the columns that the foreign key refers to"
            ))
            .with_sqlstate(SqlState::InvalidForeignKey)
        })?;
        key.columns.clone()
    } else {
        let columns = written.referred_columns.iter();
        columns
            .map(|column| position(schema, column))
            .collect::<Result<_>>()
            .map_err(|error| error.at(format!("table {table}")))?
    };
    let names = columns.iter().map(|column| schema.field(*column).name());
    Ok(ForeignKey {
        columns: names.cloned().collect(),
        table,
        on_update: action(written.on_update.as_ref()),
        on_delete: action(written.on_delete.as_ref()),
    })
}

fn action(written: Option<&WrittenAction>) -> ReferentialAction {
    match written {
        None | Some(WrittenAction::NoAction) => ReferentialAction::NoAction,
        Some(WrittenAction::Restrict) => ReferentialAction::Restrict,
        Some(WrittenAction::Cascade) => ReferentialAction::Cascade,
        Some(WrittenAction::SetNull) => ReferentialAction::SetNull,
        Some(WrittenAction::SetDefault) => ReferentialAction::SetDefault,
    }
}

/// Refuses a key that the user wants to be enforced.
fn refuse_enforced(
    characteristics: Option<&ConstraintCharacteristics>,
    written: &TableConstraint,
) -> Result<()> {
    if characteristics.and_then(|it| it.enforced) == Some(true) {
        return Err(Error::unsupported(format!(
            "{written}: keys are kept and shown, but not enforced; leave ENFORCED out"
        )));
    }
    Ok(())
}

fn key_positions(schema: &Schema, columns: &[IndexColumn]) -> Result<Vec<usize>> {
    let positions = columns.iter().map(|column| match key_column(column) {
        Some(name) => position(schema, name),
        None => Err(Error::invalid(format!(
            "{column} is no column; a key consists of columns"
        ))),
    });
    positions.collect()
}

fn key_column(column: &IndexColumn) -> Option<&Ident> {
    match &column.column.expr {
        Expr::Identifier(name) => Some(name),
        _ => None,
    }
}

/// Returns the position of a column.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is no such column.
pub(super) fn position(schema: &Schema, column: &Ident) -> Result<usize> {
    let name = identifier(column);
    schema.index_of(&name).map_err(|_| {
        let fields = schema.fields().iter();
        let names: Vec<_> = fields.map(|field| field.name().as_str()).collect();
        Error::invalid(format!(
            "there is no column {name}; there are {}",
            names.join(", ")
        ))
        .with_sqlstate(SqlState::UndefinedColumn)
    })
}
