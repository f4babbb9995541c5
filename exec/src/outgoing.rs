use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use futures::{Stream, StreamExt};

use volary_node::memory::ProcessMemory;

use crate::batches::used_bytes;

/// Number of copies of a batch: the converted batch, its message, and the frames of the message.
const COPIES: usize = 3;
/// Size in bytes up to which batches are sent without a reservation. Batches are larger only if
/// single values are large.
const LARGE_BYTES: usize = 16 << 20;

/// Reserves process memory for the copies of each large batch, until the next batch is requested.
/// If there is too little memory, the batch is replaced by the error `ResourcesExhausted`.
pub fn reserve_outgoing<S>(
    batches: S,
) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + Unpin
where
    S: Stream<Item = Result<RecordBatch, DataFusionError>> + Send + Unpin,
{
    let mut reservation = None;
    batches.map(move |batch| {
        drop(reservation.take());
        let batch = batch?;
        // The memory that a batch holds is quickly computed, and is at least what its rows use. So
        // only few batches are checked more closely.
        if batch.get_array_memory_size() <= LARGE_BYTES {
            return Ok(batch);
        }
        let bytes = used_bytes(&batch);
        if bytes <= LARGE_BYTES {
            return Ok(batch);
        }
        let bytes = bytes.saturating_mul(COPIES);
        reservation = ProcessMemory::this()
            .try_reserve(bytes, || format!("sending {} rows", batch.num_rows()))?;
        Ok(batch)
    })
}
