//! Deadlines and sizes of a gather.

use std::time::Duration;

use volary_node::message_limit::MessageLimit;

/// What the operator has set.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A worker that sends nothing for so long, not even a sign of life, is given up.
    pub idle_timeout: Duration,
    /// How long a stream that failed before its first row is tried again.
    pub retry_for: Duration,
    /// Size of a batch that a worker aims at, in bytes, where there is memory for it.
    pub batch_bytes: usize,
    /// The widest HTTP/2 window of a stream, in bytes.
    pub stream_window_bytes: usize,
    /// The largest message that is taken from a worker.
    pub message: MessageLimit,
    /// The settings that say how much memory a gather may take, for errors.
    pub memory_setting: &'static str,
}

impl Limits {
    /// Workers send a sign of life so many times within the idle timeout.
    const SIGNS_OF_LIFE_PER_TIMEOUT: u32 = 4;

    /// How often a worker that has nothing to send says that it lives.
    pub fn keep_alive(&self) -> Duration {
        self.idle_timeout / Self::SIGNS_OF_LIFE_PER_TIMEOUT
    }
}
