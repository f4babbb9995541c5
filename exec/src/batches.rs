use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::{ByteViewType, DataType, SchemaRef};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use futures::{Stream, StreamExt};

use crate::linger::Linger;

/// Smallest number of rows that a batch is split to, however large the rows are.
const MIN_ROWS: usize = 1;
/// Largest number of rows of a batch, however small the rows are.
const MAX_ROWS: usize = 256 * 1024;

/// Unused bytes of a buffer that are not worth a copy.
const SPARE_BYTES: usize = 1024;

/// A stream that joins small batches and splits large ones. Most batches then take about half of
/// `target_bytes` to all of it. The first batch is sent as soon as the input has nothing more
/// ready, so that a small answer does not wait. Later batches wait a few milliseconds for more
/// rows.
///
/// Batches are copied where they are joined. They are also copied where that saves bytes: a
/// filtered view array would otherwise keep all its buffers.
pub struct CoalesceBytes<S> {
    input: S,
    schema: SchemaRef,
    target_bytes: usize,
    coalescer: Option<BatchCoalescer>,
    /// Target number of rows of a batch. It follows from the first batch that the coalescer was
    /// given.
    target_rows: usize,
    has_input_ended: bool,
    linger: Linger,
}

impl<S> std::fmt::Debug for CoalesceBytes<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoalesceBytes")
            .field("target_bytes", &self.target_bytes)
            .finish_non_exhaustive()
    }
}

impl<S> CoalesceBytes<S>
where
    S: Stream<Item = Result<RecordBatch, DataFusionError>> + Unpin,
{
    /// Creates the stream over `input`, whose batches have this schema.
    pub fn new(input: S, schema: SchemaRef, target_bytes: usize) -> Self {
        Self {
            input,
            schema,
            target_bytes: target_bytes.max(1),
            coalescer: None,
            target_rows: MAX_ROWS,
            has_input_ended: false,
            linger: Linger::default(),
        }
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let coalescer = match &mut self.coalescer {
            Some(coalescer) => coalescer,
            None => {
                let rows = target_rows(batch, self.target_bytes);
                self.target_rows = rows;
                let coalescer = BatchCoalescer::new(self.schema.clone(), rows);
                // A batch of more than half the target is not worth the copy that joining takes.
                let coalescer = coalescer.with_biggest_coalesce_batch_size(Some(rows / 2));
                self.coalescer.insert(coalescer)
            }
        };
        let rows = batch.num_rows();
        for offset in (0..rows).step_by(self.target_rows) {
            let rows = self.target_rows.min(rows - offset);
            coalescer.push_batch(batch.slice(offset, rows))?;
        }
        Ok(())
    }

    fn finished_batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let coalescer = self.coalescer.as_mut();
        let Some(batch) = coalescer.and_then(BatchCoalescer::next_completed_batch) else {
            return Ok(None);
        };
        self.linger.note_sent();
        Ok(Some(compact(batch)?))
    }

    /// Returns all buffered rows as one batch. The next batch of the input then sets a new target
    /// number of rows.
    fn flush(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let Some(mut coalescer) = self.coalescer.take() else {
            return Ok(None);
        };
        coalescer.finish_buffered_batch()?;
        self.linger.note_sent();
        Ok(coalescer.next_completed_batch().map(compact).transpose()?)
    }
}

