use std::sync::Arc;

use volary_catalog::{Table, TableKind};
use volary_flight_proto::Result;
use volary_flight_proto::ids::WorkerId;

use super::column::Column;
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct Shards;

/// A shard, and a worker that holds it.
pub(super) struct Shard {
    table: Arc<Table>,
    shard: u32,
    worker: WorkerId,
    rows: u64,
    bytes: u64,
}

impl SystemTable for Shards {
    type Row = Shard;

    const NAME: &'static str = "shards";

    const COLUMNS: &'static [Column<Shard>] = &[
        Column::text("table_name", |shard| shard.table.name().name().to_owned()),
        Column::number("shard", |shard| u64::from(shard.shard)),
        Column::text("worker_id", |shard| shard.worker.to_string()),
        Column::number("rows", |shard| shard.rows),
        Column::number("bytes", |shard| shard.bytes),
        Column::text("schema_name", |shard| {
            shard.table.name().schema().to_owned()
        }),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Shard>> {
        Ok(sources.tables().flat_map(shards_of).collect())
    }
}

fn shards_of(table: &Arc<Table>) -> impl Iterator<Item = Shard> {
    (0..table.shards()).flat_map(move |shard| {
        let holders = match table.kind() {
            TableKind::Sharded { .. } => table.worker_of(shard).into_iter().collect(),
            TableKind::Reference { copies } => copies.clone(),
        };
        let statistics = table.statistics().shards.get(shard as usize);
        holders.into_iter().map(move |worker| Shard {
            table: Arc::clone(table),
            shard,
            worker,
            rows: statistics.map_or(0, |held| held.rows),
            bytes: statistics.map_or(0, |held| held.bytes),
        })
    })
}
