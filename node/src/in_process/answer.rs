use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use tonic::codegen::http::Response;
use tower::BoxError;

use super::call::{Answering, Call, LostNode};
use super::open_calls::OpenCalls;

/// A call in the hands of its caller. Dropping it ends the call.
#[derive(Debug)]
struct OpenCall {
    call: Arc<Call>,
    /// Number of the call among the open ones; `None` if it is not listed.
    number: Option<u64>,
    calls: Arc<OpenCalls>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.call.end();
        if let Some(number) = self.number {
            self.calls.remove(number);
        }
    }
}

/// A call that waits for the beginning of its answer. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct PendingAnswer(Option<OpenCall>);

impl PendingAnswer {
    /// Begins a call. It is answered while this value, and later the body of the answer, is polled.
    pub(super) fn begin(calls: &Arc<OpenCalls>, answering: Answering) -> Self {
        let call = Arc::new(Call::new(answering, calls.io().clone()));
        let number = calls.list(&call);
        if number.is_none() {
            call.break_off();
        }
        Self(Some(OpenCall {
            call,
            number,
            calls: Arc::clone(calls),
        }))
    }
}

impl Future for PendingAnswer {
    type Output = Result<Response<InProcessBody>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(open) = &self.0 else {
            return Poll::Ready(Err(LostNode.into()));
        };
        let answered = ready!(open.call.poll_answer(cx));
        let call = self.0.take();
        Poll::Ready(answered.map(|head| head.map(|()| InProcessBody(call))))
    }
}

/// The body of an answer. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct InProcessBody(Option<OpenCall>);

impl HttpBody for InProcessBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(open) = &self.0 else {
            return Poll::Ready(None);
        };
        let frame = ready!(open.call.poll_frame(cx));
        if matches!(frame, None | Some(Err(_))) {
            self.0 = None;
        }
        Poll::Ready(frame)
    }
}
