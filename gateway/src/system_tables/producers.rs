use std::sync::Arc;

use volary_catalog::access::Privilege;
use volary_catalog::{ProducerRecord, Table};
use volary_flight_proto::Result;

use super::column::{Column, timestamp_from_ms};
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct Producers;

pub(super) struct ProducerOfTable {
    table: Arc<Table>,
    producer: Arc<ProducerRecord>,
}

impl SystemTable for Producers {
    type Row = ProducerOfTable;

    const NAME: &'static str = "producers";

    const COLUMNS: &'static [Column<ProducerOfTable>] = &[
        Column::text("table_name", |row| row.table.name().name().to_owned()),
        Column::text("producer", |row| row.producer.name().to_string()),
        Column::text("kind", |row| kind(&row.producer).to_owned()),
        Column::number("last_sequence", |row| row.producer.last_sequence()),
        Column::optional_number("last_rows", |row| {
            let last = row.producer.batch(row.producer.last_sequence());
            last.map(|batch| batch.rows)
        }),
        Column::time("committed_at", |row| {
            timestamp_from_ms(row.producer.committed_at_ms())
        }),
        Column::text("schema_name", |row| row.table.name().schema().to_owned()),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<ProducerOfTable>> {
        let (catalog, rights) = (&sources.catalog, &sources.rights);
        // Those who may only see that the table exists learn nothing of its rows.
        let tables = sources.tables().filter(|table| {
            [Privilege::Select, Privilege::Insert]
                .iter()
                .any(|privilege| {
                    let checked = catalog.check_privilege(*privilege, table.name(), rights);
                    checked.is_ok()
                })
        });
        let rows = tables.flat_map(|table| {
            let producers = catalog.producers_of(table.id());
            producers.map(|producer| ProducerOfTable {
                table: Arc::clone(table),
                producer: Arc::clone(producer),
            })
        });
        Ok(rows.collect())
    }
}

fn kind(producer: &ProducerRecord) -> &'static str {
    match producer.is_statement() {
        true => "statement",
        false => "stream",
    }
}
