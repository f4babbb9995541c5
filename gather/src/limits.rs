use std::time::Duration;

use volary_node::message_limit::MessageLimit;

/// The deadlines and sizes of a gather. On a gateway, the operator sets them.
#[derive(Debug, Clone, Copy)]
pub struct GatherLimits {
    /// Time after which a worker is given up if it has sent nothing, not even a keep-alive message.
    pub idle_timeout: Duration,
    /// How long a stream is retried if it failed before its first row.
    pub retry_timeout: Duration,
    /// Target size of a batch that a worker sends, in bytes, if there is memory for it.
    pub batch_bytes: usize,
    /// Size of the widest HTTP/2 window of a stream, in bytes.
    pub stream_window_bytes: usize,
    /// Size of the largest message that is accepted from a worker.
    pub message_limit: MessageLimit,
    /// The settings that say how much memory a gather may take. Errors name them.
    pub memory_setting: &'static str,
}

impl GatherLimits {
    /// Number of keep-alive messages that a worker sends within the idle timeout.
    const KEEP_ALIVES_PER_TIMEOUT: u32 = 4;

    /// Returns the time between two keep-alive messages of a worker that has nothing to send.
    pub fn keep_alive_interval(&self) -> Duration {
        self.idle_timeout / Self::KEEP_ALIVES_PER_TIMEOUT
    }
}
