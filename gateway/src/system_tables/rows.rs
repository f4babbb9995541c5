//! Rows of the tables that the gateway knows by itself.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::error::DataFusionError;
use volary_flight_proto::Result;

use super::kind::Kind;
use crate::catalog::{State, TableKind};
use crate::cluster::Cluster;
use crate::load::Loads;

/// Counts and sizes are shown as 64-bit integers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn texts<T: Into<String>>(values: impl IntoIterator<Item = T>) -> ArrayRef {
    Arc::new(
        values
            .into_iter()
            .map(|value| Some(value.into()))
            .collect::<StringArray>(),
    )
}

fn optional_texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

pub(super) fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(
        values
            .into_iter()
            .map(|value| Some(signed(value)))
            .collect::<Int64Array>(),
    )
}

fn optional_numbers(values: impl IntoIterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(
        values
            .into_iter()
            .map(|value| value.map(signed))
            .collect::<Int64Array>(),
    )
}

pub(super) fn batch(kind: Kind, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(kind.schema(), columns).map_err(DataFusionError::from)?)
}

pub(super) fn nodes(cluster: &Cluster) -> Result<RecordBatch> {
    let nodes = cluster.nodes();
    let reports = || nodes.iter().map(|node| node.report.as_ref());
    batch(
        Kind::Nodes,
        vec![
            texts(nodes.iter().map(|node| node.id.to_string())),
            texts(nodes.iter().map(|_| "worker")),
            texts(nodes.iter().map(|node| node.address.clone())),
            texts(nodes.iter().map(|node| node.state.name())),
            texts(nodes.iter().map(|node| node.version.clone())),
            optional_numbers(
                reports().map(|report| report.map(|it| u64::from(it.running_fragments))),
            ),
            optional_numbers(reports().map(|report| report.map(|it| it.memory_reserved_bytes))),
            optional_numbers(reports().map(|report| report.map(|it| it.segments))),
            optional_numbers(reports().map(|report| report.map(|it| it.rows))),
            optional_numbers(reports().map(|report| report.map(|it| it.bytes))),
            optional_numbers(nodes.iter().map(|node| {
                node.heard_ago
                    .map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))
            })),
        ],
    )
}

pub(super) fn tables(state: &State) -> Result<RecordBatch> {
    let tables: Vec<_> = state.tables().collect();
    batch(
        Kind::Tables,
        vec![
            texts(tables.iter().map(|table| table.name())),
            texts(tables.iter().map(|table| match table.kind() {
                TableKind::Sharded { .. } => "sharded",
                TableKind::Reference { .. } => "reference",
            })),
            optional_texts(
                tables
                    .iter()
                    .map(|table| table.shard_key_name().map(str::to_owned)),
            ),
            numbers(tables.iter().map(|table| u64::from(table.shards()))),
            optional_texts(tables.iter().map(|table| {
                let names: Vec<_> = table
                    .sort_key()
                    .iter()
                    .map(|column| table.schema().field(*column).name().as_str())
                    .collect();
                (!names.is_empty()).then(|| names.join(", "))
            })),
            numbers(tables.iter().map(|table| table.workers().len() as u64)),
            numbers(tables.iter().map(|table| table.statistics().rows)),
            numbers(tables.iter().map(|table| table.statistics().bytes)),
        ],
    )
}

pub(super) fn shards(state: &State) -> Result<RecordBatch> {
    let (mut names, mut ids) = (vec![], vec![]);
    let (mut workers, mut rows, mut bytes) = (vec![], vec![], vec![]);
    for table in state.tables() {
        for shard in 0..table.shards() {
            let holders = match table.kind() {
                TableKind::Sharded { .. } => table.worker_of(shard).into_iter().collect(),
                TableKind::Reference { copies } => copies.clone(),
            };
            let held = table.statistics().shards.get(shard as usize);
            for worker in holders {
                names.push(table.name());
                ids.push(u64::from(shard));
                workers.push(worker.to_string());
                rows.push(held.map_or(0, |held| held.rows));
                bytes.push(held.map_or(0, |held| held.bytes));
            }
        }
    }
    batch(
        Kind::Shards,
        vec![
            texts(names),
            numbers(ids),
            texts(workers),
            numbers(rows),
            numbers(bytes),
        ],
    )
}

pub(super) fn loads(loads: &Loads) -> Result<RecordBatch> {
    let loads = loads.all();
    batch(
        Kind::Loads,
        vec![
            texts(loads.iter().map(|load| load.query_id.to_string())),
            texts(loads.iter().map(|load| load.table.clone())),
            numbers(loads.iter().map(|load| load.rows)),
            numbers(
                loads
                    .iter()
                    .map(|load| u64::try_from(load.running.as_millis()).unwrap_or(u64::MAX)),
            ),
        ],
    )
}
