use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use volary_exec::batches::used_bytes;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::source::{RowSource, RowStream};

/// Maximum size of a write that is committed together with others. It is the default of
/// `worker.storage.logged_write`, so that each of these writes could go to the workers' logs.
pub(crate) const MAX_SMALL_BYTES: usize = 1 << 20;
/// Maximum number of rows of a write that is committed together with others.
const MAX_SMALL_ROWS: usize = 1 << 16;

/// The rows of a write, of which the first ones were read.
pub(super) enum ReadRows {
    /// All rows, which are few.
    Few(Vec<RecordBatch>),
    /// More rows. Those that were read are in front again.
    Many(RowSource),
}

/// Reads the rows of a source until there are too many for a small write.
///
/// # Errors
/// The errors of the rows.
pub(super) async fn read_first(source: RowSource, cpu: &Handle) -> Result<ReadRows> {
    let (partitions, plan_owner) = source.into_partitions();
    let room = Arc::new(Room::default());
    let reading = partitions
        .into_iter()
        .map(|partition| read_partition(partition, Arc::clone(&room)));
    let read = if plan_owner.is_some() {
        // A plan may compute for long without a pause. In tasks of their own, its partitions delay
        // nobody who gives the write up.
        let mut tasks = JoinSet::new();
        for reading_one in reading {
            tasks.spawn_on(reading_one, cpu);
        }
        let mut read = Vec::with_capacity(tasks.len());
        while let Some(partition) = tasks.join_next().await {
            let partition = partition.map_err(|source| {
                Error::with_source(ErrorCode::Internal, "reading rows panicked", source)
            })?;
            read.push(partition?);
        }
        read
    } else {
        // Tasks would cost more than they save.
        try_join_all(reading).await?
    };
    if read.iter().all(|partition| partition.rest.is_none()) {
        let batches = read.into_iter().flat_map(|partition| partition.first);
        return Ok(ReadRows::Few(batches.collect()));
    }
    let partitions = read.into_iter().map(|partition| {
        let first = stream::iter(partition.first).map(Ok);
        match partition.rest {
            Some(rest) => first.chain(rest).boxed(),
            None => first.boxed(),
        }
    });
    Ok(ReadRows::Many(RowSource::from_parts(
        partitions.collect(),
        plan_owner,
    )))
}

/// A partition of which the first rows were read.
struct ReadPartition {
    first: Vec<RecordBatch>,
    /// The rest of the rows. `None` if all were read.
    rest: Option<RowStream>,
}

/// The room for rows that all partitions share.
#[derive(Default)]
struct Room {
    bytes: AtomicUsize,
    rows: AtomicUsize,
    is_full: CancellationToken,
}

impl Room {
    fn add(&self, batch: &RecordBatch) {
        let used = used_bytes(batch);
        let bytes = self.bytes.fetch_add(used, Ordering::Relaxed) + used;
        let rows = self.rows.fetch_add(batch.num_rows(), Ordering::Relaxed) + batch.num_rows();
        if bytes > MAX_SMALL_BYTES || rows > MAX_SMALL_ROWS {
            self.is_full.cancel();
        }
    }
}

async fn read_partition(mut rows: RowStream, room: Arc<Room>) -> Result<ReadPartition> {
    let mut first = Vec::new();
    loop {
        let next = tokio::select! {
            biased;
            () = room.is_full.cancelled() => break,
            next = rows.next() => next,
        };
        match next {
            Some(batch) => {
                let batch = batch?;
                room.add(&batch);
                first.push(batch);
            }
            None => return Ok(ReadPartition { first, rest: None }),
        }
    }
    Ok(ReadPartition {
        first,
        rest: Some(rows),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let keys: ArrayRef = Arc::new((0..rows).collect::<Int64Array>());
        RecordBatch::try_from_iter([("k", keys)]).unwrap()
    }

    fn source(partitions: &[&[i64]]) -> RowSource {
        let partitions = partitions.iter().map(|batches| {
            let batches: Vec<_> = batches.iter().map(|rows| Ok(batch(*rows))).collect();
            stream::iter(batches).boxed()
        });
        RowSource::new(partitions.collect())
    }

    async fn count(read: ReadRows) -> (bool, usize) {
        match read {
            ReadRows::Few(batches) => (true, batches.iter().map(RecordBatch::num_rows).sum()),
            ReadRows::Many(source) => {
                let mut rows = 0;
                for mut partition in source.into_partitions().0 {
                    while let Some(batch) = partition.next().await {
                        rows += batch.unwrap().num_rows();
                    }
                }
                (false, rows)
            }
        }
    }

    #[tokio::test]
    async fn few_rows_are_read_and_of_many_none_is_lost() {
        for (partitions, is_few, rows) in [
            (&[][..], true, 0),
            (&[&[][..]], true, 0),
            (&[&[1, 2][..]], true, 3),
            (&[&[1, 2][..], &[], &[4]], true, 7),
            (&[&[7, 200_000, 5][..]], false, 200_012),
            (&[&[60_000][..], &[60_000], &[1]], false, 120_001),
        ] {
            let read = read_first(source(partitions), &Handle::current()).await;
            assert_eq!(count(read.unwrap()).await, (is_few, rows));
        }
    }

    #[tokio::test]
    async fn a_partition_that_waits_is_not_waited_for_when_another_has_many_rows() {
        let endless = stream::pending().boxed();
        let large = stream::iter([Ok(batch(200_000))]).boxed();
        let source = RowSource::new(vec![endless, large]);
        let read = read_first(source, &Handle::current()).await.unwrap();
        assert!(matches!(read, ReadRows::Many(_)));
    }
}
