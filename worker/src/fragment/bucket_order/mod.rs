//! A gateway that merges the partial results of thousands of workers holds one round of
//! [buckets](Buckets) of all workers at a time. So a worker sends its rows by ascending bucket. It
//! knows this order only when it has computed all rows. Until then it holds the rows, and spills
//! what it cannot hold in memory. Few rows come in a single round, as one message.

/// Holds rows until all of them are there, in memory or spilled.
mod buffer;
/// Merges the rows of several sources, each in the order of its buckets, into one order.
mod merge;

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use volary_exec::buckets::{BucketPiece, Buckets};
use volary_flight_proto::frame::RowsByBucket;

use buffer::BucketBuffer;

/// The order in which rows are to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketOrder {
    /// The buckets.
    pub(crate) buckets: Buckets,
    /// Total size up to which all rows come in one round, in bytes.
    pub(crate) small_bytes: usize,
    /// Size that a batch should have, in bytes.
    pub(crate) batch_bytes: usize,
}

/// The outlines of the batches of a stream in bucket order. An outline says which buckets a batch
/// contains, and how many rows of each. The outlines are in the order of the batches. Each is sent
/// in the message of its batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outlines(Arc<Mutex<VecDeque<RowsByBucket>>>);

impl Outlines {
    /// Returns the outline of the next batch.
    pub(crate) fn next(&self) -> Option<RowsByBucket> {
        self.0.lock().pop_front()
    }

    fn add(&self, rounds: usize, total_bytes: usize, pieces: &[BucketPiece]) {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.0.lock().push_back(RowsByBucket {
            rounds: number(rounds),
            total_bytes: total_bytes as u64,
            buckets: pieces.iter().map(|piece| number(piece.bucket)).collect(),
            rows: pieces.iter().map(|piece| number(piece.rows)).collect(),
        });
    }
}

/// Runs all partitions of the plan, and returns their rows in bucket order, each batch with its
/// outline. The time that this takes, without the plan, is added to `ordering`.
///
/// # Errors
/// Returns the errors of starting the plan. The stream returns the errors of the plan, and those of
/// memory and spill space.
pub(crate) fn execute_in_bucket_order(
    plan: &Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
    order: BucketOrder,
    ordering: &Time,
) -> Result<(SendableRecordBatchStream, Outlines)> {
    let schema = plan.schema();
    let inputs = (0..plan.output_partitioning().partition_count())
        .map(|partition| plan.execute(partition, Arc::clone(task)))
        .collect::<Result<Vec<_>>>()?;
    let buffer = Arc::new(BucketBuffer::new(Arc::clone(&schema), order, task));
    let outlines = Outlines::default();
    let (shared_outlines, ordering) = (outlines.clone(), ordering.clone());
    let rows = stream::once(async move {
        let full_buffer = buffer_all(inputs, buffer, &ordering).await?;
        merged_batches(&full_buffer, shared_outlines, ordering)
    })
    .try_flatten();
    Ok((
        Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
        outlines,
    ))
}

/// Reads all rows of the inputs. The inputs are read in parallel, because each of them computes.
async fn buffer_all(
    inputs: Vec<SendableRecordBatchStream>,
    buffer: Arc<BucketBuffer>,
    ordering: &Time,
) -> Result<Arc<BucketBuffer>> {
    let mut tasks = JoinSet::new();
    for mut input in inputs {
        let (task_buffer, ordering) = (Arc::clone(&buffer), ordering.clone());
        tasks.spawn(async move {
            while let Some(batch) = input.next().await {
                let batch = batch?;
                let _ordering = ordering.timer();
                task_buffer.add(batch)?;
            }
            Ok::<_, DataFusionError>(())
        });
    }
    while let Some(read) = tasks.join_next().await {
        read.map_err(|panicked| DataFusionError::External(Box::new(panicked)))??;
    }
    Ok(buffer)
}

fn merged_batches(
    buffer: &BucketBuffer,
    outlines: Outlines,
    ordering: Time,
) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
    let total_bytes = buffer.total_bytes();
    let (merged, rounds) = buffer.merge()?;
    Ok(stream::try_unfold(merged, move |mut merged| {
        let (outlines, ordering) = (outlines.clone(), ordering.clone());
        async move {
            let _ordering = ordering.timer();
            let Some(divided) = merged.next().await? else {
                return Ok(None);
            };
            outlines.add(rounds, total_bytes, &divided.pieces);
            Ok(Some((divided.batch, merged)))
        }
    }))
}

#[cfg(test)]
mod tests;
