//! A task keeps its thread until its poll ends, and a poll may take seconds: for example a regular
//! expression over a batch of long texts, or an aggregate that is written as one value. With one
//! thread per processor, two such tasks would keep all others waiting. So there are more threads
//! than processors, and each poll needs a permit.
//!
//! There are two kinds of work, and each has its own permits, one per processor. Work is long once
//! it has computed for some time, and new before that. If a poll takes longer than that, another
//! task gets its permit, and new work becomes long during the poll.
//!
//! Tasks that wait get permits user by user, and for each user work by work. So a user with many
//! queries gets no more turns than a user with one.

use std::sync::Arc;
use std::time::Duration;

use volary_flight_proto::{Error, ErrorCode, Result};

use permits::Permits;
pub(crate) use task::PermittedFuture;
pub use task::{Task, yield_to_new_work};
use usage::CurrentWorkGuard;
pub(crate) use usage::{WorkUsage, current_usage};

/// Lends permits to compute, and passes them on to others when they are kept for too long.
mod permits;
/// Polls the tasks of works while they have permits.
mod task;
/// Counts the time and memory that a work uses, and tracks which work a thread computes for.
mod usage;

/// The permits to compute on a node, for the works of one user. Clones share the permits.
#[derive(Debug, Clone)]
pub(crate) struct UserPermits {
    permits: Permits,
    user: u32,
}

impl UserPermits {
    /// Creates `at_a_time` permits for new work, and as many for long work.
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self {
            permits: Permits::new(at_a_time),
            user: 0,
        }
    }

    /// Returns the same permits for the works of another user.
    pub(super) fn of_user(&self, user: u32) -> Self {
        let permits = self.permits.clone();
        Self { permits, user }
    }

    /// Returns the number of threads for tasks that share `at_a_time` permits of each kind.
    pub(super) fn threads(at_a_time: usize) -> usize {
        Permits::threads(at_a_time)
    }

    /// Passes on the permits that are kept for too long. Never ends. It must not run on the runtime
    /// whose tasks have the permits.
    pub(super) async fn pass_on(self) {
        self.permits.pass_on().await;
    }

    /// Creates a work of the user that has computed nothing yet.
    pub(crate) fn work(&self) -> Work {
        Work {
            permits: self.permits.clone(),
            usage: Arc::new(WorkUsage::of_user(self.user)),
        }
    }
}

/// A work that consists of one or more tasks, such as a query or the planning of a statement.
/// Clones are the same work.
#[derive(Debug, Clone)]
pub struct Work {
    permits: Permits,
    usage: Arc<WorkUsage>,
}

impl Work {
    /// Creates a task of this work.
    pub fn task(&self) -> Task {
        Task::new(self.permits.clone(), Arc::clone(&self.usage))
    }

    /// Returns a guard. Dropping the guard tells the work that nobody waits for its result any
    /// more.
    pub(super) fn awaited_guard(&self) -> AwaitedGuard {
        AwaitedGuard(Arc::clone(&self.usage))
    }

    /// Runs `done` for this work, and not for the work of the task that calls it.
    pub(crate) fn run<T>(&self, action: impl FnOnce() -> T) -> T {
        let _outer = CurrentWorkGuard::begin(&self.usage);
        action()
    }

    /// Calls `poll`, which polls a task of this work, without a permit. Its time counts as
    /// computing time of the work.
    pub(super) fn poll_without_permit<T>(&self, poll: impl FnOnce() -> T) -> T {
        task::poll_without_permit(&self.permits, &self.usage, poll)
    }

    /// Returns how long this work has computed.
    pub(super) fn computed(&self) -> Duration {
        self.usage.computed()
    }

    /// Returns the bytes that the operators of this work hold of the node's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.usage.held_bytes()
    }
}

/// A guard that lives as long as somebody waits for the result of a work.
pub(super) struct AwaitedGuard(Arc<WorkUsage>);

