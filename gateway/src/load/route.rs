use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{BatchCoalescer, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use tokio::sync::mpsc;
use volary_catalog::shard_key::shards_of;
use volary_catalog::{Table, TableKind};
use volary_exec::batches::{compact, target_rows};
use volary_flight_proto::write::SHARD_COLUMN;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::checks::Checks;
use super::fit;
use super::progress::LoadProgress;
use super::source::RowStream;

/// Approximate size of a batch that is sent. It is small enough for the batch to stay in a core's
/// cache while it is split, encoded, sent and decoded.
const TARGET_BATCH_BYTES: usize = 512 << 10;

/// Number of consecutive rows that go to the same shard if the table has no shard key. It is small,
/// so that the rows of a batch go to several workers.
const ROWS_PER_SHARD_RUN: usize = 512;

/// The channel for the rows of one worker.
pub(crate) type RowSender = mpsc::Sender<RecordBatch>;

/// Returns the schema of the rows that are sent to a worker: the table's columns and, unless the
/// table is a reference table, a column with the number of the row's shard.
pub(crate) fn message_schema(table: &Table) -> SchemaRef {
    match table.kind() {
        TableKind::Reference { .. } => Arc::clone(table.schema()),
        TableKind::Sharded { .. } => {
            let mut fields: Vec<_> = table.schema().fields().iter().cloned().collect();
            fields.push(Arc::new(Field::new(SHARD_COLUMN, DataType::UInt32, false)));
            Arc::new(Schema::new(fields))
        }
    }
}

/// Splits the rows of one partition by worker, and joins them into larger batches again.
pub(crate) struct RowRouter {
    table: Arc<Table>,
    schema: SchemaRef,
    senders: Vec<RowSender>,
    /// The coalescer of each worker, or `None` until there are rows for the worker. A small write
    /// needs only a few coalescers, even if there are thousands of workers.
    coalescers: Vec<Option<BatchCoalescer>>,
    /// Number of rows in a batch that is sent. It is estimated from the first rows.
    target_batch_rows: Option<usize>,
    /// Position of each shard's worker among the senders.
    worker_of_shard: Vec<usize>,
    /// The shard that the next rows of a table without a shard key go to, modulo the number of
    /// shards.
    next_shard: u32,
}

impl RowRouter {
    /// Creates a router. `senders` are those of the table's workers, in the order of
    /// [`Table::workers`]. `first_shard` is the shard at which the rows of a table without a shard
    /// key begin, modulo the number of shards.
    pub(crate) fn new(table: Arc<Table>, senders: Vec<RowSender>, first_shard: u32) -> Self {
        let schema = message_schema(&table);
        let positions: BTreeMap<_, _> = table
            .workers()
            .iter()
            .enumerate()
            .map(|(position, worker)| (*worker, position))
            .collect();
        let worker_of_shard = (0..table.shards())
            .map(|shard| {
                table
                    .worker_of(shard)
                    .and_then(|worker| positions.get(&worker).copied())
                    .unwrap_or(0)
            })
            .collect();
        Self {
            table,
            schema,
            coalescers: senders.iter().map(|_| None).collect(),
            senders,
            target_batch_rows: None,
            worker_of_shard,
            next_shard: first_shard,
        }
    }

    async fn push(&mut self, rows: RecordBatch) -> Result<()> {
        let TableKind::Sharded { key, shards } = self.table.kind() else {
            for sender in &self.senders {
                send(sender, rows.clone()).await?;
            }
            return Ok(());
        };
        let shard_of_row = match key {
            Some(key) => shards_of(rows.column(*key).as_ref(), *shards)?,
            None => self.next_shards(rows.num_rows(), *shards),
        };
        let rows_of_worker = self.rows_of_worker(&shard_of_row);
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(UInt32Array::from(shard_of_row)) as ArrayRef);
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(internal)?;
        let target_batch_rows = *self
            .target_batch_rows
            .get_or_insert_with(|| target_rows(&rows, TARGET_BATCH_BYTES));
        for (position, indices) in rows_of_worker.into_iter().enumerate() {
            if indices.is_empty() {
                continue;
            }
            let part = take_record_batch(&rows, &UInt32Array::from(indices)).map_err(internal)?;
            let coalescer = self.coalescers[position].get_or_insert_with(|| {
                BatchCoalescer::new(Arc::clone(&self.schema), target_batch_rows)
            });
            coalescer.push_batch(part).map_err(internal)?;
            while let Some(batch) = coalescer.next_completed_batch() {
                send(&self.senders[position], compact(batch).map_err(internal)?).await?;
            }
        }
        Ok(())
    }

    /// Returns a shard for each row of a table without a shard key. Each run of
    /// `ROWS_PER_SHARD_RUN` rows goes to the next shard.
    fn next_shards(&mut self, rows: usize, shards: u32) -> Vec<u32> {
        let mut shard_of_row = Vec::with_capacity(rows);
        while shard_of_row.len() < rows {
            let run = ROWS_PER_SHARD_RUN.min(rows - shard_of_row.len());
            shard_of_row.extend(std::iter::repeat_n(self.next_shard % shards, run));
            self.next_shard = self.next_shard.wrapping_add(1);
        }
        shard_of_row
    }

    /// Returns the rows of each worker, ordered by shard. The worker copies the rows of a shard
    /// together, which is faster if they are next to each other.
    fn rows_of_worker(&self, shard_of_row: &[u32]) -> Vec<Vec<u32>> {
        // At first, `ends` has the position in `by_shard` at which the rows of each shard begin.
        // The loop that fills `by_shard` advances it to the position at which they end.
        let mut ends = vec![0; self.worker_of_shard.len() + 1];
        for shard in shard_of_row {
            ends[*shard as usize + 1] += 1;
        }
        for shard in 1..ends.len() {
            ends[shard] += ends[shard - 1];
        }
        let mut by_shard = vec![0; shard_of_row.len()];
        for (row, shard) in (0..).zip(shard_of_row) {
            let end: &mut usize = &mut ends[*shard as usize];
            by_shard[*end] = row;
            *end += 1;
        }
        let mut rows_of_worker = vec![Vec::new(); self.senders.len()];
        let mut start = 0;
        for (worker, end) in self.worker_of_shard.iter().zip(ends) {
            rows_of_worker[*worker].extend_from_slice(&by_shard[start..end]);
            start = end;
        }
        rows_of_worker
    }

    async fn finish(mut self) -> Result<()> {
        for (coalescer, sender) in self.coalescers.iter_mut().zip(&self.senders) {
            let Some(coalescer) = coalescer else {
                continue;
            };
            coalescer.finish_buffered_batch().map_err(internal)?;
            while let Some(batch) = coalescer.next_completed_batch() {
                send(sender, compact(batch).map_err(internal)?).await?;
            }
        }
        Ok(())
    }
}

/// Sends all rows of a partition to their workers.
///
/// # Errors
/// The errors of the rows. `CANCELLED` if the stream to a worker ended early; the error of that
/// stream says why.
pub(crate) async fn route_rows(
    mut router: RowRouter,
    mut rows: RowStream,
    checks: Arc<Checks>,
    progress: LoadProgress,
) -> Result<()> {
    let table = checks.table();
    while let Some(batch) = rows.next().await {
        let batch = fit::fit_by_position(&table.name().to_string(), table.schema(), &batch?)?;
        checks.check(&batch)?;
        let count = batch.num_rows();
        router.push(batch).await?;
        progress.add(count);
    }
    router.finish().await
}

async fn send(sender: &RowSender, batch: RecordBatch) -> Result<()> {
    sender
        .send(batch)
        .await
        .map_err(|_| Error::new(ErrorCode::Cancelled, "a worker stopped taking rows"))
}

fn internal(source: arrow::error::ArrowError) -> Error {
    Error::with_source(ErrorCode::Internal, "rows cannot be split", source)
}
