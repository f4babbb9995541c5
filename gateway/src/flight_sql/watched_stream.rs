//! A result stream is not polled while its client does not read, so a deadline inside the stream
//! would never fire. The source of the rows is therefore kept in a slot, which a timer or a
//! cancellation can empty from outside. Emptying it drops the query on all nodes.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow_flight::FlightData;
use futures::stream::{Stream, StreamExt};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tonic::Status;
use tracing::Span;
use volary_exec::client_rows::ClientMessages;
use volary_flight_proto::{Error, ErrorCode};

use super::late_timers::{DELAY, LateTimer, LateTimers};
use crate::engine::StatementQueue;
use crate::statements::ListedStatement;
use volary_node::deadline::Deadline;

/// Interval at which it is checked whether a client takes rows.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time before a deadline within which the timer of a stream is started without a delay.
const NEAR_DEADLINE: Duration = DELAY.saturating_mul(10);

/// Returns the stream of a statement's messages. The stream ends at the deadline, when the
/// statement is ended, or when its client takes no rows for too long. `queue` says how long that
/// is. Must be called within a runtime.
pub(super) fn watch_stream(
    listed: ListedStatement,
    messages: ClientMessages,
    deadline: Deadline,
    queue: StatementQueue,
    timers: &LateTimers,
) -> ClientMessages {
    let id = listed.id();
    let span = tracing::info_span!("stream", query_id = %id);
    listed.begin_trace(&span);
    let ending = listed.wait_for_end();
    let slot = Arc::new(Slot {
        state: Mutex::new(State::Open(messages, listed)),
        unread_since: Mutex::new(None),
        reader: AtomicWaker::new(),
    });
    let weak_slot = Arc::downgrade(&slot);
    let timer = timers.add(async move {
        let error = tokio::select! {
            error = deadline.wait_expired() => error.at(format_args!("query {id}")),
            error = wait_until_unread(&weak_slot, &queue) => error.at(format_args!("query {id}")),
            error = ending => error,
        };
        if let Some(slot) = weak_slot.upgrade() {
            slot.end(error);
        }
    });
    if deadline.remaining() < NEAR_DEADLINE {
        timer.start();
    }
    WatchedStream {
        slot,
        _timer: timer,
        span,
        started: Instant::now(),
        bytes: 0,
    }
    .boxed()
}

/// The source of a stream's messages, which can be emptied from outside.
struct Slot {
    state: Mutex<State>,
    /// Time at which the client was last given a message. It is `None` while the client waits for a
    /// message.
    unread_since: Mutex<Option<tokio::time::Instant>>,
    reader: AtomicWaker,
}

/// Completes with an error when the client has asked for no message for too long.
async fn wait_until_unread(slot: &Weak<Slot>, queue: &StatementQueue) -> Error {
    while let Some(slot) = slot.upgrade() {
        let since = *slot.unread_since.lock();
        drop(slot);
        let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
        let timeout = queue.reader_timeout();
        if waited >= timeout {
            return Error::new(
                ErrorCode::DeadlineExceeded,
                format!(
                    "the client took no rows for {timeout:?}; read the rows sooner, or ask for fewer at once (if other statements wait for a place, the limit is gateway.query.unread_timeout)"
                ),
            );
        }
        tokio::time::sleep(CHECK_INTERVAL.min(timeout - waited)).await;
    }
    std::future::pending().await
}

enum State {
    /// The statement is listed for as long as it runs, also if its client does not read on.
    Open(ClientMessages, ListedStatement),
    Failed(Error),
    Done,
}

