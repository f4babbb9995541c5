//! Implements permits that are passed on to others when they are kept for too long.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Taken;

/// The permits of new work. Clones share them.
#[derive(Clone)]
pub(super) struct Permits(Arc<Shared>);

struct Shared {
    semaphore: Arc<Semaphore>,
    holders: Mutex<Holders>,
    /// Wakes the task that passes permits on, because the last permit was lent.
    all_lent: Notify,
}

#[derive(Default)]
struct Holders {
    /// The current holders. There are at most as many as there are threads.
    all: Vec<Holder>,
    next: u64,
}

struct Holder {
    number: u64,
    since: Instant,
    taken: Arc<Taken>,
    is_passed_on: bool,
}

impl Permits {
    pub(super) fn new(permits: usize) -> Self {
        Self(Arc::new(Shared {
            semaphore: Arc::new(Semaphore::new(permits)),
            holders: Mutex::default(),
            all_lent: Notify::new(),
        }))
    }

    /// Returns the semaphore on which to wait for a permit.
    pub(super) fn semaphore(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.semaphore)
    }

    /// Records that the work to which `taken` belongs holds the permit from now on.
    pub(super) fn lend(&self, permit: Option<OwnedSemaphorePermit>, taken: &Arc<Taken>) -> Lent {
        let mut holders = self.0.holders.lock();
        let number = holders.next;
        holders.next += 1;
        holders.all.push(Holder {
            number,
            since: Instant::now(),
            taken: Arc::clone(taken),
            is_passed_on: false,
        });
        drop(holders);
        if self.0.semaphore.available_permits() == 0 {
            self.0.all_lent.notify_one();
        }
        Lent {
            permits: self.clone(),
            number,
            permit,
        }
    }

    /// Passes on each permit that has been kept for `longest`, and makes the work of its holder
    /// long. Never ends.
    pub(super) async fn pass_on(&self, longest: Duration) {
        loop {
            self.0.all_lent.notified().await;
            while self.0.semaphore.available_permits() == 0 {
                tokio::time::sleep(longest).await;
                self.pass_on_once(longest);
            }
        }
    }

    pub(super) fn pass_on_once(&self, longest: Duration) {
        let mut holders = self.0.holders.lock();
        for holder in &mut holders.all {
            let kept = holder.since.elapsed();
            if !holder.is_passed_on && kept >= longest {
                holder.is_passed_on = true;
                holder.taken.add_time(super::NEW_FOR);
                self.0.semaphore.add_permits(1);
            }
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("available", &self.0.semaphore.available_permits())
            .finish_non_exhaustive()
    }
}

/// A permit that is returned when this is dropped, unless it was passed on.
pub(super) struct Lent {
    permits: Permits,
    number: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut holders = self.permits.0.holders.lock();
        let holder = holders
            .all
            .iter()
            .position(|holder| holder.number == self.number)
            .map(|at| holders.all.swap_remove(at));
        drop(holders);
        if holder.is_some_and(|holder| holder.is_passed_on)
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}
