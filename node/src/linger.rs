//! How long rows wait for others to make a larger batch.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

const LINGER: Duration = Duration::from_millis(10);

/// The wait of rows that are at hand. The first ones of a stream do not wait, so that a small answer is not late; later ones wait a few
/// milliseconds.
#[derive(Debug, Default)]
pub struct Linger {
    any_sent: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Linger {
    /// Whether what is at hand has waited long enough for more. Wakes the task when it has. Must be called within a runtime.
    pub fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        !self.any_sent
            || self
                .timer
                .get_or_insert_with(|| Box::pin(sleep(LINGER)))
                .as_mut()
                .poll(cx)
                .is_ready()
    }

    /// Rows go out: others that come after them wait anew.
    pub fn sent(&mut self) {
        *self = Self {
            any_sent: true,
            timer: None,
        };
    }
}
