use volary_flight_proto::Result;

use super::column::{Column, milliseconds};
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::load::progress::LoadStatus;

pub(super) struct LoadsTable;

impl SystemTable for LoadsTable {
    type Row = LoadStatus;

    const NAME: &'static str = "loads";

    const COLUMNS: &'static [Column<LoadStatus>] = &[
        Column::text("query_id", |load| load.query_id.to_string()),
        Column::text("table_name", |load| load.table.name().to_owned()),
        Column::number("rows_written", |load| load.rows),
        Column::number("running_ms", |load| milliseconds(load.running_for)),
        Column::text("schema_name", |load| load.table.schema().to_owned()),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<LoadStatus>> {
        let (catalog, rights) = (&sources.catalog, &sources.rights);
        let mut loads = sources.loads.all();
        // A table that is being created is not visible yet, so only administrators see the load
        // into it.
        loads.retain(|load| rights.is_unrestricted() || catalog.is_visible_to(&load.table, rights));
        Ok(loads)
    }
}
