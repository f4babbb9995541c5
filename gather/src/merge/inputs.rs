use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;
use parking_lot::Mutex;
use volary_exec::buckets::Buckets;

use super::exchange::Exchange;
use super::reader::MergeReader;
use crate::stream::WorkerStream;

/// Maximum number of rows that all readers together coalesce for all partitions.
const COALESCED_ROWS: usize = 1 << 18;
/// Minimum size of the batches that readers coalesce, in rows. The last batch of a step may be
/// smaller.
const MIN_ROWS: usize = 64;
const MAX_ROWS: usize = 8192;

/// A plan node whose workers a merge reads as separate streams.
pub trait GatherSource: ExecutionPlan {
    /// Returns the streams of a partition's workers. A stream opens when it is polled.
    ///
    /// # Errors
    /// `INTERNAL` if the task does not belong to a query, or if the workers are not known.
    fn open(&self, partition: usize, task: &Arc<TaskContext>) -> Result<Vec<WorkerStream>>;

    /// Returns the number of bytes that the merge may hold.
    ///
    /// # Errors
    /// `INTERNAL` if the task does not belong to a query.
    fn memory(&self, task: &TaskContext) -> Result<usize>;
}

/// The gather below a merge, and its readers.
#[derive(Debug)]
pub(super) struct MergeInputs<S> {
    pub(super) gather: Arc<dyn ExecutionPlan>,
    pub(super) buckets: Buckets,
    reading: Mutex<ReaderTasks>,
    /// Marks the type of the gather.
    source: PhantomData<fn() -> S>,
}

#[derive(Debug, Default)]
struct ReaderTasks {
    exchange: Option<Arc<Exchange>>,
    readers: Vec<SpawnedTask<()>>,
    /// The partitions that nobody reads any more.
    closed: Vec<usize>,
}

impl<S: GatherSource> MergeInputs<S> {
    pub(super) fn new(gather: Arc<dyn ExecutionPlan>, buckets: Buckets) -> Self {
        Self {
            gather,
            buckets,
            reading: Mutex::default(),
            source: PhantomData,
        }
    }

    /// Returns the exchange, and starts the readers if this is the first partition that is polled.
    /// They are not started earlier, so that a join above can first learn which rows it needs.
    ///
    /// # Errors
    /// `INTERNAL` if the task does not belong to a query.
    pub(super) fn exchange(&self, context: &Arc<TaskContext>) -> Result<Arc<Exchange>> {
        let mut reading = self.reading.lock();
        if let Some(exchange) = &reading.exchange {
            return Ok(Arc::clone(exchange));
        }
        let Some(gather) = self.gather.downcast_ref::<S>() else {
            return internal_err!("a merge of buckets is not above a gather");
        };
        let memory = gather.memory(context)?;
        let consumer = MemoryConsumer::new("rows to be merged");
        let readers = gather.properties().output_partitioning().partition_count();
        let exchange = Arc::new(Exchange::new(
            readers,
            self.buckets.partitions(),
            self.buckets.rounds(),
            memory,
            consumer.register(context.memory_pool()),
        ));
        let schema = gather.schema();
        let coalescers = (readers * self.buckets.partitions()).max(1);
        let batch_rows = (COALESCED_ROWS / coalescers).clamp(MIN_ROWS, MAX_ROWS);
        let tasks = (0..readers).map(|partition| {
            let workers = gather.open(partition, context)?;
            let (buckets, exchange) = (self.buckets.clone(), Arc::clone(&exchange));
            let reader = MergeReader::new(workers, buckets, exchange, &schema, batch_rows);
            Ok(SpawnedTask::spawn(reader.run()))
        });
        reading.readers = tasks.collect::<Result<_>>()?;
        for partition in &reading.closed {
            exchange.close(*partition);
        }
        reading.exchange = Some(Arc::clone(&exchange));
        Ok(exchange)
    }

    /// Notes that nobody reads a partition any more. When nobody reads any partition, the readers
    /// end, and with them the workers' streams.
    fn close(&self, partition: usize) {
        let mut reading = self.reading.lock();
        if let Some(exchange) = &reading.exchange {
            exchange.close(partition);
        }
        reading.closed.push(partition);
        if reading.closed.len() == self.buckets.partitions() {
            reading.readers.clear();
        }
    }
}

/// Keeps a partition open: somebody reads it, or will read it, until this value is dropped.
#[derive(Debug)]
pub(super) struct ReadGuard<S: GatherSource> {
    pub(super) inputs: Arc<MergeInputs<S>>,
    pub(super) partition: usize,
}

impl<S: GatherSource> ReadGuard<S> {
    /// Returns the number of the partition.
    pub(super) fn partition(&self) -> usize {
        self.partition
    }
}

impl<S: GatherSource> Drop for ReadGuard<S> {
    fn drop(&mut self) {
        self.inputs.close(self.partition);
    }
}

/// The rows of a partition in the step that is merged now. The partition's aggregate reads them.
#[derive(Debug)]
pub(super) struct StepRows<S> {
    pub(super) inputs: Arc<MergeInputs<S>>,
    pub(super) partition: usize,
    pub(super) schema: SchemaRef,
}

impl<S: GatherSource> PartitionStream for StepRows<S> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (exchange, partition) = (self.inputs.reading.lock().exchange.clone(), self.partition);
        let rows = stream::poll_fn(move |cx| match &exchange {
            Some(exchange) => exchange.poll_rows(partition, cx),
            None => Poll::Ready(Some(Err(internal_datafusion_err!(
                "a step of a merge is read before its readers were started"
            )))),
        });
        let schema = Arc::clone(&self.schema);
        Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
