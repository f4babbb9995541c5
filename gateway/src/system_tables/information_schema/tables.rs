use datafusion::logical_expr::TableType;

use super::super::column::Column;
use super::names;
use super::table::{InformationTable, Listed};
use crate::sql::names::{CATALOG, INFORMATION_SCHEMA};

pub(super) struct Tables;

/// A table or view.
pub(super) struct NamedTable {
    catalog: String,
    schema: String,
    name: String,
    table_type: TableType,
    comment: Option<String>,
}

impl InformationTable for Tables {
    type Row = NamedTable;

    const NAME: &'static str = "tables";

    const COLUMNS: &'static [Column<NamedTable>] = &[
        Column::text("table_catalog", |it| it.catalog.clone()),
        Column::text("table_schema", |it| it.schema.clone()),
        Column::text("table_name", |it| it.name.clone()),
        Column::text("table_type", |it| kind(it.table_type).to_owned()),
        Column::optional_text("comment", |it| it.comment.clone()),
    ];

    fn rows(listed: &Listed) -> Vec<NamedTable> {
        let listed = listed.tables.iter().map(|table| NamedTable {
            catalog: table.catalog.clone(),
            schema: table.schema.clone(),
            name: table.name.clone(),
            table_type: table.table_type(),
            comment: table.comment.clone(),
        });
        let own = names().map(|name| NamedTable {
            catalog: CATALOG.to_owned(),
            schema: INFORMATION_SCHEMA.to_owned(),
            name: name.to_owned(),
            table_type: TableType::View,
            comment: None,
        });
        listed.chain(own).collect()
    }
}

/// Returns what information_schema calls a kind of table.
fn kind(table_type: TableType) -> &'static str {
    match table_type {
        TableType::Base => "BASE TABLE",
        TableType::View => "VIEW",
        TableType::Temporary => "LOCAL TEMPORARY",
    }
}
