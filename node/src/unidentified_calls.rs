//! HTTP/2 lets a client send as much as the windows allow, and bytes that no call has read yet are
//! kept in memory. The windows are large because uploads need them, and they are the same for
//! everybody. So a connection on which no sender is identified is read only a little ahead of the
//! slowest of its calls. This holds whatever that call waits for: the check of a password, or the
//! answer of a gateway.
//!
//! No call waits forever. A call that does not read waits for something that has a deadline and
//! that needs no more bytes of the connection. A call that reads is woken before it holds the
//! others up, and then reads everything that has arrived for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use tonic::Status;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::message_budget::{BudgetShare, Sender};

/// The most bytes by which a connection is read ahead of one of its calls: the size of a frame. No
/// call needs more, and more would only be kept in memory. (Frames of one byte take about twenty
/// times as much memory as the bytes of the connection.)
pub(crate) const MAX_UNREAD_BYTES: u64 = 16 << 10;
/// The most calls of a connection that may wait until their senders are identified. For example, a
/// hundred threads of one program may fetch direct results over one connection. Each call takes
/// about 10 KiB beside its headers.
pub const MAX_WAITING_CALLS: usize = 128;
/// Time after which a refused call may be made again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Identifies a sender that sends more than
/// [`MAX_UNIDENTIFIED_BYTES`](crate::whole_messages::MAX_UNIDENTIFIED_BYTES).
pub type Introduction = BoxFuture<'static, Result<Sender, Status>>;

/// The calls of one connection.
#[derive(Debug)]
pub(crate) struct UnidentifiedCalls {
    is_identified: AtomicBool,
    /// Number of bytes that have been read from the connection.
    received: AtomicU64,
    state: Mutex<CallsState>,
}

