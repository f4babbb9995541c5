//! A message announces its length, and tonic allocates memory for all of it before the message has
//! arrived. Here a message takes only as much memory as has arrived of it. That memory belongs to
//! the budget of [`MessageBudget`](crate::message_budget::MessageBudget), and the sender must keep
//! sending.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use hyper::body::{Body as HttpBody, Frame};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use volary_flight_proto::{Error, Result};

use crate::call_timeout::{PROGRESS_PERIOD, ProgressTimeout, StrangerTimeout};
use crate::message_budget::BudgetShare;
use crate::unidentified_calls::{Introduction, ReadProgress};

/// Length of the head of each message, in bytes. The head says whether the message is compressed (1
/// byte) and how long it is (4 bytes, big-endian).
const HEAD_BYTES: usize = 5;
/// Pieces below this size are copied together. Otherwise one byte would keep the whole buffer that
/// it was received in.
const SMALL_BYTES: usize = 4 << 10;
/// Size of the buffers that small pieces are copied into.
const COPIED_BYTES: usize = 64 << 10;

/// The most bytes that an unidentified sender may send before it must be identified.
pub const MAX_UNIDENTIFIED_BYTES: usize = 4 << 10;

/// A body that hands on complete messages only.
pub(crate) struct WholeMessages {
    inner: Body,
    /// Size of the largest message. Longer messages are left to tonic, which refuses them by their
    /// length.
    max_message_bytes: usize,
    period: Duration,
    share: BudgetShare,
    /// State of an unidentified sender. It is `None` once the sender is identified.
    stranger: Option<Stranger>,
    read_progress: ReadProgress,
    state: BodyState,
    partial: PartialMessage,
    /// Complete messages that are still to be handed on.
    complete: VecDeque<Bytes>,
    /// Bytes of `share` that belong to `complete`.
    complete_bytes: usize,
    progress_timeout: Option<ProgressTimeout>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyState {
    Open,
    /// The sender is being identified. Nothing more is read until that is done.
    Identifying,
    /// Bytes are handed on as they come. tonic has seen the head, and refuses the call.
    PassThrough,
    Ended,
}

/// A sender that is not identified yet.
struct Stranger {
    introduction: Introduction,
    /// Number of bytes that it has sent.
    received: usize,
    timeout: StrangerTimeout,
}

impl fmt::Debug for WholeMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WholeMessages")
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl WholeMessages {
    /// Creates the body. Messages of more than `max_message_bytes` are refused, and `share`
    /// accounts for the part of a message that has arrived. With an `introduction`, the sender is a
    /// stranger until the introduction ends. The body reports to `read_progress` how far it is
    /// read.
    pub(crate) fn new(
        inner: Body,
        max_message_bytes: usize,
        share: BudgetShare,
        introduction: Option<Introduction>,
        read_progress: ReadProgress,
    ) -> Self {
        let stranger = introduction.map(|introduction| Stranger {
            introduction,
            received: 0,
            timeout: StrangerTimeout::new(PROGRESS_PERIOD),
        });
        Self {
            inner,
            max_message_bytes,
            period: PROGRESS_PERIOD,
            share,
            stranger,
            read_progress,
            state: BodyState::Open,
            partial: PartialMessage::default(),
            complete: VecDeque::new(),
            complete_bytes: 0,
            progress_timeout: None,
        }
    }

    fn receive(&mut self, mut data: Bytes) -> Result<()> {
        if let Some(stranger) = &mut self.stranger {
            stranger.received += data.len();
            if stranger.received > MAX_UNIDENTIFIED_BYTES {
                stranger.timeout = stranger.timeout.for_introduction();
                self.state = BodyState::Identifying;
            }
        }
        while !data.is_empty() {
            if self.partial.is_empty() {
                let whole = complete_length(&data, self.max_message_bytes);
                if whole > 0 {
                    self.complete.push_back(data.split_to(whole));
                    continue;
                }
                self.progress_timeout = None;
            }
            let piece = data.split_to(self.partial.missing().min(data.len()));
            self.share.grow(piece.len())?;
            self.partial.push(piece);
            if self.partial.must_be_refused(self.max_message_bytes) {
                self.finish_message();
                self.complete.push_back(data);
                self.state = BodyState::PassThrough;
                return Ok(());
            }
            if self.partial.missing() == 0 {
                self.finish_message();
            }
        }
        Ok(())
    }

    fn finish_message(&mut self) {
        self.complete_bytes += self.partial.bytes;
        self.complete.extend(self.partial.take());
    }

    /// Completes if the missing part of a message does not arrive in time.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Some(stranger) = &mut self.stranger {
            return stranger.timeout.poll_message(stranger.received, cx);
        }
        // A known sender may wait as long as it likes between two messages.
        if self.partial.is_empty() {
            return Poll::Pending;
        }
        let (bytes, period) = (self.partial.bytes, self.period);
        let progress_timeout = self
            .progress_timeout
            .get_or_insert_with(|| ProgressTimeout::new(period, bytes));
        progress_timeout.poll_end(bytes, cx)
    }

    /// Waits until the introduction has identified the sender.
    fn poll_identified(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let Some(stranger) = &mut self.stranger else {
            return Poll::Ready(Ok(()));
        };
        let Poll::Ready(sender) = stranger.introduction.poll_unpin(cx) else {
            let late = ready!(stranger.timeout.poll_introduction(cx));
            return Poll::Ready(Err(late.into()));
        };
        self.share.charge_to(sender?)?;
        self.stranger = None;
        Poll::Ready(Ok(()))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if self.state == BodyState::Identifying {
                ready!(self.poll_identified(cx))?;
                self.state = BodyState::Open;
            }
            if let Some(data) = self.complete.pop_front() {
                if self.complete.is_empty() {
                    self.share.shrink(std::mem::take(&mut self.complete_bytes));
                }
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let received = self.read_progress.received();
            let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Pending => {
                    self.read_progress.note_waiting(received, cx);
                    let late = ready!(self.poll_timeout(cx));
                    return Poll::Ready(Some(Err(late.into())));
                }
                Poll::Ready(None) if self.partial.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) => {
                    let error = Error::invalid(format!(
                        "the call ended in the middle of a message, of which {} bytes had arrived",
                        self.partial.bytes
                    ));
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(Some(frame)) => frame?,
            };
            match frame.into_data() {
                Ok(data) if self.state == BodyState::PassThrough => {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(data) => self.receive(data)?,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }
}

impl HttpBody for WholeMessages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.state == BodyState::Ended {
            return Poll::Ready(None);
        }
        let frame = ready!(self.poll(cx));
        if matches!(frame, None | Some(Err(_))) {
            self.state = BodyState::Ended;
            self.partial = PartialMessage::default();
            self.complete.clear();
            self.share.clear();
            self.stranger = None;
            self.read_progress.note_end();
        }
        Poll::Ready(frame)
    }
}

