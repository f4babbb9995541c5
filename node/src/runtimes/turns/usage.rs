use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Computing time after which work is long. Before that it is new. It is also the longest time that
/// a poll keeps its permit.
pub(super) const NEW_WORK_TIME: Duration = Duration::from_millis(20);

thread_local! {
    /// The usage of the work that this thread currently works for.
    static CURRENT: RefCell<Option<Arc<WorkUsage>>> = const { RefCell::new(None) };
}

/// Returns the usage of the work that this thread works for, or `None` if it works for none.
pub(crate) fn current_usage() -> Option<Arc<WorkUsage>> {
    CURRENT.with_borrow(Option::clone)
}

/// Returns whether nobody waits any more for the result of what this thread computes.
pub(super) fn is_abandoned() -> bool {
    let is_abandoned = |usage: &Arc<WorkUsage>| usage.is_abandoned.load(Ordering::Relaxed);
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(is_abandoned))
}

/// The processor time that a work has used on its node, and the memory that it holds.
#[derive(Debug)]
pub(crate) struct WorkUsage {
    /// Number of the user whose work it is.
    user: u32,
    computed_micros: AtomicU64,
    bytes: AtomicUsize,
    /// True if nobody waits for the result of the work any more.
    is_abandoned: AtomicBool,
}

/// The kind of a work, which decides what permits it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    New,
    Long,
}

impl WorkUsage {
    pub(super) fn of_user(user: u32) -> Self {
        Self {
            user,
            computed_micros: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            is_abandoned: AtomicBool::new(false),
        }
    }

    pub(super) fn user(&self) -> u32 {
        self.user
    }

    /// Adds computing time.
    pub(super) fn add_time(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.computed_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Notes that the operators of the work hold this many more bytes.
    pub(crate) fn hold(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the operators of the work hold this many fewer bytes.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that the operators of the work hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes that nobody waits for the result of the work any more.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns the computing time so far.
    pub(super) fn computed(&self) -> Duration {
        Duration::from_micros(self.computed_micros.load(Ordering::Relaxed))
    }

    pub(super) fn kind(&self) -> WorkKind {
        if self.computed() < NEW_WORK_TIME {
            WorkKind::New
        } else {
            WorkKind::Long
        }
    }
}

/// Makes the thread work for the previous work again when it is dropped.
pub(super) struct CurrentWorkGuard(Option<Arc<WorkUsage>>);

impl CurrentWorkGuard {
    pub(super) fn begin(usage: &Arc<WorkUsage>) -> Self {
        Self(CURRENT.replace(Some(Arc::clone(usage))))
    }
}

impl Drop for CurrentWorkGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
