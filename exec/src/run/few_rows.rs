use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

use super::wrapper::Wrapper;
use volary_node::memory::{ProcessMemory, ProcessReservation};

/// Something that an operator copies for each row that it is given.
pub(super) trait CopiedPerRow: fmt::Debug + Clone + Send + Sync + Unpin + 'static {
    /// Name of the operator that cuts the batches, in displayed plans.
    const NAME: &'static str;

    /// Returns the largest number of rows that the operator may be given at once.
    fn max_rows(&self) -> usize;

    /// Returns the bytes of memory that the copy for one row takes.
    fn bytes_per_row(&self) -> usize;

    /// Describes what is copied for this many rows, for error messages.
    fn describe(&self, rows: usize) -> String;
}

/// Hands on few rows at a time, because something large is copied for each of them.
#[derive(Debug)]
pub(super) struct FewRows<B>(pub(super) B);

impl<B: CopiedPerRow> Wrapper for FewRows<B> {
    const NAME: &'static str = B::NAME;

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(CutBatches {
            batches: within.execute(partition, context)?,
            copied: self.0.clone(),
            rest: None,
            reservation: None,
        }))
    }
}

/// A stream of batches that are cut into pieces. The memory that an operator needs for a piece
/// counts as used until the operator asks for the next piece.
struct CutBatches<B> {
    batches: SendableRecordBatchStream,
    copied: B,
    rest: Option<RecordBatch>,
    reservation: Option<ProcessReservation<'static>>,
}

impl<B: CopiedPerRow> CutBatches<B> {
    fn hand_over(&mut self, piece: RecordBatch) -> Result<RecordBatch> {
        let rows = piece.num_rows();
        let bytes = self.copied.bytes_per_row().saturating_mul(rows);
        self.reservation =
            ProcessMemory::this().try_reserve(bytes, || self.copied.describe(rows))?;
        Ok(piece)
    }
}

impl<B: CopiedPerRow> Stream for CutBatches<B> {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reservation = None;
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match ready!(self.batches.poll_next_unpin(cx)) {
                Some(Ok(batch)) => batch,
                ended => return Poll::Ready(ended),
            },
        };
        let (rows, most) = (batch.num_rows(), self.copied.max_rows());
        if rows > most {
            self.rest = Some(batch.slice(most, rows - most));
            let piece = batch.slice(0, most);
            return Poll::Ready(Some(self.hand_over(piece)));
        }
        Poll::Ready(Some(self.hand_over(batch)))
    }
}

impl<B: CopiedPerRow> RecordBatchStream for CutBatches<B> {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}
