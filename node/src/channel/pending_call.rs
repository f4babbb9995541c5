use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::client::legacy;
use tokio::task::{JoinError, JoinHandle};
use tonic::codegen::Bytes;
use tonic::codegen::http::Response;
use tower::BoxError;

use crate::in_process::{InProcessBody, PendingAnswer};

type Answered<B, E> = Result<Response<B>, E>;

/// A call that waits for the beginning of its answer. Dropping it ends the call.
#[derive(Debug)]
pub struct PendingCall(Pending);

#[derive(Debug)]
enum Pending {
    /// The task sends the request over a connection.
    Connection(JoinHandle<Answered<Incoming, legacy::Error>>),
    /// The task makes the answer of a node of this process.
    Task(JoinHandle<Answered<InProcessBody, BoxError>>),
    /// The caller itself makes the answer of a node of this process.
    InProcess(PendingAnswer),
}

impl PendingCall {
    pub(super) fn over_connection(call: JoinHandle<Answered<Incoming, legacy::Error>>) -> Self {
        Self(Pending::Connection(call))
    }

    pub(super) fn in_task(call: JoinHandle<Answered<InProcessBody, BoxError>>) -> Self {
        Self(Pending::Task(call))
    }

    pub(super) fn in_process(call: PendingAnswer) -> Self {
        Self(Pending::InProcess(call))
    }
}

impl Future for PendingCall {
    type Output = Answered<AnswerBody, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match &mut self.0 {
            Pending::Connection(call) => {
                let answered = joined(ready!(Pin::new(call).poll(cx)));
                answered.map(|answer| answer.map(|body| AnswerBody(Source::Connection(body))))
            }
            Pending::Task(call) => {
                let answered = joined(ready!(Pin::new(call).poll(cx)));
                answered.map(|answer| answer.map(|body| AnswerBody(Source::InProcess(body))))
            }
            Pending::InProcess(call) => {
                let answered = ready!(Pin::new(call).poll(cx));
                answered.map(|answer| answer.map(|body| AnswerBody(Source::InProcess(body))))
            }
        })
    }
}

fn joined<B, E: Into<BoxError>>(ended: Result<Answered<B, E>, JoinError>) -> Answered<B, BoxError> {
    match ended {
        Ok(answered) => answered.map_err(Into::into),
        Err(stopped) => Err(stopped.into()),
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        match &self.0 {
            Pending::Connection(call) => call.abort(),
            Pending::Task(call) => call.abort(),
            Pending::InProcess(_) => {}
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub struct AnswerBody(Source);

#[derive(Debug)]
enum Source {
    Connection(Incoming),
    InProcess(InProcessBody),
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Source::Connection(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            Source::InProcess(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Connection(body) => body.is_end_stream(),
            Source::InProcess(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Connection(body) => body.size_hint(),
            Source::InProcess(body) => body.size_hint(),
        }
    }
}
