use std::mem;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use parking_lot::Mutex;
use volary_exec::batches::{compact, target_rows, used_bytes};
use volary_exec::buckets::DividedRows;

use super::BucketOrder;
use super::merge::{Merged, Run, Sink, Source};

/// Number of rows of a spilled batch. While runs are merged, one batch of each run is in memory.
const SPILLED_ROWS: usize = 8192;

/// The rows of a fragment. Each divided batch is in the order of its buckets.
#[derive(Debug)]
pub(super) struct BucketBuffer {
    schema: SchemaRef,
    order: BucketOrder,
    spills: SpillManager,
    rows: Mutex<BufferedRows>,
}

#[derive(Debug)]
struct BufferedRows {
    reservation: MemoryReservation,
    total_bytes: usize,
    /// The batches as they came, as long as there are few rows; `None` afterwards.
    undivided: Option<Vec<RecordBatch>>,
    divided: Vec<DividedRows>,
    runs: Vec<Run>,
}

impl BucketBuffer {
    pub(super) fn new(schema: SchemaRef, order: BucketOrder, task: &TaskContext) -> Self {
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let consumer = MemoryConsumer::new("rows in bucket order").with_can_spill(true);
        Self {
            spills: SpillManager::new(task.runtime_env(), metrics, Arc::clone(&schema)),
            schema,
            order,
            rows: Mutex::new(BufferedRows {
                reservation: consumer.register(task.memory_pool()),
                total_bytes: 0,
                undivided: Some(Vec::new()),
                divided: Vec::new(),
                runs: Vec::new(),
            }),
        }
    }

    /// Returns the size of all rows, in bytes.
    pub(super) fn total_bytes(&self) -> usize {
        self.rows.lock().total_bytes
    }

    /// Keeps a batch of the fragment.
    ///
    /// # Errors
    /// Returns an error if the batch can neither be held in memory nor spilled.
    pub(super) fn add(&self, batch: RecordBatch) -> Result<()> {
        let bytes = used_bytes(&batch);
        let to_divide = {
            let mut rows = self.rows.lock();
            rows.total_bytes += bytes;
            let has_room = rows.total_bytes <= self.order.small_bytes
                && rows.undivided.is_some()
                && rows.reservation.try_grow(bytes).is_ok();
            let mut to_divide = vec![batch];
            match &mut rows.undivided {
                Some(few) if has_room => {
                    few.append(&mut to_divide);
                    return Ok(());
                }
                few => {
                    // The rows are no longer few.
                    if let Some(mut few) = few.take() {
                        rows.reservation.free();
                        few.append(&mut to_divide);
                        to_divide = few;
                    }
                }
            }
            to_divide
        };
        // The lock is not held here, because dividing the rows is most of the work.
        for batch in to_divide {
            // A slice of a larger batch would be counted with all the text of that batch. So the
            // slice is compacted first.
            let divided = self.order.buckets.divide(&compact(batch)?)?;
            self.add_divided(divided)?;
        }
        Ok(())
    }

    fn add_divided(&self, divided: DividedRows) -> Result<()> {
        let bytes = get_record_batch_memory_size(&divided.batch);
        let mut rows = self.rows.lock();
        rows.divided.push(divided);
        if rows.reservation.try_grow(bytes).is_err() {
            let run = self.spill(mem::take(&mut rows.divided))?;
            rows.runs.extend(run);
            rows.reservation.free();
        }
        Ok(())
    }

    /// Writes the rows of these batches to disk, merged into one order.
    fn spill(&self, divided: Vec<DividedRows>) -> Result<Option<Run>> {
        let mut file = self
            .spills
            .create_in_progress_file("rows in bucket order")?;
        let mut sources: Vec<_> = divided.into_iter().map(Source::in_memory).collect();
        let mut sink = Sink::new(Arc::clone(&self.schema), SPILLED_ROWS);
        let mut pieces = Vec::new();
        for bucket in 0..self.order.buckets.count() {
            for source in &mut sources {
                source.take(bucket, &mut sink)?;
            }
            if bucket + 1 == self.order.buckets.count() {
                sink.finish()?;
            }
            while let Some(divided) = sink.next() {
                file.append_batch(&divided.batch)?;
                pieces.push(divided.pieces);
            }
        }
        Ok(file.finish()?.map(|file| Run::new(file, pieces)))
    }

    /// Returns all rows in one order, and the number of rounds that they come in. Call it once,
    /// when all rows have been added.
    ///
    /// # Errors
    /// Returns an error if spilled rows cannot be read.
    pub(super) fn merge(&self) -> Result<(Merged, usize)> {
        let mut rows = self.rows.lock();
        let mut buckets = self.order.buckets.clone();
        let mut single_batch_rows = None;
        if let Some(few) = rows.undivided.take() {
            buckets = buckets.with_one_round();
            let all = concat_batches(&self.schema, &few)?;
            // The gateway divides these rows again if other workers have many. It can do that only
            // if it has all of them, so they come in one batch.
            single_batch_rows = Some(all.num_rows().max(1));
            rows.divided.push(buckets.divide(&all)?);
        }
        let runs = mem::take(&mut rows.runs);
        let in_memory = mem::take(&mut rows.divided);
        let first = in_memory
            .first()
            .filter(|divided| divided.batch.num_rows() > 0);
        let target_batch_rows =
            first.map(|divided| target_rows(&divided.batch, self.order.batch_bytes));
        let batch_rows = single_batch_rows
            .or(target_batch_rows)
            .unwrap_or(SPILLED_ROWS);
        let in_memory_sources = in_memory.into_iter().map(Source::in_memory);
        let spilled = runs.into_iter().map(|run| run.open(&self.spills));
        let sources = in_memory_sources
            .map(Ok)
            .chain(spilled)
            .collect::<Result<_>>()?;
        let sink = Sink::new(Arc::clone(&self.schema), batch_rows);
        let rounds = buckets.rounds();
        let reservation = rows.reservation.take();
        Ok((
            Merged::new(sources, sink, buckets.count(), reservation),
            rounds,
        ))
    }
}
