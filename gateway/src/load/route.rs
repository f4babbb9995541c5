use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{BatchCoalescer, take_record_batch};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use volary_catalog::{Table, TableKind};
use volary_exec::batches::{compact, target_rows};
use volary_exec::shard_key::shards_of;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::checks::Checks;
use super::fit;
use super::message::message_schema;
use super::put::{Puts, RowSender};
use super::source::RowStream;

/// Approximate size of a batch that is sent. It is small enough for the batch to stay in a core's
/// cache while it is split, encoded, sent and decoded.
const TARGET_BATCH_BYTES: usize = 512 << 10;

/// Number of consecutive rows that go to the same shard if the table has no shard key. It is small,
/// so that the rows of a batch go to several workers.
const ROWS_PER_SHARD_RUN: usize = 512;

/// Splits the rows of one partition by worker, and joins them into larger batches again. Its memory
/// depends on the rows and on the workers that get some, and not on the numbers of all shards and
/// workers: a single row must be cheap in a table with thousands of both.
pub(super) struct RowRouter {
    table: Arc<Table>,
    schema: SchemaRef,
    puts: Puts,
    /// The workers that have got rows so far.
    lanes: BTreeMap<WorkerId, Lane>,
    /// Number of rows in a batch that is sent. It is estimated from the first rows.
    target_batch_rows: Option<usize>,
    /// The shard that the next rows of a table without a shard key go to, modulo the number of
    /// shards.
    next_shard: u32,
}

/// The way of rows to one worker.
struct Lane {
    sender: RowSender,
    coalescer: BatchCoalescer,
}

impl RowRouter {
    /// Creates a router. `first_shard` is the shard at which the rows of a table without a shard
    /// key begin, modulo the number of shards.
    pub(super) fn new(table: Arc<Table>, puts: Puts, first_shard: u32) -> Self {
        Self {
            schema: message_schema(&table),
            table,
            puts,
            lanes: BTreeMap::new(),
            target_batch_rows: None,
            next_shard: first_shard,
        }
    }

