//! From a query's rows to the messages that a client is sent.
//!
//! The schema goes out at once, before the first row is there: clients that open several streams one after another wait
//! for it, and load balancers close what is silent. Batches are joined to about a mebibyte, mapped to the
//! client's types, and cut where a message would be too large.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::Status;
use volary_flight_proto::{Error, Result};
use volary_node::batches::CoalesceBytes;

use super::running::FlightDataStream;
use super::types::{Profile, map_batch, map_schema};
use super::wire::split;
use crate::engine::Query;
use crate::statements::Noted;

/// Bytes of a batch that are aimed at.
const BATCH_BYTES: usize = 1024 * 1024;

/// The largest message, unless a single row is larger: gRPC clients take 4 MiB unless they are told otherwise.
const MESSAGE_BYTES: usize = 3 * 1024 * 1024;

/// The rows of a query. It is started when the stream is first polled, after the schema was sent; dropping the stream ends it.
pub(super) fn query_messages(query: Query, profile: Profile, noted: Noted) -> FlightDataStream {
    let id = query.id;
    let schema = query.schema.clone();
    let sent = map_schema(profile, &schema);
    let target = sent.clone();
    let batches = stream::once(Box::pin(query.start(noted.clone())))
        .map_ok(move |rows| {
            CoalesceBytes::new(rows, schema.clone(), BATCH_BYTES).map_err(Error::from)
        })
        .try_flatten()
        .inspect_ok(move |batch| noted.add_rows(batch.num_rows()))
        .flat_map(move |batch| stream::iter(pieces(batch, &target)))
        .map_err(move |error| with_query(error, id));
    encode(sent, batches)
}

/// Rows that are there already.
pub(super) fn batch_messages(batch: RecordBatch) -> FlightDataStream {
    let schema = batch.schema();
    encode(schema, stream::iter(split(batch, MESSAGE_BYTES)).map(Ok))
}

/// An error of a query says which one.
pub(super) fn with_query(error: Error, id: impl std::fmt::Display) -> Error {
    let id = id.to_string();
    if error.message().contains(&id) {
        error
    } else {
        error.at(format_args!("query {id}"))
    }
}

fn pieces(batch: Result<RecordBatch>, target: &SchemaRef) -> Vec<Result<RecordBatch>> {
    // Cut before mapping too: a batch of views may hold more text than fits into one batch of Utf8.
    let native = match batch {
        Ok(batch) => split(batch, MESSAGE_BYTES),
        Err(error) => return vec![Err(error)],
    };
    let mut pieces = Vec::with_capacity(native.len());
    for batch in native {
        match map_batch(&batch, target) {
            Ok(mapped) => pieces.extend(split(mapped, MESSAGE_BYTES).into_iter().map(Ok)),
            Err(error) => {
                pieces.push(Err(error));
                break;
            }
        }
    }
    pieces
}

fn encode(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> FlightDataStream {
    FlightDataEncoderBuilder::new()
        .with_schema(schema)
        // The batches are cut already, by a better measure.
        .with_max_flight_data_size(usize::MAX)
        .build(batches.map_err(|error| FlightError::from(Status::from(error))))
        .map_err(|error| Status::from(Error::from(error)))
        .boxed()
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
        let schema = map_schema(
            Profile::Classic,
            &Schema::new(vec![
                Field::new("n", DataType::Int64, false),
                Field::new("m", DataType::Int64, false),
            ]),
        );
        let one = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        let batch =
            RecordBatch::try_new(Arc::new(one), vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
        assert!(matches!(pieces(Ok(batch), &schema).as_slice(), [Err(_)]));
    }

    #[test]
    fn the_query_is_said_once() {
        let error = with_query(with_query(Error::invalid("division by zero"), "q1"), "q1");
        assert_eq!(error.message(), "query q1: division by zero");
    }
}