/// Returns the length of the complete messages at the beginning of `data`, in bytes. Stops before a
/// message that is longer than `most_bytes`.
fn complete_length(data: &[u8], most_bytes: usize) -> usize {
    let mut whole = 0;
    while let Some(length) = Head::of(&data[whole..]).and_then(|head| head.length(most_bytes)) {
        match whole.checked_add(length) {
            Some(end) if end <= data.len() => whole = end,
            _ => break,
        }
    }
    whole
}

/// The bytes before a message.
#[derive(Clone, Copy)]
struct Head([u8; HEAD_BYTES]);

impl Head {
    fn of(data: &[u8]) -> Option<Self> {
        data.first_chunk().copied().map(Self)
    }

    /// Returns the length of the message with its head, or `None` if tonic refuses the message.
    fn length(self, most_bytes: usize) -> Option<usize> {
        let [is_compressed, length @ ..] = self.0;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        (is_compressed == 0 && length <= most_bytes).then_some(HEAD_BYTES + length)
    }
}

/// The part of a message that has arrived.
#[derive(Default)]
struct PartialMessage {
    pieces: VecDeque<Bytes>,
    /// Small pieces that have arrived after the last element of `pieces`.
    small: Vec<u8>,
    bytes: usize,
    head: Vec<u8>,
}

impl PartialMessage {
    fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns how many bytes may be added at once: up to the end of the head, or of the message.
    fn missing(&self) -> usize {
        match Head::of(&self.head).and_then(|head| head.length(usize::MAX)) {
            Some(length) => length - self.bytes,
            None => HEAD_BYTES.saturating_sub(self.bytes),
        }
    }

    fn must_be_refused(&self, most_bytes: usize) -> bool {
        Head::of(&self.head).is_some_and(|head| head.length(most_bytes).is_none())
    }

