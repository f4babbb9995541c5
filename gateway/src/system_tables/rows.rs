//! Makes the rows of tables for which the gateway asks no other node.

use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::error::DataFusionError;
use volary_catalog::access::Rights;
use volary_catalog::{State, Table, TableKind};
use volary_flight_proto::Result;

use super::kind::Kind;
use crate::cluster::{Cluster, NodeState, Report};
use crate::load::Loads;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Converts a count or a size for a column of 64-bit integers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn texts<T: Into<String>>(values: impl IntoIterator<Item = T>) -> ArrayRef {
    Arc::new(
        values
            .into_iter()
            .map(|value| Some(value.into()))
            .collect::<StringArray>(),
    )
}

pub(super) fn optional_texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
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

pub(super) fn optional_numbers(values: impl IntoIterator<Item = Option<u64>>) -> ArrayRef {
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

/// Returns the rows of system.nodes: this gateway, and all workers that have ever joined.
/// `memory_reserved` is the memory that the gateway's statements hold, in bytes.
pub(super) fn nodes(cluster: &Cluster, memory_reserved: usize) -> Result<RecordBatch> {
    let workers = cluster.nodes();
    let reports = || workers.iter().map(|worker| worker.report.as_ref());
    let of_worker = |number: fn(&Report) -> u64| {
        let numbers = reports().map(move |report| report.map(number));
        optional_numbers(once(None).chain(numbers))
    };
    batch(
        Kind::Nodes,
        vec![
            texts(once("gateway".to_owned()).chain(workers.iter().map(|it| it.id.to_string()))),
            texts(once("gateway").chain(workers.iter().map(|_| "worker"))),
            texts(
                once(cluster.address().to_string())
                    .chain(workers.iter().map(|it| it.address.clone())),
            ),
            texts(once(NodeState::Alive.name()).chain(workers.iter().map(|it| it.state.name()))),
            texts(once(VERSION.to_owned()).chain(workers.iter().map(|it| it.version.clone()))),
            of_worker(|report| u64::from(report.running_fragments)),
            optional_numbers(
                once(Some(memory_reserved as u64)).chain(
                    reports().map(|report| report.map(|report| report.memory_reserved_bytes)),
                ),
            ),
            of_worker(|report| report.segments),
            of_worker(|report| report.rows),
            of_worker(|report| report.bytes),
            optional_numbers(
                once(None).chain(workers.iter().map(|it| it.heard_ago.map(milliseconds))),
            ),
        ],
    )
}

/// Returns the tables that a user with these rights may see.
fn seen<'a>(state: &'a State, rights: &'a Rights) -> impl Iterator<Item = &'a Arc<Table>> {
    let tables = state.tables();
    tables.filter(|table| rights.sees(table.name(), table.owner()))
}

pub(super) fn tables(state: &State, rights: &Rights) -> Result<RecordBatch> {
    let tables: Vec<_> = seen(state, rights).collect();
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
            optional_texts(tables.iter().map(|table| table.owner().map(str::to_owned))),
        ],
    )
}

pub(super) fn shards(state: &State, rights: &Rights) -> Result<RecordBatch> {
    let (mut names, mut ids) = (vec![], vec![]);
    let (mut workers, mut rows, mut bytes) = (vec![], vec![], vec![]);
    for table in seen(state, rights) {
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

pub(super) fn loads(loads: &Loads, state: &State, rights: &Rights) -> Result<RecordBatch> {
    let mut loads = loads.all();
    // No user sees a table that is being created yet, so only administrators see the load into it.
    loads.retain(|load| rights.is_unrestricted() || state.is_seen_by(&load.table, rights));
    batch(
        Kind::Loads,
        vec![
            texts(loads.iter().map(|load| load.query_id.to_string())),
            texts(loads.iter().map(|load| load.table.clone())),
            numbers(loads.iter().map(|load| load.rows)),
            numbers(loads.iter().map(|load| milliseconds(load.running))),
        ],
    )
}
