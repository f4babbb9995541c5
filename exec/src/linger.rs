use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

const LINGER: Duration = Duration::from_millis(10);

/// Timer for ready rows that wait for more rows. The first rows of a stream do not wait, so that a
/// small answer is not delayed. Later rows wait a few milliseconds.
#[derive(Debug, Default)]
pub struct Linger {
    has_sent: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Linger {
    /// Returns whether the rows that are ready have waited long enough for more. If not, it wakes
    /// the task when they have. Must be called within a runtime.
    pub fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        !self.has_sent
            || self
                .timer
                .get_or_insert_with(|| Box::pin(sleep(LINGER)))
                .as_mut()
                .poll(cx)
                .is_ready()
    }

    /// Notes that rows are sent. Rows that come after them start a new wait.
    pub fn note_sent(&mut self) {
        *self = Self {
            has_sent: true,
            timer: None,
        };
    }
}
