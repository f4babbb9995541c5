//! Rows of each table.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::error::DataFusionError;
use futures::future::join_all;
use prost::Message;
use volary_flight_proto::control::{ListSegments, SegmentList, control};
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Kind;
use crate::catalog::{State, TableKind};
use crate::cluster::Cluster;
use crate::load::Loads;

/// Counts and sizes are shown as 64-bit integers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn texts<T: Into<String>>(values: impl IntoIterator<Item = T>) -> ArrayRef {
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

fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
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

fn batch(kind: Kind, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
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
    let mut names = Vec::new();
    let (mut numbers_, mut workers, mut rows, mut bytes) = (vec![], vec![], vec![], vec![]);
    for table in state.tables() {
        for shard in 0..table.shards() {
            let holders = match table.kind() {
                TableKind::Sharded { .. } => table.worker_of(shard).into_iter().collect(),
                TableKind::Reference { copies } => copies.clone(),
            };
            let held = table.statistics().shards.get(shard as usize);
            for worker in holders {
                names.push(table.name());
                numbers_.push(u64::from(shard));
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
            numbers(numbers_),
            texts(workers),
            numbers(rows),
            numbers(bytes),
        ],
    )
}

/// Asks all workers that live; a worker that does not answer fails the query, as its rows would be missing.
pub(super) async fn segments(state: &State, cluster: &Arc<Cluster>) -> Result<RecordBatch> {
    let asked = cluster.live_workers().into_iter().map(|worker| async move {
        let command = control::Command::ListSegments(ListSegments {});
        let answer = cluster.control(worker, command).await?;
        let list = SegmentList::decode(answer).map_err(|source| {
            Error::with_source(
                ErrorCode::Internal,
                "a list of segments cannot be decoded",
                source,
            )
        })?;
        Ok::<_, Error>((worker, list))
    });
    let mut found = Vec::new();
    for answer in join_all(asked).await {
        let (worker, list) = answer?;
        for segment in list.segments {
            if let Some(table) = state.table_by_id(TableId(segment.table_id)) {
                found.push((table.name(), worker, segment));
            }
        }
    }
    batch(
        Kind::Segments,
        vec![
            texts(found.iter().map(|(table, ..)| *table)),
            numbers(found.iter().map(|(.., segment)| u64::from(segment.shard))),
            texts(found.iter().map(|(_, worker, _)| worker.to_string())),
            numbers(found.iter().map(|(.., segment)| segment.write_id)),
            texts(found.iter().map(|(.., segment)| segment.file.clone())),
            numbers(found.iter().map(|(.., segment)| segment.rows)),
            numbers(found.iter().map(|(.., segment)| segment.bytes)),
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
