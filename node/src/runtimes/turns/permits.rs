use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::usage::{NEW_WORK_TIME, WorkKind, WorkUsage};
use crate::admission::{Admission, RunPlace};

/// The permits of all works. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Permits {
    pub(super) new: KindPermits,
    pub(super) long: KindPermits,
}

impl Permits {
    /// Creates `at_a_time` permits for new work, and as many for long work.
    pub(super) fn new(at_a_time: usize) -> Self {
        let passed_on = max_passed_on(at_a_time);
        Self {
            // A user's point query is not kept waiting by a few statements of the same user that
            // take long to plan.
            new: KindPermits::new(at_a_time, at_a_time + passed_on / 2, passed_on),
            // The long polls of one user never take more threads than there are processors.
            long: KindPermits::new(at_a_time, at_a_time, passed_on),
        }
    }

    /// Returns the number of threads for the polls that compute at the same time, including polls
    /// that go on after their permits were passed on.
    pub(super) fn threads(at_a_time: usize) -> usize {
        2 * (at_a_time + max_passed_on(at_a_time))
    }

    /// Returns the permits for work of a kind.
    pub(super) fn of(&self, kind: WorkKind) -> &KindPermits {
        match kind {
            WorkKind::New => &self.new,
            WorkKind::Long => &self.long,
        }
    }

    /// Passes on the permits that are kept for too long. Never ends. It must not run on the runtime
    /// whose tasks have the permits.
    pub(super) async fn pass_on(&self) {
        futures::join!(
            self.new.pass_on(NEW_WORK_TIME),
            self.long.pass_on(NEW_WORK_TIME)
        );
    }
}

/// Returns how many permits of each kind may be passed on at a time. While that many polls go on
/// without a permit, other tasks wait until one of these polls has ended.
fn max_passed_on(at_a_time: usize) -> usize {
    at_a_time.max(8)
}

/// The permits of one kind of work. Clones share them.
#[derive(Clone)]
pub(super) struct KindPermits(Arc<Shared>);

struct Shared {
    /// Serves one user after the other, and for each user one work after the other.
    places: Admission,
    /// Limit on the permits whose holders go on computing after their permit was passed on.
    max_passed_on: usize,
    holders: Mutex<Holders>,
    /// Wakes the task that passes permits on as soon as the last permit is lent.
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
    usage: Arc<WorkUsage>,
    /// The permit. It is `None` only while the node shuts down.
    place: Option<RunPlace>,
    is_passed_on: bool,
}

/// Waits for a permit. The permit is `None` only if the node shuts down.
pub(super) type PermitWait = Pin<Box<dyn Future<Output = Option<RunPlace>> + Send>>;

impl KindPermits {
    /// Creates permits. At most `most_of_user` tasks of one user compute at a time, whether or not
    /// their permits were passed on. At most `most_passed_on` permits are passed on at a time.
    pub(super) fn new(permits: usize, most_of_user: usize, most_passed_on: usize) -> Self {
        let places = Admission::new("tasks", permits, usize::MAX);
        Self(Arc::new(Shared {
            places: places.with_max_running_per_user(most_of_user),
            max_passed_on: most_passed_on,
            holders: Mutex::default(),
            all_lent: Notify::new(),
        }))
    }

    /// Lends a permit to the work to which `usage` belongs. Returns `None` if it has to wait.
    pub(super) fn try_lend(&self, usage: &Arc<WorkUsage>) -> Option<LentPermit> {
        let place = self.0.places.try_enter(&usage.user(), None)?;
        Some(self.lend(Some(place), usage))
    }

    /// Waits for a permit for the work to which `usage` belongs.
    pub(super) fn wait(&self, usage: &Arc<WorkUsage>) -> PermitWait {
        let (shared, user) = (Arc::clone(&self.0), usage.user());
        // Two works never have the same address at the same time.
        let work = Arc::as_ptr(usage).addr();
        Box::pin(async move { shared.places.enter(&user, &work, None).await.ok() })
    }

    /// Records that the work to which `usage` belongs holds the permit from now on.
    pub(super) fn lend(&self, place: Option<RunPlace>, usage: &Arc<WorkUsage>) -> LentPermit {
        let mut holders = self.0.holders.lock();
        let number = holders.next;
        holders.next += 1;
        holders.all.push(Holder {
            number,
            since: Instant::now(),
            usage: Arc::clone(usage),
            place,
            is_passed_on: false,
        });
        drop(holders);
        if !self.0.places.has_free_place() {
            self.0.all_lent.notify_one();
        }
        LentPermit {
            permits: self.clone(),
            number: Some(number),
        }
    }

    /// Returns whether any poll that began less than `longest` ago still computes.
    pub(super) fn has_recent_poll(&self, longest: Duration) -> bool {
        let holders = self.0.holders.lock();
        holders
            .all
            .iter()
            .any(|holder| holder.since.elapsed() < longest)
    }

    /// Passes on each permit that has been kept for `longest`, and makes the work of its holder
    /// long. Never ends.
    pub(super) async fn pass_on(&self, longest: Duration) {
        loop {
            self.0.all_lent.notified().await;
            while !self.0.places.has_free_place() {
                tokio::time::sleep(longest).await;
                self.pass_on_once(longest);
            }
        }
    }

    pub(super) fn pass_on_once(&self, longest: Duration) {
        let mut holders = self.0.holders.lock();
        let passed_on = holders.all.iter().filter(|holder| holder.is_passed_on);
        let more = self.0.max_passed_on.saturating_sub(passed_on.count());
        let is_overdue =
            |holder: &&mut Holder| !holder.is_passed_on && holder.since.elapsed() >= longest;
        for holder in holders.all.iter_mut().filter(is_overdue).take(more) {
            holder.is_passed_on = true;
            holder.usage.add_time(NEW_WORK_TIME);
            if let Some(place) = &mut holder.place {
                place.share();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.0.places.running()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.0.places.waiting()
    }
}

impl fmt::Debug for KindPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KindPermits").field(&self.0.places).finish()
    }
}

/// A lent permit. Dropping this value gives the permit back.
pub(super) struct LentPermit {
    permits: KindPermits,
    /// The number of the holder. It is `None` once the permit was returned.
    number: Option<u64>,
}

impl LentPermit {
    /// Gives the permit back. Returns whether a waiting task has got a permit because of that.
    pub(super) fn give_back(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(number) = self.number.take() else {
            return false;
        };
        let mut holders = self.permits.0.holders.lock();
        let mut all = holders.all.iter();
        let position = all.position(|holder| holder.number == number);
        let holder = position.map(|position| holders.all.swap_remove(position));
        drop(holders);
        let place = holder.and_then(|holder| holder.place);
        place.is_some_and(RunPlace::give_back)
    }
}

impl Drop for LentPermit {
    fn drop(&mut self) {
        self.end();
    }
}
