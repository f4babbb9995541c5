use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tower::BoxError;

use crate::runtimes::panic_error;

/// The work of a node from a request to the beginning of its answer.
pub(super) type Answering = BoxFuture<'static, Response<Body>>;

/// A call and what is left of its work. The caller polls the work, and the called node can break
/// it off at any time, even if the caller polls it no more.
pub(super) struct Call {
    /// The work runs in this runtime, whatever runtime the caller runs in. Its timers are then not
    /// late when the CPU runtime is busy, and its tasks are where those of other calls are.
    io: Handle,
    state: Mutex<CallState>,
}

struct CallState {
    step: Step,
    /// Wakes the caller, if it waits.
    caller: Option<Waker>,
}

enum Step {
    Answering(Answering),
    Sending(Body),
    Ended,
    BrokenOff,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Call {
    pub(super) fn new(answering: Answering, io: Handle) -> Self {
        Self {
            io,
            state: Mutex::new(CallState {
                step: Step::Answering(answering),
                caller: None,
            }),
        }
    }

    /// Drops what is left of the work.
    pub(super) fn end(&self) {
        self.finish(Step::Ended);
    }

    /// Drops what is left of the work, and tells the caller that the node is gone.
    pub(super) fn break_off(&self) {
        if let Some(caller) = self.finish(Step::BrokenOff) {
            caller.wake();
        }
    }

    fn finish(&self, last: Step) -> Option<Waker> {
        let (left, caller) = {
            let mut state = self.state.lock();
            if matches!(state.step, Step::Ended) {
                return None;
            }
            (
                std::mem::replace(&mut state.step, last),
                state.caller.take(),
            )
        };
        let _io = self.io.enter();
        drop(left);
        caller
    }

    /// Polls the work with `poll`. A panic becomes an error of this call, and does not reach the
    /// task of the caller, which may make other calls.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Step, &mut Context<'_>) -> Poll<T>,
        failed: impl FnOnce(Status) -> T,
    ) -> Poll<T> {
        let mut state = self.state.lock();
        let _io = self.io.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut state.step, cx)));
        match polled {
            Ok(Poll::Pending) => {
                if !matches!(&state.caller, Some(waker) if waker.will_wake(cx.waker())) {
                    state.caller = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            Ok(ready) => ready,
            Err(panic) => {
                state.step = Step::Ended;
                Poll::Ready(failed(panic_status(panic.as_ref())))
            }
        }
    }

    /// Polls the work until the answer begins.
    pub(super) fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, BoxError>> {
        let poll = |step: &mut Step, cx: &mut Context<'_>| {
            let Step::Answering(answering) = step else {
                return Poll::Ready(Err(LostNode.into()));
            };
            let (head, body) = ready!(answering.as_mut().poll(cx)).into_parts();
            *step = Step::Sending(body);
            Poll::Ready(Ok(Response::from_parts(head, ())))
        };
        self.poll(cx, poll, |status| Ok(status.into_http()))
    }

    /// Polls the next frame of the answer's body.
    pub(super) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let poll = |step: &mut Step, cx: &mut Context<'_>| match step {
            Step::Sending(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if frame.is_none() {
                    *step = Step::Ended;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Step::BrokenOff => {
                *step = Step::Ended;
                Poll::Ready(Some(Err(LostNode.into())))
            }
            Step::Answering(_) | Step::Ended => Poll::Ready(None),
        };
        self.poll(cx, poll, |status| Some(Err(status.into())))
    }
}

fn panic_status(panic: &(dyn Any + Send)) -> Status {
    panic_error(panic).into()
}

/// The error of a call whose node has stopped. It has no code, as the error of a connection that
/// broke. So callers treat both alike.
#[derive(Debug)]
pub(super) struct LostNode;

impl fmt::Display for LostNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the node has stopped")
    }
}

impl std::error::Error for LostNode {}
