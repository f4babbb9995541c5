//! Arriving rows are checked against the table ([`layout`]). They are sorted by shard and sort key,
//! in memory ([`buffer`]) or with a sort that spills ([`sort`]). Then they are written into files
//! ([`segments`], [`crate::segment`]). If the rows are in memory, several shards are encoded at the
//! same time. The store names the segments only at the end. So a write that fails or is dropped
//! midway leaves nothing but files that its guards delete.
//!
//! A stream that was received before is refused ([`received_streams`]).
//!
//! A few rows are put into the log by the thread that has received them. Otherwise sorting,
//! encoding and writing into files run on the CPU runtime: they compute, and a write goes to the
//! page cache, not to the disk. What waits for the disk (creating files, fsync, the store) runs on
//! the blocking threads of the runtime.

/// Slows writes down, and refuses them, while the worker cannot keep up.
mod backpressure;
/// Sorts rows that fit into memory.
mod buffer;
/// Collects statistics of the columns of a write, for the catalog's statistics.
mod column_statistics;
/// Makes segments of rows that are in the log only.
mod flush;
/// Describes the rows of a write, and checks them.
mod layout;
/// Remembers the streams of rows that were received, so that each is accepted only once.
mod received_streams;
/// Cuts sorted rows into shards, and shards into files.
mod segments;
/// Collects the rows of a small write for the log.
mod small;
/// Sorts rows by shard and sort key, in bounded memory.
mod sort;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::{Stream, StreamExt};
use tokio::task::JoinSet;
use tracing::Instrument;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write::{ShardWritten, TableDescription, WriteRequest, WriteResult};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::runtimes::continue_on_cpu;
use volary_node::{Runtimes, kill_point};

use crate::background::run_blocking;
use crate::config;
use crate::context::WorkerContext;
use crate::segment::SegmentProperties;
use crate::storage::{RunningWrite, Segment, Storage};
use crate::totals::WorkerTotals;
pub(crate) use backpressure::Backpressure;
use buffer::ShardGroup;
use column_statistics::ColumnStatistics;
pub(crate) use flush::flush;
pub(crate) use layout::WriteLayout;
pub(crate) use received_streams::ReceivedStreams;
use segments::SegmentsWriter;
use sort::Sorted;

/// Resources and settings that a write needs.
#[derive(Debug, Clone)]
pub struct WriteContext {
    /// The storage that the rows go to.
    pub storage: Storage,
    /// Settings for segments.
    pub config: config::StorageConfig,
    /// Number of segments of one write that are made at the same time.
    pub parallelism: usize,
    /// Memory and spill space of the sort.
    pub runtime_env: Arc<RuntimeEnv>,
    /// The runtimes on which the work is done.
    pub runtimes: Runtimes,
    /// Totals of what the worker has done.
    pub totals: Arc<WorkerTotals>,
}

impl WriteContext {
    /// Builds the context of the worker's own writes.
    pub(crate) fn of_worker(context: &WorkerContext) -> Self {
        Self {
            storage: context.storage.clone(),
            config: context.config.storage.clone(),
            parallelism: context.target_partitions(),
            runtime_env: Arc::clone(&context.runtime_env),
            runtimes: context.runtimes.clone(),
            totals: Arc::clone(&context.totals),
        }
    }
}

/// Stores rows. They are durable when this function returns, and invisible until the catalog
/// commits the write. The rows have the table's columns. Unless the table is a reference table,
/// they also have a last column [`SHARD_COLUMN`](volary_flight_proto::write::SHARD_COLUMN). The
/// same write may come several times, each time with other rows.
///
/// If the write fails, or if the future is dropped, no rows are left, unless that happens while the
/// store is written. Then aborting the write removes the rows that the store names.
///
/// # Errors
/// Returns `INVALID_ARGUMENT`, with the column, for rows that do not fit the table. Returns
/// `NOT_FOUND` if the table was dropped, and `CANCELLED` if the write was aborted meanwhile.
/// Returns `RESOURCE_EXHAUSTED` if memory, spill space or the disk is full. Also returns the errors
/// of the stream.
pub async fn write(
    context: &WriteContext,
    request: WriteRequest,
    rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
) -> Result<WriteResult> {
    let table = request
        .table
        .ok_or_else(|| Error::invalid("the write request has no table"))?;
    let layout = WriteLayout::new(&table)?;
    let write = WriteId(request.write_id);
    let running = context.storage.begin(write)?;
    let name = table.name.clone();
    let number = WriteNumber {
        write,
        incarnation: request.lineage.map_or(0, |lineage| lineage.incarnation),
    };
    let work = run(context.clone(), table, layout, number, running, rows).in_current_span();
    let written = context.runtimes.start_here(work).await;
    written.map_err(|error| error.at(format!("table {name}")))
}

