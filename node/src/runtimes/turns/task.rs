use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::permits::{KindPermits, LentPermit, PermitWait, Permits};
use super::usage::{CurrentWorkGuard, NEW_WORK_TIME, WorkKind, WorkUsage};
use crate::admission::RunPlace;

/// Time for which a long poll pauses when new work computes. It is also the time between two checks
/// whether new work computes.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// Limit on the pauses of a poll, as a multiple of the time for which it has computed. So a long
/// poll gets at least a third of a thread.
const MAX_PAUSES: u32 = 2;

thread_local! {
    /// The poll that has a permit on this thread.
    static POLL: RefCell<Option<PermittedPoll>> = const { RefCell::new(None) };
}

/// A poll that has a permit.
struct PermittedPoll {
    /// The permits of new work, which a long poll gives way to.
    new: KindPermits,
    usage: Arc<WorkUsage>,
    since: Instant,
    last_check: Instant,
    paused: Duration,
}

impl PermittedPoll {
    fn computing_time(&self) -> Duration {
        self.since.elapsed().saturating_sub(self.paused)
    }

    fn is_long(&self) -> bool {
        self.computing_time() >= NEW_WORK_TIME || self.usage.kind() == WorkKind::Long
    }

    fn may_pause(&self) -> bool {
        self.paused < self.computing_time() * MAX_PAUSES
    }
}

/// Lets new work compute if this thread is in a long poll. A poll that takes long calls this
/// function wherever it checks whether it is to end. The function returns soon after `is_ended`
/// begins to return true.
///
/// A permit decides only when a poll begins. Without pauses, a poll of several seconds would
/// compete with short queries for all that time.
pub fn yield_to_new_work(is_ended: impl Fn() -> bool) {
    POLL.with_borrow_mut(|poll| {
        let Some(poll) = poll else {
            return;
        };
        if poll.last_check.elapsed() < PAUSE {
            return;
        }
        while poll.is_long()
            && poll.may_pause()
            && poll.new.has_recent_poll(NEW_WORK_TIME)
            && !is_ended()
        {
            let began = Instant::now();
            std::thread::sleep(PAUSE);
            poll.paused += began.elapsed();
        }
        poll.last_check = Instant::now();
    });
}

/// A task of a work, which is polled only while it has a permit.
///
/// A task that waits for its permit must be polled when it is woken. Otherwise it would keep the
/// permit from other tasks. So whoever polls it must wait for nothing else.
pub struct Task {
    permits: Permits,
    usage: Arc<WorkUsage>,
    /// The permit that the task waits for, and its kind.
    waiting: Option<(WorkKind, PermitWait)>,
    /// True if the thread must look at other tasks before this one takes a permit again.
    must_yield: bool,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("usage", &self.usage)
            .field("waits_as", &self.waiting.as_ref().map(|(kind, _)| kind))
            .finish_non_exhaustive()
    }
}

impl Task {
    pub(super) fn new(permits: Permits, usage: Arc<WorkUsage>) -> Self {
        Self {
            permits,
            usage,
            waiting: None,
            must_yield: false,
        }
    }

    /// Calls `poll` once the task has a permit. Within a poll that already has a permit, it calls
    /// `poll` at once.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if POLL.with_borrow(Option::is_some) {
            return poll(cx);
        }
        let permit = ready!(self.poll_permit(cx));
        let polling = PollGuard::begin(&self.permits, &self.usage);
        let polled = poll(cx);
        drop(polling);
        self.must_yield = permit.give_back() && polled.is_ready();
        polled
    }

    /// Waits for a permit.
    ///
    /// If this task has just passed a permit on to a task that waited, it goes back to the
    /// scheduler first. The runtime wakes the other task on this thread, in a slot from which no
    /// other thread takes it. If this task got another permit and computed at once, the woken task
    /// would keep its permit unused for as long as that poll takes. Two such tasks kept all short
    /// queries waiting for seconds.
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<LentPermit> {
        loop {
            if std::mem::take(&mut self.must_yield) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some((kind, waiting)) = &mut self.waiting else {
                let kind = self.usage.kind();
                let permits = self.permits.of(kind);
                if let Some(permit) = permits.try_lend(&self.usage) {
                    return Poll::Ready(permit);
                }
                self.waiting = Some((kind, permits.wait(&self.usage)));
                continue;
            };
            let place = ready!(waiting.as_mut().poll(cx));
            let kind = *kind;
            self.waiting = None;
            if kind == self.usage.kind() {
                return Poll::Ready(self.permits.of(kind).lend(place, &self.usage));
            }
            // Other tasks of this work have computed in the meantime and made it long.
            self.must_yield = place.is_some_and(RunPlace::give_back);
        }
    }
}

/// Calls `poll` without a permit. Within a poll that has a permit, its time counts as that poll's.
pub(super) fn poll_without_permit<T>(
    permits: &Permits,
    usage: &Arc<WorkUsage>,
    poll: impl FnOnce() -> T,
) -> T {
    if POLL.with_borrow(Option::is_some) {
        // The memory is still that of the inner work.
        let _works_for = CurrentWorkGuard::begin(usage);
        return poll();
    }
    let _polling = PollGuard::begin(permits, usage);
    poll()
}

#[cfg(test)]
pub(super) fn has_permit() -> bool {
    POLL.with_borrow(Option::is_some)
}

/// Calls `done` as if on a thread that polls nothing.
#[cfg(test)]
pub(super) fn on_another_thread<T>(done: impl FnOnce() -> T) -> T {
    let poll = POLL.take();
    let result = done();
    POLL.set(poll);
    result
}

/// Counts the time of a poll, even if the poll panics.
struct PollGuard {
    _works_for: CurrentWorkGuard,
}

impl PollGuard {
    fn begin(permits: &Permits, usage: &Arc<WorkUsage>) -> Self {
        let now = Instant::now();
        POLL.set(Some(PermittedPoll {
            new: permits.new.clone(),
            usage: Arc::clone(usage),
            since: now,
            last_check: now,
            paused: Duration::ZERO,
        }));
        Self {
            _works_for: CurrentWorkGuard::begin(usage),
        }
    }
}

impl Drop for PollGuard {
    fn drop(&mut self) {
        if let Some(poll) = POLL.take() {
            poll.usage.add_time(poll.computing_time());
        }
    }
}

/// A future that is polled only while its task has a permit.
pub(crate) struct PermittedFuture<F> {
    task: Task,
    future: Pin<Box<F>>,
}

impl<F> PermittedFuture<F> {
    pub(crate) fn new(task: Task, future: F) -> Self {
        Self::of_boxed(task, Box::pin(future))
    }

    /// Creates a future from one that may have been polled already.
    pub(crate) fn of_boxed(task: Task, future: Pin<Box<F>>) -> Self {
        Self { task, future }
    }
}

impl<F: Future> Future for PermittedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { task, future } = &mut *self;
        task.poll(cx, |cx| future.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_pauses_for_a_limited_part_of_its_time() {
        let began_before = |seconds, paused| PermittedPoll {
            new: Permits::new(1).new,
            usage: Arc::new(WorkUsage::of_user(0)),
            since: Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .unwrap(),
            last_check: Instant::now(),
            paused: Duration::from_secs(paused),
        };
        assert!(began_before(1000, 0).may_pause());
        assert!(began_before(1000, 500).may_pause());
        assert!(!began_before(1000, 800).may_pause());
    }
}