impl Drop for AwaitedGuard {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Fails if nobody waits any more for the result of what this thread computes. Lets new work
/// compute if this thread has computed for long.
///
/// # Errors
/// `CANCELLED` if nobody waits.
pub fn check_awaited() -> Result<()> {
    yield_to_new_work(usage::is_abandoned);
    if usage::is_abandoned() {
        return Err(Error::new(ErrorCode::Cancelled, "the statement has ended"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::{Context, Poll};
    use std::time::Instant;

    use futures::FutureExt;
    use futures::task::noop_waker_ref;

    use super::permits::KindPermits;
    use super::usage::{NEW_WORK_TIME, WorkKind};
    use super::*;

    /// A task that does not run within this time never runs.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn context() -> Context<'static> {
        Context::from_waker(noop_waker_ref())
    }

    fn long_work(turns: &UserPermits) -> Work {
        let work = turns.work();
        work.usage.add_time(NEW_WORK_TIME);
        work
    }

    /// Polls the task `outer`, and calls `inner` during this poll, as if on another thread.
    fn poll_meanwhile<T>(outer: &mut Task, inner: impl FnOnce() -> T) -> Poll<T> {
        outer.poll(&mut context(), |_| {
            Poll::Ready(task::on_another_thread(inner))
        })
    }

    fn poll_of(task: &mut Task) -> Poll<()> {
        task.poll(&mut context(), |_| Poll::Ready(()))
    }

    #[test]
    fn long_work_waits_for_its_like_and_keeps_new_work_waiting_for_nothing() {
        let turns = UserPermits::new(1);
        let [mut running, mut waiting] = [long_work(&turns).task(), long_work(&turns).task()];
        let meanwhile = poll_meanwhile(&mut running, || poll_of(&mut waiting));
        assert_eq!(meanwhile, Poll::Ready(Poll::Pending));
        // The task that has passed its permit on lets the runtime look at others first.
        assert_eq!(poll_of(&mut running), Poll::Pending);
        assert_eq!(poll_of(&mut waiting), Poll::Ready(()));
        let mut new = turns.work().task();
        let meanwhile = poll_meanwhile(&mut running, || poll_of(&mut new));
        assert_eq!(meanwhile, Poll::Ready(Poll::Ready(())));
    }

    #[test]
    fn new_work_waits_for_its_like_until_that_has_computed_for_long() {
        let turns = UserPermits::new(1);
        let (work, other) = (turns.work(), turns.work());
        let mut running = work.task();
        let mut waiting = [work.task(), other.task(), other.task()];
        let done = poll_meanwhile(&mut running, || {
            for task in &mut waiting {
                assert_eq!(poll_of(task), Poll::Pending);
            }
            turns.permits.new.pass_on_once(Duration::ZERO);
            // The other task of the same work counts as long work now, and lets the others run.
            assert_eq!(poll_of(&mut waiting[0]), Poll::Pending);
            waiting.each_mut().map(poll_of)
        });
        assert_eq!(done, Poll::Ready([Poll::Ready(()); 3]));
        assert_eq!(work.usage.kind(), WorkKind::Long);
        assert_eq!(other.usage.kind(), WorkKind::New);
        // Passing the permit on has not duplicated it.
        let (mut first, mut second) = (turns.work().task(), turns.work().task());
        let meanwhile = poll_meanwhile(&mut first, || poll_of(&mut second));
        assert_eq!(meanwhile, Poll::Ready(Poll::Pending));
    }

    #[test]
    fn a_user_with_many_long_works_keeps_another_user_waiting_for_one_of_them() {
        let turns = UserPermits::new(1);
        let (many, one) = (turns.of_user(1), turns.of_user(2));
        let mut running = long_work(&many).task();
        let mut of_many = [(); 3].map(|()| long_work(&many).task());
        let mut of_one = long_work(&one).task();
        let waits = poll_meanwhile(&mut running, || {
            of_many
                .iter_mut()
                .chain([&mut of_one])
                .map(poll_of)
                .all(|polled| polled.is_pending())
        });
        assert_eq!(waits, Poll::Ready(true));
        assert_eq!(poll_of(&mut of_one), Poll::Pending);
        assert_eq!(poll_of(&mut of_many[0]), Poll::Ready(()));
        assert_eq!(poll_of(&mut of_many[1]), Poll::Pending);
        assert_eq!(poll_of(&mut of_one), Poll::Ready(()));
        assert_eq!(poll_of(&mut of_many[1]), Poll::Ready(()));
    }

    #[test]
    fn a_permit_of_long_work_that_is_kept_for_too_long_goes_to_another_user() {
        let turns = UserPermits::new(1);
        let (user, other) = (turns.of_user(1), turns.of_user(2));
        let mut running = long_work(&user).task();
        let [mut of_user, mut of_other] = [long_work(&user).task(), long_work(&other).task()];
        let meanwhile = poll_meanwhile(&mut running, || {
            assert_eq!(poll_of(&mut of_user), Poll::Pending);
            assert_eq!(poll_of(&mut of_other), Poll::Pending);
            turns.permits.long.pass_on_once(Duration::ZERO);
            (poll_of(&mut of_user), poll_of(&mut of_other))
        });
        assert_eq!(meanwhile, Poll::Ready((Poll::Pending, Poll::Ready(()))));
        assert_eq!(poll_of(&mut of_user), Poll::Ready(()));
        assert_eq!(turns.permits.long.lent(), 0);
    }

    #[test]
    fn permits_are_passed_on_up_to_a_limit() {
        let permits = KindPermits::new(1, 9, 1);
        let work = Arc::new(WorkUsage::of_user(0));
        let first = permits.try_lend(&work).unwrap();
        permits.pass_on_once(Duration::ZERO);
        let second = permits.try_lend(&work).unwrap();
        permits.pass_on_once(Duration::ZERO);
        assert!(permits.try_lend(&work).is_none());
        drop(first);
        assert!(permits.try_lend(&work).is_none());
        permits.pass_on_once(Duration::ZERO);
        let third = permits.try_lend(&work).unwrap();
        drop((second, third));
        assert_eq!(permits.lent(), 0);
    }

    #[test]
    fn a_long_poll_pauses_while_new_work_computes() {
        let turns = UserPermits::new(1);
        let (new, other) = (turns.work(), Cell::new(false));
        let poll = |_: &mut Context<'_>| {
            let began = Instant::now();
            while !other.get() && began.elapsed() < PATIENCE {
                let _computes = turns.permits.new.try_lend(&new.usage);
                yield_to_new_work(|| other.replace(true));
            }
            Poll::Ready(())
        };
        assert_eq!(
            long_work(&turns).task().poll(&mut context(), poll),
            Poll::Ready(())
        );
        assert!(other.get(), "the poll did not pause");
        let alone = |_: &mut Context<'_>| {
            let began = Instant::now();
            while began.elapsed() < 10 * task::PAUSE {
                yield_to_new_work(|| panic!("the poll pauses for nothing"));
            }
            Poll::Ready(())
        };
        assert_eq!(
            long_work(&turns).task().poll(&mut context(), alone),
            Poll::Ready(())
        );
    }

    #[test]
    fn within_a_poll_that_has_a_permit_nobody_waits_for_another_one() {
        let turns = UserPermits::new(1);
        for work in [turns.work(), long_work(&turns)] {
            let (mut outer, mut inner) = (work.task(), work.task());
            let polled = outer.poll(&mut context(), |_| poll_of(&mut inner));
            assert_eq!(polled, Poll::Ready(()));
        }
    }

    #[test]
    fn a_task_that_goes_on_lets_the_task_run_that_got_its_permit() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let turns = UserPermits::new(2);
        let other_permit = turns.permits.new.try_lend(&turns.work().usage).unwrap();
        let (computes, computing) = mpsc::channel();
        let (runs, has_run) = mpsc::channel();
        let (mut going_on, mut waiting) = (turns.work().task(), turns.work().task());
        let permits = turns.permits.new.clone();
        let going_on = runtime.spawn(async move {
            let first = |_: &mut Context<'_>| {
                computes.send(()).unwrap();
                let began = Instant::now();
                while permits.waiting() == 0 && began.elapsed() < PATIENCE {
                    std::thread::yield_now();
                }
                Poll::Ready(())
            };
            let mut first = Some(first);
            poll_fn(|cx| going_on.poll(cx, |cx| first.take().unwrap()(cx))).await;
            // There is a permit for the next poll, too, which lasts until the other task has run.
            drop(other_permit);
            let mut has_run = Some(has_run);
            poll_fn(|cx| {
                going_on.poll(cx, |_| {
                    Poll::Ready(has_run.take().unwrap().recv_timeout(PATIENCE))
                })
            })
            .await
        });
        // A task that was spawned within the poll above would wait for the thread of that poll.
        computing.recv_timeout(PATIENCE).unwrap();
        runtime.spawn(async move {
            poll_fn(|cx| waiting.poll(cx, |_| Poll::Ready(()))).await;
            runs.send(()).unwrap();
        });
        let waited = runtime.block_on(going_on).unwrap();
        waited.expect("the task that has got the permit did not run");
    }

    #[tokio::test]
    async fn all_get_their_turn_in_the_end() {
        let turns = UserPermits::new(2);
        let passes_on = tokio::spawn(turns.clone().pass_on());
        let tasks = (0..100).map(|number| {
            let work = if number % 2 == 0 {
                turns.work()
            } else {
                long_work(&turns)
            };
            let mut left = 20;
            let steps = poll_fn(move |cx| {
                left -= 1;
                if left == 0 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            });
            tokio::spawn(PermittedFuture::new(work.task(), steps))
        });
        for ended in futures::future::join_all(tasks).await {
            ended.unwrap();
        }
        assert_eq!(
            (turns.permits.new.lent(), turns.permits.long.lent()),
            (0, 0)
        );
        passes_on.abort();
    }

    #[test]
    fn a_poll_that_panics_gives_its_permit_back() {
        let turns = UserPermits::new(1);
        for work in [turns.work(), long_work(&turns)] {
            let panics = PermittedFuture::new(work.task(), async { panic!("of the test") });
            let caught = std::panic::AssertUnwindSafe(panics).catch_unwind();
            assert!(futures::executor::block_on(caught).is_err());
            assert_eq!(poll_of(&mut work.task()), Poll::Ready(()));
            assert!(!task::has_permit());
        }
    }
}
