//! Large messages of workers are not decoded. If many workers send a few rows each at about the
//! same time, their small messages are joined into one, because clients read one message faster
//! than many.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use volary_exec::client_rows::{CLIENT_BATCH_BYTES, row_message};
use volary_exec::linger::Linger;
use volary_flight_proto::Result;
use volary_gather::forwarded::ForwardedMessage;
use volary_gather::message_rows::decode_rows;

use super::arrow_error;

/// Minimum size of a message that is not joined with others. Copying such a message is not worth
/// it.
const MIN_LARGE_BYTES: usize = CLIENT_BATCH_BYTES / 8;

/// Stream of the messages for a client, in the order in which they arrive. Their rows have the
/// columns of `schema`.
pub(super) struct JoinedMessages {
    input: BoxStream<'static, Result<ForwardedMessage>>,
    schema: SchemaRef,
    /// Small messages that wait for others.
    small_messages: Vec<ForwardedMessage>,
    small_bytes: usize,
    /// Messages that are sent next.
    ready: VecDeque<ForwardedMessage>,
    has_ended: bool,
    linger: Linger,
}

impl JoinedMessages {
    pub(super) fn new(
        input: BoxStream<'static, Result<ForwardedMessage>>,
        schema: SchemaRef,
    ) -> Self {
        Self {
            input,
            schema,
            small_messages: Vec::new(),
            small_bytes: 0,
            ready: VecDeque::new(),
            has_ended: false,
            linger: Linger::default(),
        }
    }

    fn push(&mut self, message: ForwardedMessage) -> Result<()> {
        let bytes = message.message.data_body.len();
        if bytes >= MIN_LARGE_BYTES {
            self.flush()?;
            self.ready.push_back(message);
            return Ok(());
        }
        self.small_messages.push(message);
        self.small_bytes += bytes;
        if self.small_bytes >= CLIENT_BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Joins the small messages that wait into one message, which is sent next.
    fn flush(&mut self) -> Result<()> {
        self.small_bytes = 0;
        let mut small = std::mem::take(&mut self.small_messages);
        let joined = match small.len() {
            0 | 1 => small.pop(),
            _ => Some(join_messages(&small, &self.schema)?),
        };
        self.ready.extend(joined);
        Ok(())
    }
}

impl Stream for JoinedMessages {
    type Item = Result<ForwardedMessage>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                self.linger.note_sent();
                return Poll::Ready(Some(Ok(message)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match self.input.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) => self.push(message?)?,
                Poll::Ready(None) => {
                    self.has_ended = true;
                    self.flush()?;
                }
                Poll::Pending => {
                    if self.small_messages.is_empty() || !self.linger.has_ended(cx) {
                        return Poll::Pending;
                    }
                    self.flush()?;
                }
            }
        }
    }
}

fn join_messages(messages: &[ForwardedMessage], schema: &SchemaRef) -> Result<ForwardedMessage> {
    let batches = messages.iter();
    let batches = batches.map(|passed| decode_rows(&passed.message, Arc::clone(schema)));
    let batches: Vec<_> = batches.collect::<Result<_>>()?;
    let batch = concat_batches(schema, &batches).map_err(arrow_error)?;
    Ok(ForwardedMessage {
        message: row_message(&batch)?,
        rows: batch.num_rows() as u64,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::channel::mpsc;
    use futures::{FutureExt, stream};
    use volary_flight_proto::Error;

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
    }

    fn message(values: std::ops::Range<i64>) -> ForwardedMessage {
        let column = Arc::new(Int64Array::from_iter_values(values));
        let batch = RecordBatch::try_new(schema(), vec![column]).unwrap();
        ForwardedMessage {
            message: row_message(&batch).unwrap(),
            rows: batch.num_rows() as u64,
        }
    }

    fn values(passed: &ForwardedMessage) -> Vec<i64> {
        let decoded = decode_rows(&passed.message, schema());
        let batch = decoded.unwrap();
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>();
        column.unwrap().values().to_vec()
    }

    async fn sent(messages: Vec<ForwardedMessage>) -> Vec<ForwardedMessage> {
        let input = stream::iter(messages).map(Ok).boxed();
        JoinedMessages::new(input, schema())
            .map(Result::unwrap)
            .collect()
            .await
    }

    #[tokio::test]
    async fn small_messages_are_one_and_large_ones_stay_as_they_are_in_order() {
        let large = || message(10..100_000);
        let body = large().message.data_body;
        let all = sent(vec![message(0..3), message(3..5), large(), message(5..6)]).await;
        assert_eq!(
            all.iter().map(|each| each.rows).collect::<Vec<_>>(),
            [5, 99_990, 1]
        );
        assert_eq!(values(&all[0]), [0, 1, 2, 3, 4]);
        assert_eq!(all[1].message.data_body, body);
        assert_eq!(values(&all[2]), [5]);
    }

    #[tokio::test]
    async fn what_is_joined_is_no_larger_than_a_batch_and_a_message() {
        let all = sent((0..2_000).map(|n| message(n..n + 1_000)).collect()).await;
        assert!(all.len() > 10, "{}", all.len());
        let bytes = all.iter().map(|each| each.message.data_body.len());
        assert!(bytes.max().unwrap() < CLIENT_BATCH_BYTES + MIN_LARGE_BYTES);
        assert_eq!(all.iter().map(|each| each.rows).sum::<u64>(), 2_000_000);
    }

    #[tokio::test]
    async fn the_first_rows_do_not_wait_and_later_ones_wait_for_each_other() {
        let (sender, input) = mpsc::unbounded();
        let mut joined = JoinedMessages::new(input.boxed(), schema());
        sender.unbounded_send(Ok(message(0..1))).unwrap();
        assert_eq!(
            values(&joined.next().now_or_never().unwrap().unwrap().unwrap()),
            [0]
        );
        sender.unbounded_send(Ok(message(1..2))).unwrap();
        assert!(joined.next().now_or_never().is_none());
        sender.unbounded_send(Ok(message(2..3))).unwrap();
        assert_eq!(values(&joined.next().await.unwrap().unwrap()), [1, 2]);
        sender
            .unbounded_send(Err(Error::unavailable("lost")))
            .unwrap();
        assert!(joined.next().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_worker_that_has_no_rows_sends_none() {
        assert!(sent(Vec::new()).await.is_empty());
    }
}
