//! A window function keeps rows until it has seen all of its partition. DataFusion 55 counts none
//! of these rows (apache/datafusion#22946). If they are not counted, the operating system ends the
//! process when memory runs out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, RecordBatchStream};
use futures::{Stream, StreamExt, ready};

use super::wrapper::{Wrapper, WrapperExec};

/// Number of copies of the rows: as they came, and once more as one batch.
const COPIES: usize = 2;

/// Wraps the input of a window function. Its rows stay the same, and they are counted until the
/// stream is dropped. By then the window function has ended.
pub(super) fn count_kept_rows(kept: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    WrapperExec::wrap(Arc::clone(kept), CountKept)
}

#[derive(Debug)]
struct CountKept;

impl Wrapper for CountKept {
    const NAME: &'static str = "CountKeptExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let consumer = MemoryConsumer::new(format!("window function [{partition}]"));
        Ok(Box::pin(CountedWindowInput {
            reservation: consumer.register(context.memory_pool()),
            rows: within.execute(partition, context)?,
        }))
    }
}

struct CountedWindowInput {
    rows: SendableRecordBatchStream,
    reservation: MemoryReservation,
}

impl Stream for CountedWindowInput {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = ready!(self.rows.poll_next_unpin(cx));
        Poll::Ready(polled.map(|batch| {
            let batch = batch?;
            let bytes = get_record_batch_memory_size(&batch) * COPIES;
            self.reservation.try_grow(bytes)?;
            Ok(batch)
        }))
    }
}

impl RecordBatchStream for CountedWindowInput {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