impl<S> Stream for CoalesceBytes<S>
where
    S: Stream<Item = Result<RecordBatch, DataFusionError>> + Unpin,
{
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(batch) = self.finished_batch()? {
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.has_input_ended {
                return Poll::Ready(self.flush().transpose());
            }
            match self.input.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(batch))) if batch.num_rows() == 0 => {}
                Poll::Ready(Some(Ok(batch))) => self.push(&batch)?,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.has_input_ended = true,
                Poll::Pending => {
                    if self.coalescer.is_none() || !self.linger.has_ended(cx) {
                        return Poll::Pending;
                    }
                    if let Some(batch) = self.flush()? {
                        return Poll::Ready(Some(Ok(batch)));
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Copies the rows of a batch if its buffers hold much more than these rows. A slice of a batch of
/// views keeps all buffers of that batch, and each slice would be sent with all of them.
///
/// # Errors
/// No error is known: the columns keep their lengths and their types.
pub fn compact(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let copies = batch.columns().iter().map(compacted);
    let columns: Vec<Option<ArrayRef>> = copies.collect();
    if columns.iter().all(Option::is_none) {
        return Ok(batch);
    }
    let columns = columns.into_iter().zip(batch.columns());
    let columns =
        columns.map(|(compacted, column)| compacted.unwrap_or_else(|| Arc::clone(column)));
    RecordBatch::try_new(batch.schema(), columns.collect())
}

/// Copies the values of a column if its buffers hold much more than these values: see [`compact`].
pub fn compact_column(column: ArrayRef) -> ArrayRef {
    compacted(&column).unwrap_or(column)
}

/// Returns a compact copy of the array, or `None` if the array is compact enough.
fn compacted(array: &ArrayRef) -> Option<ArrayRef> {
    fn gc<T: ByteViewType>(array: &GenericByteViewArray<T>) -> Option<ArrayRef> {
        let buffer_bytes: usize = array.data_buffers().iter().map(Buffer::len).sum();
        let used = array.total_buffer_bytes_used();
        (buffer_bytes > used + used / 4 + SPARE_BYTES).then(|| Arc::new(array.gc()) as ArrayRef)
    }
    match array.data_type() {
        DataType::Utf8View => gc(array.as_string_view()),
        DataType::BinaryView => gc(array.as_binary_view()),
        _ => None,
    }
}

/// Returns the number of rows that take about `target_bytes`, judged by the rows of `batch`.
pub fn target_rows(batch: &RecordBatch, target_bytes: usize) -> usize {
    let rows = batch.num_rows();
    // This is rows / bytes * target, without a division by zero.
    (target_bytes.saturating_mul(rows) / used_bytes(batch).max(1)).clamp(MIN_ROWS, MAX_ROWS)
}

/// Returns the bytes that the rows of a batch use. The memory that the batch holds may be larger,
/// because other rows may share it.
pub fn used_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns.map(|column| bytes_of_rows(column)).sum()
}

fn bytes_of_rows(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Utf8View => {
            array.len() * 16
                + array
                    .as_string_view()
                    .lengths()
                    .map(|n| n as usize)
                    .sum::<usize>()
        }
        DataType::BinaryView => {
            array.len() * 16
                + array
                    .as_binary_view()
                    .lengths()
                    .map(|n| n as usize)
                    .sum::<usize>()
        }
        _ => array
            .to_data()
            .get_slice_memory_size()
            .unwrap_or_else(|_| array.get_array_memory_size()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::{Field, Schema};
    use futures::{TryStreamExt, stream};

    use super::*;

    async fn coalesce(batches: Vec<RecordBatch>, target_bytes: usize) -> Vec<RecordBatch> {
        let schema = batches[0].schema();
        let input = stream::iter(batches.into_iter().map(Ok));
        CoalesceBytes::new(input, schema, target_bytes)
            .try_collect()
            .await
            .unwrap()
    }

    fn numbers(rows: std::ops::Range<i64>) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(rows))]).unwrap()
    }

    #[tokio::test]
    async fn small_batches_are_joined_and_large_ones_split() {
        let joined = coalesce(
            (0..100).map(|n| numbers(n * 10..n * 10 + 10)).collect(),
            1 << 20,
        )
        .await;
        assert_eq!(joined.len(), 1);
        let split = coalesce(vec![numbers(0..10_000)], 8_000).await;
        assert!(split.len() >= 10, "{}", split.len());
        assert_eq!(
            split.iter().map(RecordBatch::num_rows).sum::<usize>(),
            10_000
        );
    }

    #[tokio::test]
    async fn a_batch_of_about_the_right_size_is_not_copied() {
        let batches = vec![numbers(0..700), numbers(700..1_400), numbers(1_400..1_500)];
        let buffers = |batches: &[RecordBatch]| -> Vec<*const u8> {
            let columns = batches.iter().map(|batch| batch.column(0).to_data());
            columns.map(|data| data.buffers()[0].as_ptr()).collect()
        };
        let given = buffers(&batches);
        let sent = coalesce(batches, 8_000).await;
        assert_eq!(buffers(&sent)[..2], given[..2]);
        let rows: Vec<_> = sent.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [700, 700, 100]);
    }

    #[tokio::test]
    async fn a_slice_of_views_does_not_drag_its_buffers_along() {
        let long = "x".repeat(1_000);
        let array = StringViewArray::from_iter_values((0..10_000).map(|_| long.as_str()));
        let schema = Arc::new(Schema::new(vec![Field::new(
            "s",
            DataType::Utf8View,
            false,
        )]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(array)]).unwrap();
        let sent = coalesce(vec![batch.slice(5, 10)], 1 << 20).await;
        assert!(sent[0].get_array_memory_size() < 100_000);
        let parts = coalesce(vec![batch], 1 << 20).await;
        assert!(parts.len() >= 9, "{}", parts.len());
        let sent: usize = parts.iter().map(RecordBatch::get_array_memory_size).sum();
        assert!(sent < 12_000_000, "{sent}");
    }
}