/// The number of a write, and the incarnation of the catalog that gave it out.
#[derive(Debug, Clone, Copy)]
struct WriteNumber {
    write: WriteId,
    incarnation: u32,
}

async fn run(
    context: WriteContext,
    table: TableDescription,
    layout: WriteLayout,
    WriteNumber { write, incarnation }: WriteNumber,
    mut running: RunningWrite,
    rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
) -> Result<WriteResult> {
    context.storage.note_table(&table);
    let layout = Arc::new(layout);
    let properties = Arc::new(SegmentProperties::new(
        layout.schema(),
        layout.shard_key(),
        layout.sort_key(),
        &context.config,
    )?);
    let new_writer = || SegmentsWriter::new(&context, &layout, &properties, write);
    let mut columns = ColumnStatistics::new(layout.schema())?;
    let segments =
        match sort::sort_rows(&layout, rows, &context.runtime_env, context.parallelism).await? {
            Sorted::Stream(rows) => {
                continue_on_cpu().await;
                write_stream(rows, new_writer(), &mut columns).await?
            }
            Sorted::Parts(parts) if small::is_small(&parts, &context.config) => {
                let rows = small::collect(parts, table, write, incarnation)?;
                columns.update(&rows.rows)?;
                let written = small::summary(&rows);
                let logged_bytes;
                (logged_bytes, running) = context.storage.append(&rows, running).await?;
                if let Some(bytes) = logged_bytes {
                    context.totals.logged_bytes.inc_by(bytes);
                    return columns.into_result(written);
                }
                continue_on_cpu().await;
                small::write_segments(rows, new_writer()).await?
            }
            Sorted::Parts(parts) => {
                continue_on_cpu().await;
                let mut part_tasks = JoinSet::new();
                for part in parts {
                    let columns = ColumnStatistics::new(layout.schema())?;
                    part_tasks.spawn(write_part(part, new_writer(), columns).in_current_span());
                }
                let mut segments = Vec::new();
                while let Some(ended) = part_tasks.join_next().await {
                    let (more, others) = ended.map_err(|source| {
                        Error::with_source(ErrorCode::Internal, "writing segments panicked", source)
                    })??;
                    segments.extend(more);
                    columns.merge(others)?;
                }
                segments.sort_by_key(Segment::shard);
                segments
            }
        };
    let result = columns.into_result(summary(&segments))?;
    if !segments.is_empty() {
        let bytes = segments.iter().map(Segment::bytes).sum();
        context.totals.written_bytes.inc_by(bytes);
        let table = layout.table();
        // The thread continues even if this future is dropped. The write counts as running until
        // the thread is done.
        run_blocking(move || {
            let _running = running;
            kill_point("write.before_store");
            context.storage.add(table, segments)?;
            kill_point("write.after_store");
            Ok(())
        })
        .await?;
    }
    tracing::debug!(shards = result.shards.len(), "rows are durable");
    Ok(result)
}

async fn write_stream(
    mut rows: SendableRecordBatchStream,
    mut writer: SegmentsWriter,
    columns: &mut ColumnStatistics,
) -> Result<Vec<Segment>> {
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        columns.update(&batch)?;
        writer.write(&batch).await?;
        // A task does not yield while its rows are at hand, and only a task that yields can be
        // cancelled.
        tokio::task::yield_now().await;
    }
    drop(rows);
    writer.finish().await
}

async fn write_part(
    mut part: ShardGroup,
    mut writer: SegmentsWriter,
    mut columns: ColumnStatistics,
) -> Result<(Vec<Segment>, ColumnStatistics)> {
    while let Some((shard, rows)) = part.next_rows()? {
        columns.update(&rows)?;
        writer.append(shard, &rows).await?;
        // A task does not yield while its rows are at hand, and only a task that yields can be
        // cancelled.
        tokio::task::yield_now().await;
    }
    drop(part);
    Ok((writer.finish().await?, columns))
}

fn summary(segments: &[Segment]) -> Vec<ShardWritten> {
    let mut shards: BTreeMap<u32, ShardWritten> = BTreeMap::new();
    for segment in segments {
        let shard = shards
            .entry(segment.shard())
            .or_insert_with(|| ShardWritten {
                shard: segment.shard(),
                ..ShardWritten::default()
            });
        shard.rows += segment.rows();
        shard.bytes += segment.bytes();
        shard.segments += 1;
    }
    shards.into_values().collect()
}
