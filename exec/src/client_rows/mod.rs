//! The schema of a client's rows is sent at once, before the first row is available. Clients that
//! open several streams one after another wait for it, and load balancers close silent connections.
//! Batches are converted, then joined to about one mebibyte, then cut where a message would be too
//! large. The conversion comes first because it copies views anyway: joining or cutting first would
//! copy them twice.

/// Converts values to the types that clients read.
mod convert;
/// Computes the size of batches on the wire, and cuts them into messages.
mod cut;

use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use datafusion::error::DataFusionError;
use futures::FutureExt;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use tonic::Status;
use tracing::Span;
use volary_flight_proto::{Error, Result};

use crate::batches::{CoalesceBytes, used_bytes};
use crate::outgoing::reserve_outgoing;
use cut::split;

/// Target size of a batch in bytes, if there is memory for it.
pub const CLIENT_BATCH_BYTES: usize = 1024 * 1024;

/// Size of the largest message in bytes, unless a single row is larger. gRPC clients accept 4 MiB
/// by default.
const MESSAGE_BYTES: usize = 3 * 1024 * 1024;

/// Largest number of bytes that the `i32` offsets of an announced type can address. If a batch is
/// smaller and cannot be converted, its size is not the reason.
const MAX_OFFSET_BYTES: usize = i32::MAX as usize;

/// Stream of messages to a client.
pub type ClientMessages = BoxStream<'static, Result<FlightData, Status>>;

