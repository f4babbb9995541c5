use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Knows when a session was last used, and whether it was closed. It lives as long as the gateway
/// remembers the session or a statement of it runs.
#[derive(Debug)]
pub(super) struct SessionLife {
    last_used: Mutex<Instant>,
    is_closed: AtomicBool,
}

impl SessionLife {
    /// Creates the life of a session that begins now.
    pub(super) fn new() -> Self {
        Self {
            last_used: Mutex::new(Instant::now()),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Notes that the session is used now.
    pub(super) fn note_used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// Notes that the client has closed the session.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the client has closed the session.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns the time since the session was last used.
    pub(super) fn idle_time(&self) -> Duration {
        self.last_used.lock().elapsed()
    }
}
