use std::sync::atomic::{AtomicU64, Ordering};

use volary_flight_proto::Result;

/// Counts the checks of passwords and tokens, for the gateway's metrics.
#[derive(Debug, Default)]
pub(crate) struct LoginCounts {
    accepted: AtomicU64,
    refused: AtomicU64,
    throttled: AtomicU64,
}

impl LoginCounts {
    /// Counts a password or a token that was right, or wrong.
    pub(super) fn add_checked<T>(&self, result: &Result<T>) {
        let count = match result {
            Ok(_) => &self.accepted,
            Err(_) => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a password that was not checked, because too many were wrong or wait.
    pub(super) fn add_throttled(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the name of each outcome with its count.
    pub(crate) fn all(&self) -> [(&'static str, u64); 3] {
        [
            ("accepted", &self.accepted),
            ("refused", &self.refused),
            ("throttled", &self.throttled),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}
