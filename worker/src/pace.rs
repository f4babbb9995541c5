use std::time::Duration;

/// A number of bytes per second that background work may read or write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    bytes_per_second: usize,
}

impl Pace {
    /// Creates a pace of at least one byte per second.
    pub(crate) fn new(bytes_per_second: usize) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
        }
    }

    /// Returns how long to wait after this number of bytes.
    pub(crate) fn pause(self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
    }
}
