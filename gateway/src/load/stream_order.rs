use tokio::sync::watch;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Lets the batches of a stream commit in their order. If one fails, none after it commits.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Number of batches that have committed.
    committed: u64,
    has_failed: bool,
}

impl StreamOrder {
    /// Creates the order of a stream that has no batches yet.
    pub(crate) fn new() -> Self {
        Self {
            state: watch::Sender::new(State::default()),
        }
    }

    /// Lets no batch commit that has not begun to.
    pub(crate) fn fail(&self) {
        self.state.send_modify(|state| state.has_failed = true);
    }

    /// Notes that one more batch has committed.
    pub(super) fn note_commit(&self) {
        self.state.send_modify(|state| state.committed += 1);
    }

    /// Refuses to begin a batch after one that has failed.
    ///
    /// # Errors
    /// `CANCELLED`.
    pub(super) fn check(&self) -> Result<()> {
        match self.state.borrow().has_failed {
            true => Err(failed()),
            false => Ok(()),
        }
    }

    /// Waits until this many batches have committed.
    ///
    /// # Errors
    /// `CANCELLED` if one of them fails.
    pub(super) async fn wait_for_commits(&self, batches: u64) -> Result<()> {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|state| state.has_failed || state.committed >= batches);
        match reached.await {
            Ok(state) if !state.has_failed => Ok(()),
            _ => Err(failed()),
        }
    }
}

/// Returns the error of a batch that may not commit any more. The stream reports its own error.
fn failed() -> Error {
    Error::new(
        ErrorCode::Cancelled,
        "the stream has ended before this batch was committed; nothing of the batch was written",
    )
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_batch_waits_for_those_before_it_and_fails_with_them() {
        let order = StreamOrder::new();
        order.wait_for_commits(0).await.unwrap();
        let mut second = pin!(order.wait_for_commits(1));
        let mut third = pin!(order.wait_for_commits(2));
        assert!(poll!(&mut second).is_pending());
        order.note_commit();
        second.await.unwrap();
        assert!(poll!(&mut third).is_pending());
        order.check().unwrap();
        order.fail();
        third.await.unwrap_err();
        order.check().unwrap_err();
        order.wait_for_commits(1).await.unwrap_err();
    }
}