/// Converts rows to the announced schema, joins them to batches of about `batch_bytes`, and cuts
/// them into pieces that clients accept.
pub fn client_rows<S>(
    rows: S,
    announced: SchemaRef,
    batch_bytes: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send
where
    S: Stream<Item = Result<RecordBatch, DataFusionError>> + Send + Unpin,
{
    let target_schema = Arc::clone(&announced);
    let converted = reserve_outgoing(rows)
        .map_ok(move |batch| stream::iter(ConvertedParts::of(batch, Arc::clone(&target_schema))))
        .try_flatten();
    CoalesceBytes::new(converted, announced, batch_bytes)
        .map_err(Error::from)
        .map_ok(|batch| stream::iter(split(batch, MESSAGE_BYTES)).map(Ok))
        .try_flatten()
}

/// Converts the rows of one batch to the announced schema, and cuts them into pieces that clients
/// accept.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that does not fit.
pub fn client_batches(batch: RecordBatch, announced: &SchemaRef) -> Result<Vec<RecordBatch>> {
    let mut pieces = Vec::with_capacity(1);
    for part in ConvertedParts::of(batch, Arc::clone(announced)) {
        pieces.extend(split(part?, MESSAGE_BYTES));
    }
    Ok(pieces)
}

/// Encodes rows that [`client_rows`] made for this schema as messages. The first message is the
/// schema.
pub fn client_messages(
    announced: SchemaRef,
    rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> ClientMessages {
    let caller = Arc::new(OnceLock::new());
    let messages = FlightDataEncoderBuilder::new()
        .with_schema(announced)
        // `client_rows` has already cut the batches by a better measure.
        .with_max_flight_data_size(usize::MAX)
        .build(
            running_span(Arc::clone(&caller), rows)
                .map_err(|error| FlightError::from(Status::from(error))),
        )
        .map_err(|error| Status::from(Error::from(error)));
    encoding_span(caller, messages).boxed()
}

/// Polls the encoder in a span of its own. `caller` gets the span in which it is polled first.
fn encoding_span<T>(
    caller: Arc<OnceLock<Span>>,
    mut messages: impl Stream<Item = T> + Send + Unpin + 'static,
) -> impl Stream<Item = T> + Send {
    let mut span = None;
    stream::poll_fn(move |cx| {
        caller.get_or_init(Span::current);
        let span = span.get_or_insert_with(|| tracing::debug_span!("encode"));
        span.in_scope(|| messages.poll_next_unpin(cx))
    })
}

/// Polls the rows in a span below the caller's: they are computed for the encoder, and not by it.
fn running_span<T>(
    caller: Arc<OnceLock<Span>>,
    rows: impl Stream<Item = T> + Send + 'static,
) -> impl Stream<Item = T> + Send {
    let mut rows = Box::pin(rows);
    let mut span = None;
    stream::poll_fn(move |cx| {
        let span = span.get_or_insert_with(|| {
            let caller = caller.get().and_then(Span::id);
            tracing::debug_span!(parent: caller, "run")
        });
        span.in_scope(|| rows.poll_next_unpin(cx))
    })
}

/// Returns the first message that [`client_messages`] sends for rows with this schema: the schema.
///
/// # Errors
/// Fails if the schema cannot be encoded.
pub fn schema_message(schema: SchemaRef) -> Result<FlightData> {
    let mut messages = client_messages(schema, stream::empty());
    let first = messages.next().now_or_never().flatten();
    first
        .unwrap_or_else(|| Err(Status::internal("a schema has no message")))
        .map_err(Error::from)
}

/// Encodes all rows of a batch as one message, in the batch's own types. No column may be a
/// dictionary.
///
/// # Errors
/// Fails if the rows cannot be encoded.
pub fn row_message(batch: &RecordBatch) -> Result<FlightData> {
    let (_, encoded) = IpcDataGenerator::default()
        .encode(
            batch,
            &mut DictionaryTracker::new(true),
            &IpcWriteOptions::default(),
            &mut IpcWriteContext::default(),
        )
        .map_err(|source| Error::from(DataFusionError::from(source)))?;
    Ok(encoded.into())
}

/// Encodes rows that are already in memory as messages, in the batch's own types.
pub fn batch_messages(batch: RecordBatch) -> ClientMessages {
    let schema = batch.schema();
    client_messages(schema, stream::iter(split(batch, MESSAGE_BYTES)).map(Ok))
}

/// Converts the rows of `batch` to the types of `announced`, which must be the client's types for
/// those of the batch. Nullability, names and metadata are those of `announced`, even if the plan's
/// own differ.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that does not fit, such as more than 2 GiB of text in one batch.
pub fn convert_batch(batch: &RecordBatch, announced: &SchemaRef) -> Result<RecordBatch> {
    if batch.num_columns() != announced.fields().len() {
        return Err(Error::internal(format!(
            "a batch has {} columns, but {} were announced",
            batch.num_columns(),
            announced.fields().len()
        )));
    }
    let columns = batch.columns().iter().zip(announced.fields());
    let columns = columns.map(|(column, field)| {
        convert::convert(column, field.data_type()).map_err(|source| {
            Error::from(DataFusionError::from(source)).at(format_args!("column {}", field.name()))
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(announced.clone(), columns, &options).map_err(|source| {
        Error::internal(format!(
            "the rows do not fit the announced schema: {source}"
        ))
    })
}

/// Iterator over the converted rows of a batch. It divides the batch if its rows do not fit into
/// one batch of the announced types.
struct ConvertedParts {
    /// The parts that are not converted yet. The next one is the last element.
    remaining: Vec<RecordBatch>,
    announced: SchemaRef,
}

impl ConvertedParts {
    fn of(batch: RecordBatch, announced: SchemaRef) -> Self {
        Self {
            remaining: vec![batch],
            announced,
        }
    }
}

impl Iterator for ConvertedParts {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let batch = self.remaining.pop()?;
            let rows = batch.num_rows();
            match convert_batch(&batch, &self.announced) {
                Err(_) if rows > 1 && used_bytes(&batch) > MAX_OFFSET_BYTES => {
                    let half = rows / 2;
                    self.remaining.push(batch.slice(half, rows - half));
                    self.remaining.push(batch.slice(0, half));
                }
                converted => return Some(converted.map_err(DataFusionError::from)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow_flight::decode::FlightRecordBatchStream;

    use super::*;

    fn texts(rows: usize, bytes: usize) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("s", DataType::Utf8, false)]);
        let column = StringArray::from_iter_values((0..rows).map(|_| "x".repeat(bytes)));
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).unwrap()
    }

    #[tokio::test]
    async fn an_empty_result_is_a_schema() {
        let batch = texts(0, 0);
        let messages: Vec<_> = batch_messages(batch.clone()).try_collect().await.unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(Schema::try_from(&messages[0]).unwrap(), *batch.schema());
    }

    #[tokio::test]
    async fn no_message_is_larger_than_clients_take() {
        let batch = texts(20, 1_000_000);
        let messages: Vec<_> = batch_messages(batch.clone()).try_collect().await.unwrap();
        assert!(messages.len() > 6);
        assert!(
            messages
                .iter()
                .all(|message| message.data_body.len() <= 4 << 20)
        );
        let decoded = FlightRecordBatchStream::new_from_flight_data(stream::iter(messages).map(Ok));
        let batches: Vec<_> = decoded.try_collect().await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20);
    }

    #[test]
    fn rows_that_do_not_fit_the_schema_end_the_stream_with_an_error() {
        let two = Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("m", DataType::Int64, false),
        ]);
        let one = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        let batch =
            RecordBatch::try_new(Arc::new(one), vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
        let mut parts = ConvertedParts::of(batch, Arc::new(two));
        assert!(matches!((parts.next(), parts.next()), (Some(Err(_)), None)));
    }
}