    fn push(&mut self, piece: Bytes) {
        let head_bytes = HEAD_BYTES.saturating_sub(self.bytes).min(piece.len());
        self.head.extend_from_slice(&piece[..head_bytes]);
        self.bytes += piece.len();
        if piece.len() < SMALL_BYTES {
            self.small.extend_from_slice(&piece);
            if self.small.len() >= COPIED_BYTES {
                self.flush();
            }
        } else {
            self.flush();
            self.pieces.push_back(piece);
        }
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.pieces
                .push_back(std::mem::take(&mut self.small).into());
        }
    }

    /// Takes out all pieces, and empties this value.
    fn take(&mut self) -> VecDeque<Bytes> {
        self.flush();
        std::mem::take(self).pieces
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::{StreamExt, future, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::message_budget::{MessageBudget, Sender};
    use crate::unidentified_calls::UnidentifiedCalls;

    const MOST: usize = 100_000;

    fn budget(bytes: usize) -> MessageBudget {
        MessageBudget::new(bytes, "send less")
    }

    fn message(bytes: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend_from_slice(&u32::try_from(bytes).unwrap().to_be_bytes());
        message.extend((0..bytes).map(|at| u8::try_from(at % 251).unwrap()));
        message
    }

    fn head(is_compressed: u8, length: u32) -> Vec<u8> {
        let mut head = vec![is_compressed];
        head.extend_from_slice(&length.to_be_bytes());
        head
    }

    fn frames(pieces: Vec<Vec<u8>>) -> impl futures::Stream<Item = Result<Frame<Bytes>, Status>> {
        stream::iter(
            pieces
                .into_iter()
                .map(|piece| Ok(Frame::data(piece.into()))),
        )
    }

    type Frames = stream::BoxStream<'static, Result<Frame<Bytes>, Status>>;

    fn of_user(frames: Frames, budget: &MessageBudget) -> WholeMessages {
        let share = budget.share(Sender::User("kea".into()));
        let reading = Arc::new(UnidentifiedCalls::new(true))
            .begin()
            .read_progress();
        WholeMessages::new(
            Body::new(StreamBody::new(frames)),
            MOST,
            share,
            None,
            reading,
        )
    }

    fn read(pieces: Vec<Vec<u8>>, budget: &MessageBudget) -> WholeMessages {
        of_user(frames(pieces).boxed(), budget)
    }

    /// Returns the first pieces of a call that has not ended, but sends nothing more for now.
    fn begun(pieces: Vec<Vec<u8>>) -> Frames {
        frames(pieces).chain(stream::pending()).boxed()
    }

    async fn next(body: &mut WholeMessages) -> Option<Result<Bytes, Status>> {
        let frame = body.frame().await?;
        Some(frame.map(|frame| frame.into_data().unwrap()))
    }

    /// Collects all that is handed on.
    async fn collected(mut body: WholeMessages) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(data) = next(&mut body).await {
            all.extend_from_slice(&data.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn messages_are_the_same_however_they_are_cut() {
        let all: Vec<u8> = [0, 1, 4, 5000, 70_000, 3, MOST, 0]
            .into_iter()
            .flat_map(message)
            .collect();
        for size in [1, 2, 5, 7, 4095, 4096, 16_384, all.len()] {
            let budget = budget(1 << 20);
            let pieces = all.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(collected(read(pieces, &budget)).await, all, "{size}");
            assert_eq!(budget.bytes(), 0);
        }
    }

    #[tokio::test]
    async fn nothing_of_a_message_is_handed_on_before_it_is_whole() {
        let (first, second) = (message(10), message(6000));
        let pieces = vec![
            [&first[..], &second[..3]].concat(),
            second[3..5500].to_vec(),
        ];
        let budget = budget(1 << 20);
        let mut body = of_user(begun(pieces), &budget);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), first);
        assert!(next(&mut body).now_or_never().is_none());
        assert_eq!(budget.bytes(), 5500);
        drop(body);
        assert_eq!(budget.bytes(), 0);
    }

    #[tokio::test]
    async fn a_message_that_does_not_go_on_ends_its_call() {
        let budget = budget(1 << 20);
        let mut body = of_user(begun(vec![message(60_000)[..1000].to_vec()]), &budget);
        body.period = Duration::from_millis(1);
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
        assert!(
            error.message().contains("stalled after 1000 bytes"),
            "{error}"
        );
        assert!(next(&mut body).await.is_none());
        assert_eq!(budget.bytes(), 0);
    }

    #[tokio::test]
    async fn between_two_messages_a_client_may_take_its_time() {
        let budget = budget(1 << 20);
        let mut body = of_user(begun(vec![message(10)]), &budget);
        body.period = Duration::ZERO;
        assert!(next(&mut body).await.is_some());
        assert!(next(&mut body).now_or_never().is_none());
        assert!(body.progress_timeout.is_none());
    }

    #[tokio::test]
    async fn what_has_no_room_is_refused_and_what_is_cut_short_is_an_error() {
        let small = budget(1000);
        let mut body = read(vec![message(6000)[..5000].to_vec()], &small);
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        assert_eq!(small.bytes(), 0);
        let budget = budget(1 << 20);
        let mut body = read(vec![message(6000)[..5000].to_vec()], &budget);
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert!(
            error.message().contains("ended in the middle of a message"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn what_tonic_refuses_by_its_head_reaches_it_at_once() {
        for refused in [head(0, u32::MAX), head(0, 100_001), head(1, 3), head(7, 3)] {
            let budget = budget(1 << 20);
            let pieces = vec![refused[..2].to_vec(), refused[2..].to_vec(), vec![1; 10]];
            let all = [&refused[..], &[1; 10]].concat();
            assert_eq!(collected(read(pieces, &budget)).await, all);
        }
    }

    fn of_stranger(frames: Frames, introduction: Introduction) -> WholeMessages {
        let share = budget(1 << 20).share(Sender::stranger(None));
        let reading = Arc::new(UnidentifiedCalls::new(false))
            .begin()
            .read_progress();
        let body = Body::new(StreamBody::new(frames));
        WholeMessages::new(body, MOST, share, Some(introduction), reading)
    }

    fn nobody_says() -> Introduction {
        future::pending().boxed()
    }

    #[tokio::test]
    async fn a_stranger_is_asked_who_it_is_before_it_sends_much() {
        let introduced = |sender: Result<Sender, Status>| {
            let pieces = message(60_000).chunks(1000).map(<[u8]>::to_vec).collect();
            of_stranger(frames(pieces).boxed(), Box::pin(async { sender }))
        };
        let known = introduced(Ok(Sender::User("kea".into())));
        assert_eq!(collected(known).await, message(60_000));
        let mut unknown = introduced(Err(Status::unauthenticated("log in")));
        let error = next(&mut unknown).await.unwrap().unwrap_err();
        assert_eq!(error.message(), "log in");
        assert!(next(&mut unknown).await.is_none());
    }

    #[tokio::test]
    async fn a_stranger_has_little_time_for_all_that_it_sends() {
        for (whole, pieces, come) in [
            (0, vec![], 0),
            (0, vec![message(1000)[..10].to_vec()], 10),
            // The call does not end after its message.
            (1, vec![message(10)], 15),
        ] {
            let mut body = of_stranger(begun(pieces), nobody_says());
            for _ in 0..whole {
                assert_eq!(next(&mut body).await.unwrap().unwrap(), message(10));
            }
            assert!(next(&mut body).now_or_never().is_none());
            let stranger = body.stranger.as_mut().unwrap();
            stranger.timeout = StrangerTimeout::new(Duration::from_millis(1));
            let error = next(&mut body).await.unwrap().unwrap_err();
            assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
            let text = format!("has stalled after {come} bytes");
            assert!(error.message().contains(&text), "{error}");
            assert!(next(&mut body).await.is_none());
        }
    }

    #[tokio::test]
    async fn who_is_asked_for_a_stranger_has_little_time_too() {
        let mut body = of_stranger(begun(vec![message(6000)]), nobody_says());
        let stranger = body.stranger.as_mut().unwrap();
        stranger.timeout = StrangerTimeout::new(Duration::from_millis(1));
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
        assert!(
            error
                .message()
                .contains("identified the sender of a message"),
            "{error}"
        );
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_connection_is_not_held_back_by_a_call_that_has_read_all_of_its_own() {
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let call = calls.begin();
        let body_of = |frames: Frames, introduction| {
            let share = budget(1 << 20).share(Sender::stranger(None));
            let body = Body::new(StreamBody::new(frames));
            WholeMessages::new(body, MOST, share, Some(introduction), call.read_progress())
        };
        let is_readable = || {
            let cx = Context::from_waker(futures::task::noop_waker_ref());
            calls.poll_readable(&cx).is_ready()
        };
        calls.note_received(1 << 20);
        assert!(!is_readable());
        let mut waits = body_of(begun(vec![message(1000)[..10].to_vec()]), nobody_says());
        assert!(next(&mut waits).now_or_never().is_none());
        assert!(is_readable());
        calls.note_received(1 << 20);
        let mut asks = body_of(begun(vec![message(6000)]), nobody_says());
        assert!(next(&mut asks).now_or_never().is_none());
        assert!(!is_readable());
        let ends = body_of(frames(vec![message(10)]).boxed(), nobody_says());
        collected(ends).await;
        assert!(is_readable());
    }
}
