use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use arrow_flight::FlightData;
use futures::stream::{self, Stream, StreamExt};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// Longest time that an answer waits for its first rows. It is far shorter than the time after
/// which a gateway considers a worker dead.
const MAX_WAIT_FOR_ROWS: Duration = Duration::from_millis(50);
/// Longest time that rows wait for the end of the answer, which may follow at once.
const MAX_WAIT_FOR_END: Duration = Duration::from_millis(1);
/// Size above which an answer would not be sent in one piece anyway, in bytes.
const SMALL_BYTES: usize = 16 << 10;

/// Waits until the answer has ended, or until it is too large or too late for one piece. If it has
/// not ended, the rest is sent as it comes.
///
/// Each piece wakes the gateway. For an answer with few rows, thousands of workers at the same time
/// would wake it for the headers, the schema, the rows and the end. That would cost the gateway
/// more than everything that it does with the rows.
pub(crate) async fn buffer_small_answer(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + Unpin,
) -> impl Stream<Item = Result<FlightData, Status>> + Send {
    let mut messages = messages.fuse();
    let (mut buffered, mut bytes) = (Vec::new(), 0);
    let mut deadline = None;
    while bytes < SMALL_BYTES {
        // A short fragment has its messages at once, and needs no timer.
        let next = match poll_once(&mut messages).await {
            Poll::Ready(next) => next,
            Poll::Pending => {
                let until = *deadline.get_or_insert_with(|| Instant::now() + MAX_WAIT_FOR_ROWS);
                match timeout_at(until, messages.next()).await {
                    Ok(next) => next,
                    Err(_) => break,
                }
            }
        };
        let Some(message) = next else {
            break;
        };
        if let Ok(message) = &message
            && !message.data_body.is_empty()
        {
            bytes += message.data_body.len();
            let end = Instant::now() + MAX_WAIT_FOR_END;
            deadline = Some(deadline.map_or(end, |deadline| deadline.min(end)));
        }
        buffered.push(message);
    }
    stream::iter(buffered).chain(messages)
}

/// Polls a stream once.
async fn poll_once<S: Stream + Unpin>(stream: &mut S) -> Poll<Option<S::Item>> {
    poll_fn(|cx| Poll::Ready(stream.poll_next_unpin(cx))).await
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc::{UnboundedSender, unbounded};

    use super::*;

    fn message(body: usize) -> Result<FlightData, Status> {
        Ok(FlightData {
            data_body: vec![0; body].into(),
            ..FlightData::default()
        })
    }

    fn send(sender: &UnboundedSender<Result<FlightData, Status>>, body: usize) {
        sender.unbounded_send(message(body)).unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_ends_soon_is_whole() {
        let (sender, receiver) = unbounded();
        let answering = tokio::spawn(buffer_small_answer(receiver));
        for body in [0, 100, 0] {
            tokio::task::yield_now().await;
            send(&sender, body);
        }
        drop(sender);
        let messages: Vec<_> = answering.await.unwrap().collect().await;
        assert_eq!(messages.len(), 3);
    }

    #[tokio::test]
    async fn rows_do_not_wait_for_an_end_that_does_not_come() {
        for body in [0, 100, SMALL_BYTES] {
            let (sender, receiver) = unbounded();
            send(&sender, 0);
            send(&sender, body);
            let mut messages = buffer_small_answer(receiver).await;
            for body in [0, body] {
                let message = messages.next().await.unwrap().unwrap();
                assert_eq!(message.data_body.len(), body);
            }
            send(&sender, 7);
            assert_eq!(messages.next().await.unwrap().unwrap().data_body.len(), 7);
            drop(sender);
            assert!(messages.next().await.is_none());
        }
    }
}
