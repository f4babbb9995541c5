//! The result streams that are open, and their end: by the client, by the deadline, by a cancellation.
//!
//! A stream whose client has stopped reading is not polled, so a deadline inside of it would never fire. Therefore
//! the rows stand in a slot that a timer, or a cancellation, empties from outside: that drops the query, on all nodes.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use arrow_flight::FlightData;
use futures::stream::{BoxStream, Stream, StreamExt};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tonic::Status;
use tracing::Span;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::deadline::Deadline;

/// Messages to a client.
pub(super) type FlightDataStream = BoxStream<'static, Result<FlightData, Status>>;

/// The open streams of this gateway, by query.
#[derive(Debug, Default)]
pub(super) struct Running {
    slots: Mutex<HashMap<QueryId, Weak<Slot>>>,
}

impl Running {
    /// The stream of a query, which ends at the deadline and can be cancelled. Must be called within a runtime.
    pub(super) fn watch(
        self: &Arc<Self>,
        id: QueryId,
        messages: FlightDataStream,
        deadline: Deadline,
    ) -> FlightDataStream {
        let slot = Arc::new(Slot {
            state: Mutex::new(State::Open(messages)),
            reader: AtomicWaker::new(),
        });
        self.slots.lock().insert(id, Arc::downgrade(&slot));
        let timed = Arc::downgrade(&slot);
        let timer = tokio::spawn(async move {
            tokio::time::sleep_until(deadline.at()).await;
            if let Some(slot) = timed.upgrade() {
                slot.end(deadline.error().at(format_args!("query {id}")));
            }
        });
        Watched {
            id,
            slot,
            running: Arc::clone(self),
            timer,
            span: tracing::info_span!("stream", query_id = %id),
            started: Instant::now(),
            bytes: 0,
        }
        .boxed()
    }

    /// Ends the stream of a query; false if there is none here.
    pub(super) fn cancel(&self, id: QueryId) -> bool {
        let slot = self.slots.lock().get(&id).and_then(Weak::upgrade);
        let Some(slot) = slot else {
            return false;
        };
        slot.end(Error::new(
            ErrorCode::Cancelled,
            format!("query {id}: the client cancelled it"),
        ));
        true
    }
}

/// Where the messages of a stream come from, as long as they may come.
struct Slot {
    state: Mutex<State>,
    reader: AtomicWaker,
}

enum State {
    Open(FlightDataStream),
    Failed(Error),
    Done,
}

impl Slot {
    /// Drops the query; the reader is told why.
    fn end(&self, error: Error) {
        let mut state = self.state.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::Failed(error);
            self.reader.wake();
        }
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// The stream that the client reads.
struct Watched {
    id: QueryId,
    slot: Arc<Slot>,
    running: Arc<Running>,
    timer: JoinHandle<()>,
    span: Span,
    started: Instant,
    bytes: usize,
}

impl Stream for Watched {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watched = &mut *self;
        let _entered = watched.span.enter();
        watched.slot.reader.register(cx.waker());
        let mut state = watched.slot.state.lock();
        let polled = match &mut *state {
            State::Open(messages) => messages.poll_next_unpin(cx),
            State::Failed(_) => match std::mem::replace(&mut *state, State::Done) {
                State::Failed(error) => Poll::Ready(Some(Err(error.into()))),
                State::Open(_) | State::Done => Poll::Ready(None),
            },
            State::Done => Poll::Ready(None),
        };
        match &polled {
            Poll::Ready(Some(Ok(message))) => watched.bytes += message.data_body.len(),
            Poll::Ready(Some(Err(status))) => {
                *state = State::Done;
                tracing::info!(code = ?status.code(), error = status.message(), "the query has failed");
            }
            Poll::Ready(None) => *state = State::Done,
            Poll::Pending => {}
        }
        polled
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.timer.abort();
        let _entered = self.span.enter();
        let complete = !matches!(*self.slot.state.lock(), State::Open(_));
        tracing::debug!(bytes = self.bytes, elapsed = ?self.started.elapsed(), complete, "the stream has ended");
        let mut slots = self.running.slots.lock();
        // A ticket may be redeemed twice at a time: the entry may be that of the other stream.
        if slots
            .get(&self.id)
            .is_some_and(|slot| slot.as_ptr() == Arc::as_ptr(&self.slot))
        {
            slots.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::stream;
    use tonic::Code;
    use tonic::metadata::MetadataMap;

    use super::*;

    fn endless(guard: Arc<()>) -> FlightDataStream {
        stream::iter([Ok(FlightData::default())])
            .chain(stream::pending())
            .map(move |message| {
                let _held = &guard;
                message
            })
            .boxed()
    }

    fn within(limit: Duration) -> Deadline {
        Deadline::of(&MetadataMap::new(), limit)
    }

    #[tokio::test]
    async fn a_deadline_drops_the_query_also_when_nobody_reads() {
        let (running, guard) = (Arc::new(Running::default()), Arc::new(()));
        let deadline = within(Duration::from_millis(10));
        let mut watched = running.watch(QueryId::new(), endless(guard.clone()), deadline);
        while Arc::strong_count(&guard) > 1 {
            tokio::task::yield_now().await;
        }
        let status = watched.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(watched.next().await.is_none());
    }

    #[tokio::test]
    async fn a_cancelled_query_ends_and_is_forgotten() {
        let (running, id) = (Arc::new(Running::default()), QueryId::new());
        let deadline = within(Duration::from_secs(60));
        let mut watched = running.watch(id, endless(Arc::new(())), deadline);
        assert!(watched.next().await.unwrap().is_ok());
        assert!(running.cancel(id));
        let status = watched.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Cancelled);
        assert!(status.message().contains(&id.to_string()));
        drop(watched);
        assert!(!running.cancel(id));
        assert!(running.slots.lock().is_empty());
    }

    #[tokio::test]
    async fn a_client_that_goes_away_drops_the_query() {
        let (running, guard) = (Arc::new(Running::default()), Arc::new(()));
        let deadline = within(Duration::from_secs(60));
        drop(running.watch(QueryId::new(), endless(guard.clone()), deadline));
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
