//! Rows that a client streams may be malformed, and arrow's reader trusts some lengths in them. It
//! panics on schemas and batches that no Arrow library would write. Such a panic is caught here and
//! reported as an error of the client.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder, FlightRecordBatchStream};
use arrow_flight::error::FlightError;
use bytes::Bytes;
use futures::future;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::Status;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::message_limit::MessageLimit;

use crate::engine::IncomingRows;
use crate::statements::StatementTotals;

const UNREADABLE_ROWS: &str = "the rows cannot be read; send a schema and batches as Arrow IPC";

/// The batches of a DoPut or a DoExchange.
pub(super) struct UploadedBatches {
    decoder: Decoder<FlightRecordBatchStream>,
    totals: Arc<StatementTotals>,
}

impl UploadedBatches {
    /// Creates the stream of batches. `first` is the first message. Messages without a header are
    /// skipped: ADBC sends a message with only the descriptor if there are no parameters. `limit`
    /// is the maximum size of a message, also after decompression. What arrives is counted in
    /// `totals`.
    pub(super) fn new(
        first: FlightData,
        rest: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        limit: MessageLimit,
        totals: &Arc<StatementTotals>,
    ) -> Self {
        let messages = ipc_messages(first, rest, limit, totals);
        Self {
            decoder: Decoder(Some(FlightRecordBatchStream::new_from_flight_data(
                messages,
            ))),
            totals: Arc::clone(totals),
        }
    }

    /// Returns the columns. Returns `None` before the stream was polled for the first batch, and if
    /// the client has sent no schema.
    pub(super) fn schema(&self) -> Option<SchemaRef> {
        self.decoder.0.as_ref()?.schema().cloned()
    }
}

impl Stream for UploadedBatches {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.decoder.poll_next_unpin(cx);
        if let Poll::Ready(Some(Ok(batch))) = &polled {
            self.totals.received.add_rows(batch.num_rows() as u64);
        }
        polled
    }
}

/// The batches of a DoExchange, each with the metadata of its message.
pub(super) struct AnnotatedBatches {
    decoder: Decoder<FlightDataDecoder>,
    totals: Arc<StatementTotals>,
}

/// A message of a client that streams batches.
pub(super) enum AnnotatedBatch {
    /// The columns of the batches.
    Columns(SchemaRef),
    /// Rows, and the metadata of their message.
    Rows(RecordBatch, Bytes),
}

impl AnnotatedBatches {
    /// Creates the stream of batches. The parameters are those of [`UploadedBatches::new`].
    pub(super) fn new(
        first: FlightData,
        rest: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        limit: MessageLimit,
        totals: &Arc<StatementTotals>,
    ) -> Self {
        let messages = ipc_messages(first, rest, limit, totals);
        Self {
            decoder: Decoder(Some(FlightDataDecoder::new(messages))),
            totals: Arc::clone(totals),
        }
    }
}

impl Stream for AnnotatedBatches {
    type Item = Result<AnnotatedBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while let Some(message) = ready!(self.decoder.poll_next_unpin(cx)).transpose()? {
            let metadata = message.app_metadata();
            match message.payload {
                DecodedPayload::None => {}
                DecodedPayload::Schema(schema) => {
                    return Poll::Ready(Some(Ok(AnnotatedBatch::Columns(schema))));
                }
                DecodedPayload::RecordBatch(rows) => {
                    self.totals.received.add_rows(rows.num_rows() as u64);
                    return Poll::Ready(Some(Ok(AnnotatedBatch::Rows(rows, metadata))));
                }
            }
        }
        Poll::Ready(None)
    }
}

/// Returns the messages with schemas, dictionaries and rows. They are checked against `limit`, and
/// counted in `totals`.
fn ipc_messages<S>(
    first: FlightData,
    rest: S,
    limit: MessageLimit,
    totals: &Arc<StatementTotals>,
) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + use<S> + 'static
where
    S: Stream<Item = Result<FlightData, Status>> + Send + 'static,
{
    let counted = Arc::clone(totals);
    stream::iter([Ok(first)])
        .chain(rest)
        .try_filter(|message| future::ready(!message.data_header.is_empty()))
        .inspect_ok(move |message| counted.received.add_message(message))
        .and_then(move |message| {
            future::ready(limit.check_uncompressed(message).map_err(Status::from))
        })
        .map_err(FlightError::from)
}

/// A decoder of arrow. It is `None` after an error or a panic, because it must not be polled again
/// then.
struct Decoder<D>(Option<D>);

impl<T, D: Stream<Item = Result<T, FlightError>> + Unpin> Stream for Decoder<D> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(decoder) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| decoder.poll_next_unpin(cx)));
        let polled = match polled {
            Ok(polled) => polled.map(|next| next.map(|it| it.map_err(convert_decode_error))),
            Err(_) => Poll::Ready(Some(Err(Error::invalid(UNREADABLE_ROWS)))),
        };
        if matches!(polled, Poll::Ready(Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }
}

/// The parameters that a client has bound to a statement.
pub(super) enum BoundParameters {
    /// No row, or no columns. The statement runs once, without parameters from the stream.
    NoRow,
    /// One row. The statement runs once.
    Row(RecordBatch),
    /// Several rows. The statement runs once for each row.
    Rows(IncomingRows),
}

