use std::sync::Arc;

use volary_catalog::{Table, TableKind};
use volary_flight_proto::Result;

use super::column::Column;
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct Tables;

impl SystemTable for Tables {
    type Row = Arc<Table>;

    const NAME: &'static str = "tables";

    const COLUMNS: &'static [Column<Arc<Table>>] = &[
        Column::text("name", |table| table.name().name().to_owned()),
        Column::text("kind", |table| kind(table).to_owned()),
        Column::optional_text("shard_key", |table| {
            table.shard_key_name().map(str::to_owned)
        }),
        Column::number("shards", |table| u64::from(table.shards())),
        Column::optional_text("sort_key", |table| sort_key(table)),
        Column::number("workers", |table| table.workers().len() as u64),
        Column::number("rows", |table| table.statistics().rows),
        Column::number("bytes", |table| table.statistics().bytes),
        Column::optional_text("owner", |table| table.owner().map(str::to_owned)),
        Column::text("schema_name", |table| table.name().schema().to_owned()),
        Column::optional_text("comment", |table| table.declarations().comment.clone()),
        Column::optional_text("retention", |table| {
            table.retention().map(ToString::to_string)
        }),
        Column::optional_text("time_column", |table| {
            let retention = table.retention()?;
            let column = table.schema().field(retention.time_column);
            Some(column.name().clone())
        }),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Arc<Table>>> {
        Ok(sources.tables().cloned().collect())
    }
}

fn kind(table: &Table) -> &'static str {
    match table.kind() {
        TableKind::Sharded { .. } => "sharded",
        TableKind::Reference { .. } => "reference",
    }
}

fn sort_key(table: &Table) -> Option<String> {
    let columns = table.sort_key().iter();
    let names: Vec<_> = columns
        .map(|column| table.schema().field(*column).name().as_str())
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}