#[derive(Debug, Default)]
struct CallsState {
    last_number: u64,
    calls: HashMap<u64, Call>,
    waiting: usize,
    /// Wakes the task that reads the connection. It is set while that task waits for calls.
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Call {
    /// Number of bytes that had been read from the connection when this call had last read all of
    /// its own.
    read_position: u64,
    /// Wakes the body of the call, which waits for more bytes.
    waker: Option<Waker>,
    is_waiting: bool,
}

impl UnidentifiedCalls {
    /// Creates the state of a connection without calls. With `is_known`, the connection is read
    /// without a limit.
    pub(crate) fn new(is_known: bool) -> Self {
        Self {
            is_identified: AtomicBool::new(is_known),
            received: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Returns whether a sender is identified on the connection.
    pub(crate) fn is_identified(&self) -> bool {
        self.is_identified.load(Ordering::Acquire)
    }

    /// Notes that a sender is identified on the connection. From now on the connection is read
    /// without a limit.
    fn note_identified(&self) {
        self.is_identified.store(true, Ordering::Release);
        let reader = {
            let mut state = self.state.lock();
            state.calls.clear();
            state.waiting = 0;
            state.reader.take()
        };
        wake(reader);
    }

    /// Notes that a call has begun. The call is unidentified until the returned value is dropped,
    /// or until its sender is identified.
    pub(crate) fn begin(self: &Arc<Self>) -> UnidentifiedCall {
        let mut number = 0;
        if !self.is_identified() {
            let mut state = self.state.lock();
            state.last_number += 1;
            number = state.last_number;
            let call = Call {
                read_position: self.received.load(Ordering::Relaxed),
                waker: None,
                is_waiting: false,
            };
            state.calls.insert(number, call);
        }
        UnidentifiedCall {
            calls: Arc::clone(self),
            number,
            header_share: None,
        }
    }

    /// Notes that this many bytes have been read from the connection.
    pub(crate) fn note_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Completes when the connection may be read further.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_identified() {
            return Poll::Ready(());
        }
        let received = self.received.load(Ordering::Relaxed);
        let mut wakers = Vec::new();
        {
            let mut state = self.state.lock();
            let mut is_behind = false;
            for call in state.calls.values_mut() {
                if received.saturating_sub(call.read_position) >= MAX_UNREAD_BYTES {
                    is_behind = true;
                    wakers.extend(call.waker.take());
                }
            }
            if !is_behind {
                return Poll::Ready(());
            }
            state.reader = Some(cx.waker().clone());
        }
        wake(wakers);
        Poll::Pending
    }

    /// Changes a call if it is still unidentified. Wakes the reader of the connection if it waits.
    fn change(&self, number: u64, change: impl FnOnce(&mut Call)) {
        if self.is_identified() {
            return;
        }
        let reader = {
            let mut state = self.state.lock();
            let Some(call) = state.calls.get_mut(&number) else {
                return;
            };
            change(call);
            state.reader.take()
        };
        wake(reader);
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// A call whose sender is not identified yet.
#[derive(Debug)]
pub(crate) struct UnidentifiedCall {
    calls: Arc<UnidentifiedCalls>,
    number: u64,
    /// Memory that the headers of the call take.
    header_share: Option<BudgetShare>,
}

impl UnidentifiedCall {
    /// Registers the call as waiting for its sender to be identified, unless a sender is already
    /// identified on the connection. Until then, `share` accounts for the `header_bytes` of its
    /// headers.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many calls of the connection wait already, or if `share` has no
    /// room for the headers.
    pub(crate) fn register_waiting(
        &mut self,
        mut share: BudgetShare,
        header_bytes: usize,
    ) -> Result<()> {
        if self.calls.is_identified() || self.header_share.is_some() {
            return Ok(());
        }
        share.grow(header_bytes)?;
        let mut state = self.calls.state.lock();
        if state.waiting >= MAX_WAITING_CALLS {
            let text = format!(
                "{MAX_WAITING_CALLS} calls of this connection already wait until their senders are identified, and that is the limit; call again when one of them has been answered"
            );
            let error = Error::new(ErrorCode::ResourceExhausted, text);
            return Err(error.with_retry_after(RETRY_AFTER));
        }
        if let Some(call) = state.calls.get_mut(&self.number) {
            call.is_waiting = true;
            state.waiting += 1;
            self.header_share = Some(share);
        }
        Ok(())
    }

    /// Notes that the sender of the call is identified.
    pub(crate) fn note_identified(&mut self) {
        self.header_share = None;
        if !self.calls.is_identified() {
            self.calls.note_identified();
        }
    }

    /// Wraps an introduction. A sender that it identifies counts as identified on the connection.
    pub(crate) fn watch_introduction(&self, introduction: Introduction) -> Introduction {
        let calls = Arc::clone(&self.calls);
        introduction
            .inspect_ok(move |_| calls.note_identified())
            .boxed()
    }

    /// Returns the handle with which the call's body reports how far it was read.
    pub(crate) fn read_progress(&self) -> ReadProgress {
        ReadProgress {
            calls: Arc::clone(&self.calls),
            number: self.number,
        }
    }
}

impl Drop for UnidentifiedCall {
    fn drop(&mut self) {
        if self.calls.is_identified() {
            return;
        }
        let reader = {
            let mut state = self.calls.state.lock();
            if let Some(call) = state.calls.remove(&self.number) {
                state.waiting -= usize::from(call.is_waiting);
            }
            state.reader.take()
        };
        wake(reader);
    }
}

/// Reports how far a call's body was read.
#[derive(Debug)]
pub(crate) struct ReadProgress {
    calls: Arc<UnidentifiedCalls>,
    number: u64,
}

impl ReadProgress {
    /// Returns the number of bytes that have been read from the connection so far.
    pub(crate) fn received(&self) -> u64 {
        self.calls.received.load(Ordering::Relaxed)
    }

    /// Notes that the body waits for more bytes. The body had read all of its own bytes when
    /// `received` bytes had been read from the connection.
    pub(crate) fn note_waiting(&self, received: u64, cx: &Context<'_>) {
        self.calls.change(self.number, |call| {
            call.read_position = received;
            match &mut call.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => call.waker = Some(cx.waker().clone()),
            }
        });
    }

    /// Notes that nothing more is kept for the body, because it has ended.
    pub(crate) fn note_end(&self) {
        self.calls.change(self.number, |call| {
            call.read_position = u64::MAX;
            call.waker = None;
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::task::noop_waker_ref;

    use super::*;
    use crate::message_budget::{MAX_STRANGERS_BYTES, MessageBudget};

    const A_FRAME: usize = 16 << 10;

    fn is_readable(calls: &UnidentifiedCalls) -> bool {
        let cx = Context::from_waker(noop_waker_ref());
        calls.poll_readable(&cx).is_ready()
    }

    fn connection() -> Arc<UnidentifiedCalls> {
        Arc::new(UnidentifiedCalls::new(false))
    }

    #[test]
    fn a_connection_is_read_a_little_further_than_its_slowest_call() {
        let calls = connection();
        calls.note_received(10 * A_FRAME);
        assert!(is_readable(&calls), "nothing was called");
        let first = calls.begin();
        calls.note_received(A_FRAME - 1);
        assert!(is_readable(&calls));
        let second = calls.begin();
        calls.note_received(1);
        assert!(!is_readable(&calls), "the first call has read nothing");
        drop(first);
        assert!(is_readable(&calls));
        calls.note_received(A_FRAME);
        assert!(!is_readable(&calls), "the second call has read nothing");
        second.read_progress().note_end();
        assert!(is_readable(&calls));
        calls.note_received(100 * A_FRAME);
        assert!(is_readable(&calls), "nothing is kept for it");
    }

    #[test]
    fn a_call_that_reads_is_woken_and_holds_nobody_up() {
        let calls = connection();
        let call = calls.begin();
        let reading = call.read_progress();
        let (waker, woken) = counted_waker();
        let cx = Context::from_waker(&waker);
        for round in 1..4 {
            reading.note_waiting(reading.received(), &cx);
            calls.note_received(A_FRAME);
            assert!(!is_readable(&calls));
            assert_eq!(woken.load(Ordering::Relaxed), round);
        }
        reading.note_waiting(reading.received(), &cx);
        assert!(is_readable(&calls));
    }

    #[test]
    fn a_connection_that_waits_is_woken_by_each_decision() {
        let known = |call: UnidentifiedCall| {
            let mut call = call;
            call.note_identified();
        };
        let decisions: [fn(UnidentifiedCall); 3] =
            [drop, known, |call| call.read_progress().note_end()];
        for decide in decisions {
            let calls = connection();
            let call = calls.begin();
            calls.note_received(A_FRAME);
            let (waker, woken) = counted_waker();
            let cx = Context::from_waker(&waker);
            assert!(calls.poll_readable(&cx).is_pending());
            assert_eq!(woken.load(Ordering::Relaxed), 0);
            decide(call);
            assert_eq!(woken.load(Ordering::Relaxed), 1);
            assert!(calls.poll_readable(&cx).is_ready());
        }
    }

    #[tokio::test]
    async fn once_somebody_is_known_nothing_is_held_back() {
        let calls = connection();
        let (refused, introduced) = (calls.begin(), calls.begin());
        calls.note_received(A_FRAME);
        let nobody = async { Err(Status::unauthenticated("log in")) }.boxed();
        refused.watch_introduction(nobody).await.unwrap_err();
        assert!(!is_readable(&calls));
        let kea = async { Ok(Sender::User("kea".into())) }.boxed();
        introduced.watch_introduction(kea).await.unwrap();
        assert!(is_readable(&calls));
        let later = calls.begin();
        calls.note_received(100 * A_FRAME);
        assert!(is_readable(&calls));
        drop((refused, introduced, later));
    }

    #[test]
    fn few_calls_wait_on_a_connection_and_what_their_headers_take_is_given_back() {
        let unfinished = MessageBudget::new(1 << 30, "send less");
        let stranger = || unfinished.share(Sender::stranger(None));
        let calls = connection();
        let mut waiting: Vec<_> = (0..=MAX_WAITING_CALLS).map(|_| calls.begin()).collect();
        let mut last = waiting.pop().unwrap();
        for call in &mut waiting {
            call.register_waiting(stranger(), 100).unwrap();
            // A second call of `register_waiting` is not counted again.
            call.register_waiting(stranger(), 100).unwrap();
        }
        let error = last.register_waiting(stranger(), 100).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(error.message().contains("128 calls of this connection"));
        assert_eq!(unfinished.bytes(), 100 * MAX_WAITING_CALLS);
        waiting.pop();
        last.register_waiting(stranger(), 100).unwrap();
        waiting.clear();
        assert_eq!(unfinished.bytes(), 100);
        let mut large = calls.begin();
        let error = large
            .register_waiting(stranger(), MAX_STRANGERS_BYTES)
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        last.note_identified();
        assert_eq!(unfinished.bytes(), 0);
        large
            .register_waiting(stranger(), MAX_STRANGERS_BYTES)
            .unwrap();
        assert_eq!(unfinished.bytes(), 0, "somebody is known");
    }

    /// Returns a waker and the number of times that it was woken.
    fn counted_waker() -> (Waker, Arc<AtomicU64>) {
        struct Counted(Arc<AtomicU64>);
        impl std::task::Wake for Counted {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(AtomicU64::new(0));
        (Arc::new(Counted(Arc::clone(&woken))).into(), woken)
    }
}