impl BoundParameters {
    /// Reads the parameters. It waits for two rows at most. The rows after them are read while the
    /// statement is run.
    pub(super) async fn read(
        batches: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
    ) -> Result<Self> {
        let mut batches = batches
            .try_filter(|batch| future::ready(batch.num_columns() > 0 && batch.num_rows() > 0));
        let Some(first) = batches.try_next().await? else {
            return Ok(Self::NoRow);
        };
        let second = match first.num_rows() {
            1 => batches.try_next().await?,
            _ => None,
        };
        if first.num_rows() == 1 && second.is_none() {
            return Ok(Self::Row(first));
        }
        Ok(Self::Rows(IncomingRows {
            schema: first.schema(),
            batches: stream::iter([first].into_iter().chain(second).map(Ok))
                .chain(batches)
                .boxed(),
        }))
    }
}

/// Returns the one row of parameters that a query may have, or `None` if no row was sent.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is more than one row, because a query is run once.
pub(super) async fn single_row(
    mut batches: impl Stream<Item = Result<RecordBatch>> + Unpin,
) -> Result<Option<RecordBatch>> {
    let mut row: Option<RecordBatch> = None;
    while let Some(batch) = batches.try_next().await? {
        if batch.num_columns() == 0 || batch.num_rows() == 0 {
            continue;
        }
        if row.is_some() || batch.num_rows() > 1 {
            return Err(Error::invalid(
                "a query takes one row of parameters, and more were bound; bind one row, or use executemany for a statement that writes",
            ));
        }
        row = Some(batch);
    }
    Ok(row)
}

/// Converts an error of the decoder. Rows that cannot be read are an error of the client, even if
/// the decoder reports an internal error.
fn convert_decode_error(error: FlightError) -> Error {
    match error {
        FlightError::Tonic(status) => (*status).into(),
        other => Error::with_source(ErrorCode::InvalidArgument, UNREADABLE_ROWS, other),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, RecordBatchOptions};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::IpcWriteOptions;
    use arrow_flight::encode::FlightDataEncoderBuilder;

    use super::*;

    fn row(values: Vec<i32>) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("0", DataType::Int32, false)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int32Array::from(values))]).unwrap()
    }

    const LIMIT: MessageLimit = MessageLimit {
        bytes: 1 << 20,
        setting: "gateway.query.max_message",
    };

    async fn bound(batches_sent: Vec<RecordBatch>) -> Result<Option<RecordBatch>> {
        let messages: Vec<FlightData> = FlightDataEncoderBuilder::new()
            .build(stream::iter(batches_sent).map(Ok))
            .try_collect()
            .await
            .unwrap();
        single_row(UploadedBatches::new(
            FlightData::default(),
            stream::iter(messages).map(Ok),
            LIMIT,
            &Arc::default(),
        ))
        .await
    }

    #[tokio::test]
    async fn one_row_is_bound_and_none_is_none() {
        assert_eq!(bound(vec![row(vec![7])]).await.unwrap(), Some(row(vec![7])));
        assert_eq!(
            bound(vec![row(vec![]), row(vec![7])]).await.unwrap(),
            Some(row(vec![7]))
        );
        assert_eq!(bound(vec![row(vec![])]).await.unwrap(), None);
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let no_columns =
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        assert_eq!(bound(vec![no_columns]).await.unwrap(), None);
        assert_eq!(bound(vec![]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn two_rows_for_a_query_are_refused() {
        for sent in [vec![row(vec![1, 2])], vec![row(vec![1]), row(vec![2])]] {
            assert_eq!(
                bound(sent).await.unwrap_err().code(),
                ErrorCode::InvalidArgument
            );
        }
    }

    #[tokio::test]
    async fn a_compressed_message_is_not_believed_what_it_says() {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .unwrap();
        let messages: Vec<FlightData> = FlightDataEncoderBuilder::new()
            .with_options(options)
            .build(stream::iter([Ok(row(vec![7; 1_000]))]))
            .try_collect()
            .await
            .unwrap();
        let read = |messages: Vec<FlightData>| {
            let rows = UploadedBatches::new(
                FlightData::default(),
                stream::iter(messages).map(Ok),
                LIMIT,
                &Arc::default(),
            );
            rows.try_collect::<Vec<_>>()
        };
        assert_eq!(read(messages.clone()).await.unwrap(), [row(vec![7; 1_000])]);
        for says in [(LIMIT.bytes + 1) as i64, 1 << 56, i64::MAX] {
            let mut altered = messages.clone();
            let mut body = altered[1].data_body.to_vec();
            body[..8].copy_from_slice(&says.to_le_bytes());
            altered[1].data_body = body.into();
            let error = read(altered).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::ResourceExhausted);
            assert!(
                error.message().contains("gateway.query.max_message"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_no_ipc_is_the_clients_fault() {
        let garbage = FlightData::new().with_data_header(b"garbage".to_vec());
        let error = single_row(UploadedBatches::new(
            garbage,
            stream::empty(),
            LIMIT,
            &Arc::default(),
        ))
        .await
        .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}
