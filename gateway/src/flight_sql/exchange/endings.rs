use futures::FutureExt;
use futures::future::{BoxFuture, Fuse};
use tokio_util::sync::CancellationToken;
use volary_flight_proto::{Error, SqlState};

/// How a stream ends if its client does not end it.
#[derive(Debug)]
pub(super) enum Ending {
    /// Nothing more is read. What was read is answered.
    AfterWhatWasRead(Error),
    /// What has not begun is given up.
    AtOnce(Error),
}

/// Waits for what ends a stream other than its client. A stream that answers what it has read,
/// because the gateway shuts down, can still be ended at once.
pub(super) struct Endings {
    at_once: Fuse<BoxFuture<'static, Error>>,
    stopping: Fuse<BoxFuture<'static, ()>>,
    /// The batches that a client has to send again, as a message names them.
    unanswered: &'static str,
}

impl Endings {
    /// The stream ends when `at_once` completes or the gateway is `stopping`. `unanswered` is what
    /// a message calls the batches that a client has to send again.
    pub(super) fn new(
        at_once: impl Future<Output = Error> + Send + 'static,
        stopping: CancellationToken,
        unanswered: &'static str,
    ) -> Self {
        Self {
            at_once: at_once.boxed().fuse(),
            stopping: stopping.cancelled_owned().boxed().fuse(),
            unanswered,
        }
    }

    /// Waits for the next ending. There is at most one of each kind, and after both, this waits
    /// forever. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Ending {
        tokio::select! {
            biased;
            error = &mut self.at_once => Ending::AtOnce(error),
            () = &mut self.stopping => {
                let error = Error::unavailable(format!(
                    "the gateway is shutting down; connect again, and send {}",
                    self.unanswered
                ));
                Ending::AfterWhatWasRead(error.with_sqlstate(SqlState::AdminShutdown))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_stream_that_ends_later_can_still_be_ended_at_once() {
        let stopping = CancellationToken::new();
        let (end, ended) = oneshot::channel();
        let ended = async { ended.await.unwrap() };
        let mut endings = Endings::new(ended, stopping.clone(), "the rest");
        assert!(endings.next().now_or_never().is_none());
        stopping.cancel();
        let Ending::AfterWhatWasRead(error) = endings.next().await else {
            panic!("what was read is not answered");
        };
        assert!(error.message().ends_with("send the rest"), "{error}");
        assert!(endings.next().now_or_never().is_none());
        end.send(Error::invalid("ended by an administrator"))
            .unwrap();
        assert!(matches!(endings.next().await, Ending::AtOnce(_)));
        assert!(endings.next().now_or_never().is_none());
    }
}