impl Slot {
    /// Drops the query. The reader receives the error.
    fn end(&self, error: Error) {
        let mut state = self.state.lock();
        if let State::Open(_, listed) = &*state {
            listed.set_failed(&error);
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
struct WatchedStream {
    slot: Arc<Slot>,
    /// Ends the stream. Dropping this ends the timer.
    _timer: LateTimer,
    span: Span,
    started: Instant,
    bytes: usize,
}

impl Stream for WatchedStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watched = &mut *self;
        let _entered = watched.span.enter();
        watched.slot.reader.register(cx.waker());
        *watched.slot.unread_since.lock() = None;
        let mut state = watched.slot.state.lock();
        let polled = match &mut *state {
            State::Open(messages, listed) => {
                let polled = messages.poll_next_unpin(cx);
                match &polled {
                    Poll::Ready(Some(Ok(message))) => {
                        *watched.slot.unread_since.lock() = Some(tokio::time::Instant::now());
                        watched.bytes += message.data_body.len();
                        listed.add_sent_bytes(message.data_body.len());
                        return polled;
                    }
                    Poll::Ready(Some(Err(status))) => {
                        listed.set_failed(&Error::from(status.clone()));
                    }
                    Poll::Ready(None) => listed.set_finished(),
                    Poll::Pending => return polled,
                }
                polled
            }
            State::Failed(_) | State::Done => match std::mem::replace(&mut *state, State::Done) {
                State::Failed(error) => Poll::Ready(Some(Err(error.into()))),
                State::Open(..) | State::Done => Poll::Ready(None),
            },
        };
        *state = State::Done;
        if let Poll::Ready(Some(Err(status))) = &polled {
            tracing::info!(code = ?status.code(), error = status.message(), "the query has failed");
        }
        polled
    }
}

impl Drop for WatchedStream {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        let complete = !matches!(*self.slot.state.lock(), State::Open(..));
        tracing::debug!(bytes = self.bytes, elapsed = ?self.started.elapsed(), complete, "the stream has ended");
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use tokio::runtime::Handle;
    use tonic::Code;
    use tonic::metadata::MetadataMap;
    use volary_catalog::access::Rights;
    use volary_flight_proto::ids::{QueryId, SessionId};

    use super::*;
    use crate::config;
    use crate::statements::{Issuer, Statements};

    fn endless(guard: Arc<()>) -> ClientMessages {
        stream::iter([Ok(FlightData::default())])
            .chain(stream::pending())
            .map(move |message| {
                let _held = &guard;
                message
            })
            .boxed()
    }

    fn within(limit: Duration) -> Deadline {
        Deadline::from_metadata(&MetadataMap::new(), limit)
    }

    fn gate() -> StatementQueue {
        StatementQueue::new(&config::Query::default())
    }

    fn listed(statements: &Arc<Statements>, id: QueryId) -> ListedStatement {
        let issuer = Issuer {
            user: "kea".to_owned(),
            session: SessionId::new(),
            client: None,
            tag: None,
            trace: None,
        };
        statements.add(id, issuer, "SELECT 1")
    }

    #[tokio::test]
    async fn a_deadline_drops_the_query_also_when_nobody_reads() {
        let (statements, guard) = (Arc::new(Statements::new(10)), Arc::new(()));
        let deadline = within(Duration::from_millis(10));
        let listed = listed(&statements, QueryId::new());
        let timers = LateTimers::new(&Handle::current());
        let mut watched = watch_stream(listed, endless(guard.clone()), deadline, gate(), &timers);
        while Arc::strong_count(&guard) > 1 {
            tokio::task::yield_now().await;
        }
        let status = watched.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(watched.next().await.is_none());
    }

    #[tokio::test]
    async fn a_query_that_is_ended_is_dropped_also_when_nobody_reads() {
        let (statements, id, guard) = (Arc::new(Statements::new(10)), QueryId::new(), Arc::new(()));
        let deadline = within(Duration::from_secs(60));
        let listed = listed(&statements, id);
        let timers = LateTimers::new(&Handle::current());
        let mut watched = watch_stream(listed, endless(guard.clone()), deadline, gate(), &timers);
        assert!(watched.next().await.unwrap().is_ok());
        assert!(statements.end_by(&Rights::of_open_cluster("kea"), id, "KILL has ended it"));
        while Arc::strong_count(&guard) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(statements.all(&Rights::of_open_cluster("kea")).is_empty());
        let status = watched.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Cancelled);
        assert!(status.message().contains(&id.to_string()));
        assert!(!statements.end_by(&Rights::of_open_cluster("kea"), id, "again"));
    }

    #[tokio::test]
    async fn a_client_that_goes_away_drops_the_query() {
        let (statements, guard) = (Arc::new(Statements::new(10)), Arc::new(()));
        let deadline = within(Duration::from_secs(60));
        let listed = listed(&statements, QueryId::new());
        drop(watch_stream(
            listed,
            endless(guard.clone()),
            deadline,
            gate(),
            &LateTimers::new(&Handle::current()),
        ));
        assert_eq!(Arc::strong_count(&guard), 1);
        assert!(statements.all(&Rights::of_open_cluster("kea")).is_empty());
    }
}
