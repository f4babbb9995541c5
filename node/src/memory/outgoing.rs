//! Large batches on their way to somebody else.

use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use futures::{Stream, StreamExt};

use super::process::ProcessMemory;
use crate::batches::used_bytes;

/// A batch is converted, its message is written, and its frames are: each is a copy.
const COPIES: usize = 3;
/// Batches are no larger, unless their values are: they go on their way, whatever the process has.
const LARGE_BYTES: usize = 16 << 20;

/// The batches, of which copies are made until the next one is asked for. Large ones end the stream with `ResourcesExhausted` if the
/// process has no memory for that.
pub fn outgoing<S>(
    batches: S,
) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + Unpin
where
    S: Stream<Item = Result<RecordBatch, DataFusionError>> + Send + Unpin,
{
    let mut being_made = None;
    batches.map(move |batch| {
        drop(being_made.take());
        let batch = batch?;
        // The memory that is held is soon known, and bounds what the rows use: few batches are looked at more closely.
        if batch.get_array_memory_size() <= LARGE_BYTES {
            return Ok(batch);
        }
        let bytes = used_bytes(&batch);
        if bytes <= LARGE_BYTES {
            return Ok(batch);
        }
        let bytes = bytes.saturating_mul(COPIES);
        being_made = ProcessMemory::this().make(bytes, || {
            format!("{} rows on their way from here", batch.num_rows())
        })?;
        Ok(batch)
    })
}
