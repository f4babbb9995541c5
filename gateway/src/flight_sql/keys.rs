use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt8Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys,
};
use datafusion::error::DataFusionError;
use volary_catalog::{
    Constraint, ConstraintKind, ForeignKey, ReferentialAction, RelationName, Table,
};
use volary_flight_proto::Result;

use crate::sql::names::CATALOG;

/// Returns the columns of GetPrimaryKeys.
pub(super) fn primary_key_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// Returns the columns of GetExportedKeys, GetImportedKeys and GetCrossReference.
pub(super) fn foreign_key_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("pk_catalog_name", DataType::Utf8, true),
        Field::new("pk_db_schema_name", DataType::Utf8, true),
        Field::new("pk_table_name", DataType::Utf8, false),
        Field::new("pk_column_name", DataType::Utf8, false),
        Field::new("fk_catalog_name", DataType::Utf8, true),
        Field::new("fk_db_schema_name", DataType::Utf8, true),
        Field::new("fk_table_name", DataType::Utf8, false),
        Field::new("fk_column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}

/// A table that a client names in a question about keys. An absent catalog or schema matches all.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedTable<'a> {
    catalog: Option<&'a str>,
    schema: Option<&'a str>,
    table: &'a str,
}

impl<'a> NamedTable<'a> {
    fn new(catalog: Option<&'a String>, schema: Option<&'a String>, table: &'a str) -> Self {
        Self {
            catalog: catalog.map(String::as_str),
            schema: schema.map(String::as_str),
            table,
        }
    }

    fn matches(&self, table: &RelationName) -> bool {
        self.table == table.name()
            && self.catalog.is_none_or(|catalog| catalog == CATALOG)
            && self.schema.is_none_or(|schema| schema == table.schema())
    }
}

/// The foreign keys that a client asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForeignKeyFilter<'a> {
    /// The table that has the foreign keys. `None` for all tables.
    of: Option<NamedTable<'a>>,
    /// The table that the keys refer to. `None` for all tables.
    to: Option<NamedTable<'a>>,
}

impl<'a> From<&'a CommandGetPrimaryKeys> for NamedTable<'a> {
    fn from(command: &'a CommandGetPrimaryKeys) -> Self {
        let (catalog, schema) = (command.catalog.as_ref(), command.db_schema.as_ref());
        Self::new(catalog, schema, &command.table)
    }
}

impl<'a> From<&'a CommandGetImportedKeys> for ForeignKeyFilter<'a> {
    fn from(command: &'a CommandGetImportedKeys) -> Self {
        let (catalog, schema) = (command.catalog.as_ref(), command.db_schema.as_ref());
        let of = NamedTable::new(catalog, schema, &command.table);
        Self {
            of: Some(of),
            to: None,
        }
    }
}

impl<'a> From<&'a CommandGetExportedKeys> for ForeignKeyFilter<'a> {
    fn from(command: &'a CommandGetExportedKeys) -> Self {
        let (catalog, schema) = (command.catalog.as_ref(), command.db_schema.as_ref());
        let to = NamedTable::new(catalog, schema, &command.table);
        Self {
            of: None,
            to: Some(to),
        }
    }
}

impl<'a> From<&'a CommandGetCrossReference> for ForeignKeyFilter<'a> {
    fn from(command: &'a CommandGetCrossReference) -> Self {
        let (catalog, schema) = (command.fk_catalog.as_ref(), command.fk_db_schema.as_ref());
        let of = NamedTable::new(catalog, schema, &command.fk_table);
        let (catalog, schema) = (command.pk_catalog.as_ref(), command.pk_db_schema.as_ref());
        let to = NamedTable::new(catalog, schema, &command.pk_table);
        Self {
            of: Some(of),
            to: Some(to),
        }
    }
}

/// Returns the columns of the table's primary key, by name as Flight SQL wants.
pub(super) fn primary_keys(tables: &[Arc<Table>], named: NamedTable<'_>) -> Result<RecordBatch> {
    let mut rows = Vec::new();
    for table in tables.iter().filter(|table| named.matches(table.name())) {
        let Some(key) = table.declarations().primary_key() else {
            continue;
        };
        for (sequence, column) in (1..).zip(column_names(table, key)) {
            rows.push((table.name(), column, key.name.as_str(), sequence));
        }
    }
    rows.sort_by_key(|(_, column, ..)| *column);
    let columns: Vec<ArrayRef> = vec![
        repeated(CATALOG, rows.len()),
        texts(rows.iter().map(|row| row.0.schema())),
        texts(rows.iter().map(|row| row.0.name())),
        texts(rows.iter().map(|row| row.1)),
        texts(rows.iter().map(|row| row.2)),
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.3))),
    ];
    let batch = RecordBatch::try_new(primary_key_columns(), columns);
    Ok(batch.map_err(DataFusionError::from)?)
}

