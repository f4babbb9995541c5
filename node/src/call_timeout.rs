use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};
use volary_flight_proto::{Error, ErrorCode};

/// The fewest bytes of a message that must arrive in each period.
const MIN_PROGRESS_BYTES: usize = 64 << 10;
/// Length of a period.
pub(crate) const PROGRESS_PERIOD: Duration = Duration::from_secs(10);

/// Ends a message that makes too little progress.
#[derive(Debug)]
pub(crate) struct ProgressTimeout {
    period: Duration,
    period_ends: Pin<Box<Sleep>>,
    /// Bytes of the message that were held when the period began.
    bytes: usize,
}

impl ProgressTimeout {
    /// Begins a period. `bytes` of the message are held at its beginning.
    pub(crate) fn new(period: Duration, bytes: usize) -> Self {
        Self {
            period,
            period_ends: Box::pin(sleep(period)),
            bytes,
        }
    }

    /// Completes when a message makes too little progress. `bytes` of the message are held now.
    pub(crate) fn poll_end(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<Error> {
        loop {
            ready!(self.period_ends.as_mut().poll(cx));
            if bytes.saturating_sub(self.bytes) < MIN_PROGRESS_BYTES {
                let period = self.period;
                return Poll::Ready(deadline_exceeded(format!(
                    "a message has stalled after {bytes} bytes: less than {MIN_PROGRESS_BYTES} bytes came in {period:?}; send it again"
                )));
            }
            self.bytes = bytes;
            let next = Instant::now() + self.period;
            self.period_ends.as_mut().reset(next);
        }
    }
}

/// Ends a call of a stranger that is not over in time, whether the stranger has begun to send its
/// message or not.
#[derive(Debug)]
pub(crate) struct StrangerTimeout {
    length: Duration,
    ends: Instant,
    /// Timer for the end. It is created when somebody first waits for it, because most calls are
    /// over before that.
    timer: Option<Pin<Box<Sleep>>>,
}

impl StrangerTimeout {
    /// Starts the time now.
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            ends: Instant::now() + length,
            timer: None,
        }
    }

    /// Returns the time limit for identifying the stranger. It is longer than a worker's time limit
    /// for the gateway's answer, because that limit ends with a more helpful error.
    pub(crate) fn for_introduction(&self) -> Self {
        Self::new(self.length + self.length / 2)
    }

    /// Completes when the time is over before the whole call has arrived. `bytes` have arrived.
    pub(crate) fn poll_message(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<Error> {
        ready!(self.poll_end(cx));
        let length = self.length;
        Poll::Ready(deadline_exceeded(format!(
            "a call has stalled after {bytes} bytes: a client that has not logged in must send the whole call within {length:?}; send it again"
        )))
    }

    /// Completes when the time is over before the stranger is identified.
    pub(crate) fn poll_introduction(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        ready!(self.poll_end(cx));
        let length = self.length;
        Poll::Ready(deadline_exceeded(format!(
            "no gateway has identified the sender of a message within {length:?}; try again"
        )))
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(self.ends)));
        timer.as_mut().poll(cx)
    }
}

fn deadline_exceeded(text: String) -> Error {
    Error::new(ErrorCode::DeadlineExceeded, text)
}