    async fn push(&mut self, rows: RecordBatch) -> Result<()> {
        let TableKind::Sharded { key, shards } = self.table.kind() else {
            for worker in self.table.workers() {
                send(&self.puts.sender(*worker), rows.clone()).await?;
            }
            return Ok(());
        };
        let shard_of_row = match key {
            Some(key) => shards_of(rows.column(*key).as_ref(), *shards)?,
            None => self.next_shards(rows.num_rows(), *shards),
        };
        let rows_of_worker = rows_of_worker(&self.table, &shard_of_row)?;
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(UInt32Array::from(shard_of_row)) as ArrayRef);
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(internal)?;
        let target_batch_rows = *self
            .target_batch_rows
            .get_or_insert_with(|| target_rows(&rows, TARGET_BATCH_BYTES));
        for (worker, indices) in rows_of_worker {
            let part = take_record_batch(&rows, &UInt32Array::from(indices)).map_err(internal)?;
            let lane = self.lanes.entry(worker).or_insert_with(|| Lane {
                sender: self.puts.sender(worker),
                coalescer: BatchCoalescer::new(Arc::clone(&self.schema), target_batch_rows),
            });
            lane.coalescer.push_batch(part).map_err(internal)?;
            lane.send_completed().await?;
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

    async fn finish(self) -> Result<()> {
        for mut lane in self.lanes.into_values() {
            lane.coalescer.finish_buffered_batch().map_err(internal)?;
            lane.send_completed().await?;
        }
        Ok(())
    }
}

impl Lane {
    async fn send_completed(&mut self) -> Result<()> {
        while let Some(batch) = self.coalescer.next_completed_batch() {
            send(&self.sender, compact(batch).map_err(internal)?).await?;
        }
        Ok(())
    }
}

/// Returns the rows of each worker that gets some, ordered by shard. The worker copies the rows of
/// a shard together, which is faster if they are next to each other.
fn rows_of_worker(table: &Table, shard_of_row: &[u32]) -> Result<BTreeMap<WorkerId, Vec<u32>>> {
    let shard_of = |row: u32| shard_of_row[row as usize];
    let mut rows_of_worker: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    let by_shard = rows_by_shard(shard_of_row, table.shards());
    for rows in by_shard.chunk_by(|row, next| shard_of(*row) == shard_of(*next)) {
        let shard = shard_of(rows[0]);
        let worker = table.worker_of(shard).ok_or_else(|| {
            Error::internal(format!("table {} has no shard {shard}", table.name()))
        })?;
        let of_worker = rows_of_worker.entry(worker).or_default();
        of_worker.extend_from_slice(rows);
    }
    Ok(rows_of_worker)
}

/// Returns the numbers of the rows, ordered by shard. The rows of a shard keep their order.
fn rows_by_shard(shard_of_row: &[u32], shards: u32) -> Vec<u32> {
    let shards = shards as usize;
    if shard_of_row.len() < shards {
        let mut rows: Vec<u32> = (0..).take(shard_of_row.len()).collect();
        rows.sort_by_key(|row| shard_of_row[*row as usize]);
        return rows;
    }
    // At first, `ends` has the position in `by_shard` at which the rows of each shard begin. The
    // loop that fills `by_shard` advances it to the position at which they end.
    let mut ends = vec![0; shards + 1];
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
    by_shard
}

/// Fits rows to their table, and refuses them if they violate a check of the table.
///
/// # Errors
/// The errors of the rows.
pub(super) fn fit_and_check(checks: &Checks, rows: &RecordBatch) -> Result<RecordBatch> {
    let table = checks.table();
    let rows = fit::fit_by_position(&table.name().to_string(), table.schema(), rows)?;
    checks.check(&rows)?;
    Ok(rows)
}

/// Sends all rows of a partition to their workers. The rows must have passed [`fit_and_check`].
///
/// # Errors
/// The errors of the rows. `CANCELLED` if the stream to a worker ended early; the error of that
/// stream says why.
pub(super) async fn route_rows(mut router: RowRouter, mut rows: RowStream) -> Result<()> {
    while let Some(batch) = rows.next().await {
        router.push(batch?).await?;
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use tokio::runtime::Handle;
    use tracing::Span;
    use uuid::Uuid;
    use volary_catalog::access::Rights;
    use volary_catalog::{
        Catalog, DefinitionKind, IfExists, RedbStore, RelationName, TableDefinition,
    };
    use volary_flight_proto::ids::{QueryId, WriteId};
    use volary_node::disk::LocalDisk;

    use super::super::put::{self, PutContext};
    use super::*;
    use crate::cluster::Cluster;
    use crate::config::Config;

    #[test]
    fn rows_are_ordered_by_shard_whether_there_are_more_rows_or_more_shards() {
        for shards in [1, 3, 7, 100] {
            let shard_of_row: Vec<u32> = (0..20).map(|row| row * 7 % shards).collect();
            let rows = rows_by_shard(&shard_of_row, shards);
            let mut expected: Vec<u32> = (0..20).collect();
            expected.sort_by_key(|row| (shard_of_row[*row as usize], *row));
            assert_eq!(rows, expected, "{shards} shards");
        }
    }

    #[tokio::test]
    async fn a_row_takes_one_stream_and_one_lane_however_many_workers_there_are() {
        let directory = std::env::temp_dir().join(format!("volary-route-{}", Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let store = RedbStore::open(&directory, Arc::new(LocalDisk));
        let catalog = Catalog::open(Arc::new(store.await.unwrap())).await.unwrap();
        let workers: Vec<_> = (1..=2_160).map(WorkerId).collect();
        let definition = TableDefinition {
            name: RelationName::in_public("t"),
            schema: Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)])),
            kind: DefinitionKind::Sharded {
                key: Some(0),
                shards: 8_640,
            },
            sort_key: Vec::new(),
            declarations: Default::default(),
        };
        let by = Arc::new(Rights::of_open_cluster("kea"));
        let created = catalog.create_table(definition, &workers, IfExists::Fail, &by);
        let table = created.await.unwrap().unwrap();
        assert_eq!(table.workers().len(), workers.len());
        let address = SocketAddr::from(([127, 0, 0, 1], 7100));
        let config = Config::default();
        let cluster = Cluster::new(
            &config,
            address,
            catalog.clone(),
            None,
            Handle::current(),
            None,
        );
        let (puts, opened) = put::open(PutContext {
            cluster,
            idle: Duration::from_secs(1),
            owner: 0,
            query_id: QueryId::new(),
            table: Arc::clone(&table),
            write: WriteId(1),
            span: Span::none(),
        });
        let mut router = RowRouter::new(Arc::clone(&table), puts.clone(), 0);
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let row = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        router.push(row).await.unwrap();
        assert_eq!((router.lanes.len(), puts.count()), (1, 1));
        let worker = *router.lanes.keys().next().unwrap();
        let shard = shards_of(&Int64Array::from(vec![7]), table.shards()).unwrap()[0];
        assert_eq!(table.worker_of(shard), Some(worker));
        drop((router, puts, opened, catalog));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
