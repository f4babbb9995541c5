use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::call::Call;

/// The calls of a node that have not ended.
#[derive(Debug)]
pub(super) struct OpenCalls {
    /// The runtime in which calls are answered.
    io: Handle,
    state: Mutex<State>,
    /// Wakes those who wait until no call is open.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_broken_off: bool,
    last_number: u64,
    by_number: HashMap<u64, Arc<Call>>,
}

impl OpenCalls {
    pub(super) fn new(io: Handle) -> Self {
        Self {
            io,
            state: Mutex::default(),
            emptied: Notify::new(),
        }
    }

    /// Returns the runtime in which calls are answered.
    pub(super) fn io(&self) -> &Handle {
        &self.io
    }

    /// Lists a call, and returns its number. Returns `None` if all calls were broken off.
    pub(super) fn list(&self, call: &Arc<Call>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.is_broken_off {
            return None;
        }
        state.last_number += 1;
        let number = state.last_number;
        state.by_number.insert(number, Arc::clone(call));
        Some(number)
    }

    /// Forgets a call that has ended.
    pub(super) fn remove(&self, number: u64) {
        let is_empty = {
            let mut state = self.state.lock();
            state.by_number.remove(&number);
            state.by_number.is_empty()
        };
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    /// Waits until no call is open.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.state.lock().by_number.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Breaks off all calls, and all that begin later. Their callers see a lost connection.
    pub(super) fn break_off(&self) {
        let calls = {
            let mut state = self.state.lock();
            state.is_broken_off = true;
            std::mem::take(&mut state.by_number)
        };
        self.emptied.notify_waiters();
        for call in calls.into_values() {
            call.break_off();
        }
    }
}
