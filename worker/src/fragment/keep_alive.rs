use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow_flight::FlightData;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use volary_flight_proto::frame::Frame;

/// Shortest interval between keep-alives, whatever a gateway asks for. Keep-alives have a cost,
/// too.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// A stream of messages, with a keep-alive whenever no message came for the interval.
pub(crate) struct KeepAliveStream {
    messages: BoxStream<'static, Result<FlightData, Status>>,
    interval: Duration,
    silence: Option<Pin<Box<Sleep>>>,
}

impl KeepAliveStream {
    /// Builds the stream over `messages`.
    pub(crate) fn new(
        messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        interval: Duration,
    ) -> Self {
        Self {
            messages: messages.boxed(),
            interval: interval.max(SHORTEST_INTERVAL),
            silence: None,
        }
    }
}

impl Stream for KeepAliveStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(message) = self.messages.poll_next_unpin(cx) {
            self.silence = None;
            return Poll::Ready(message);
        }
        let interval = self.interval;
        // A timer belongs to the runtime in which it is created: here, the runtime that sends. On
        // the CPU runtime, the timer would be late exactly when a keep-alive is needed.
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(sleep(interval)));
        ready!(silence.as_mut().poll(cx));
        self.silence = None;
        Poll::Ready(Some(Ok(FlightData {
            app_metadata: Frame::keep_alive().to_bytes(),
            ..FlightData::default()
        })))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn keep_alives_come_until_there_is_something_to_send_and_between_messages() {
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let mut messages = KeepAliveStream::new(receiver, Duration::ZERO);
        let sign = Frame::keep_alive().to_bytes();
        let rows = FlightData {
            data_body: vec![1].into(),
            ..FlightData::default()
        };
        for _ in 0..2 {
            for _ in 0..2 {
                let message = messages.next().await.unwrap().unwrap();
                assert_eq!(message.app_metadata, sign);
            }
            sender.unbounded_send(Ok(rows.clone())).unwrap();
            assert_eq!(messages.next().await.unwrap().unwrap(), rows);
        }
        drop(sender);
        assert!(messages.next().await.is_none());
    }

    #[tokio::test]
    async fn what_is_at_hand_is_sent_without_them() {
        let rows = stream::iter((0..100).map(|_| Ok(FlightData::default())));
        let messages = KeepAliveStream::new(rows, Duration::ZERO);
        assert_eq!(messages.count().await, 100);
    }
}