/// A column of a foreign key.
struct ForeignKeyColumn<'a> {
    table: &'a RelationName,
    key: &'a Constraint,
    foreign: &'a ForeignKey,
    column: &'a str,
    referenced_column: &'a str,
    /// The name of the referenced key. `None` if the referenced columns are not declared as a key.
    referenced_key: Option<&'a str>,
    sequence: i32,
}

/// Returns the columns of the foreign keys that pass the filter and whose referenced tables the
/// user may see.
pub(super) fn foreign_keys(
    tables: &[Arc<Table>],
    filter: ForeignKeyFilter<'_>,
) -> Result<RecordBatch> {
    let mut rows = Vec::new();
    for table in tables {
        for key in &table.declarations().constraints {
            let ConstraintKind::ForeignKey(foreign) = &key.kind else {
                continue;
            };
            let passes = filter.of.is_none_or(|of| of.matches(table.name()))
                && filter.to.is_none_or(|to| to.matches(&foreign.table));
            let referenced = tables.iter().find(|other| *other.name() == foreign.table);
            if let (true, Some(referenced)) = (passes, referenced) {
                rows.extend(foreign_key(table, key, foreign, referenced));
            }
        }
    }
    rows.sort_by_key(|row| {
        let key = row.key.name.as_str();
        match filter.of {
            Some(_) => (&row.foreign.table, key, row.sequence),
            None => (row.table, key, row.sequence),
        }
    });
    let columns: Vec<ArrayRef> = vec![
        repeated(CATALOG, rows.len()),
        texts(rows.iter().map(|row| row.foreign.table.schema())),
        texts(rows.iter().map(|row| row.foreign.table.name())),
        texts(rows.iter().map(|row| row.referenced_column)),
        repeated(CATALOG, rows.len()),
        texts(rows.iter().map(|row| row.table.schema())),
        texts(rows.iter().map(|row| row.table.name())),
        texts(rows.iter().map(|row| row.column)),
        Arc::new(Int32Array::from_iter_values(
            rows.iter().map(|row| row.sequence),
        )),
        texts(rows.iter().map(|row| row.key.name.as_str())),
        Arc::new(
            rows.iter()
                .map(|row| row.referenced_key)
                .collect::<StringArray>(),
        ),
        rules(rows.iter().map(|row| row.foreign.on_update)),
        rules(rows.iter().map(|row| row.foreign.on_delete)),
    ];
    let batch = RecordBatch::try_new(foreign_key_columns(), columns);
    Ok(batch.map_err(DataFusionError::from)?)
}

fn foreign_key<'a>(
    table: &'a Table,
    key: &'a Constraint,
    foreign: &'a ForeignKey,
    referenced: &'a Table,
) -> impl Iterator<Item = ForeignKeyColumn<'a>> {
    let declarations = referenced.declarations();
    let referenced_key = declarations.key_over(referenced.schema(), &foreign.columns);
    let columns = column_names(table, key).zip(&foreign.columns);
    (1..).zip(columns).map(
        move |(sequence, (column, referenced_column))| ForeignKeyColumn {
            table: table.name(),
            key,
            foreign,
            column,
            referenced_column,
            referenced_key: referenced_key.map(|it| it.name.as_str()),
            sequence,
        },
    )
}

fn column_names<'a>(table: &'a Table, key: &'a Constraint) -> impl Iterator<Item = &'a str> {
    let names = key.columns.iter();
    names.map(|column| table.schema().field(*column).name().as_str())
}

fn repeated(text: &str, rows: usize) -> ArrayRef {
    texts(std::iter::repeat_n(text, rows))
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// Returns the numbers of Flight SQL's UpdateDeleteRules.
fn rules(actions: impl Iterator<Item = ReferentialAction>) -> ArrayRef {
    let numbers = actions.map(|action| match action {
        ReferentialAction::Cascade => 0,
        ReferentialAction::Restrict => 1,
        ReferentialAction::SetNull => 2,
        ReferentialAction::NoAction => 3,
        ReferentialAction::SetDefault => 4,
    });
    Arc::new(UInt8Array::from_iter_values(numbers))
}
