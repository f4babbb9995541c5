//! Who computes where more is to be computed than there are processors.
//!
//! A task keeps its thread until its poll ends, and a poll may take seconds: a regular expression over a batch of long texts, an
//! aggregate that is written as one value. With one thread per processor, two such tasks keep everybody else waiting. So there
//! are more threads, and what has computed for some time takes turns with its like: together they never take more threads than there are
//! processors. On the others the system lets new work compute at once.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// What has computed for less takes no turns.
const FREE: Duration = Duration::from_millis(20);
/// So many polls of one work are made at a time before it is known that it computes for long.
const POLLS_ON_TRIAL: usize = 2;
/// Threads beside those of work that takes turns. Where such polls of more works than that are endless, new work waits.
pub(super) const THREADS_ON_TRIAL: usize = 4 * POLLS_ON_TRIAL;

thread_local! {
    /// Whether this thread is in a poll that has its turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// The turns of a node. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    /// So many polls of work that takes turns are made at a time.
    pub(super) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_a_time)))
    }

    /// A work that has computed nothing yet.
    pub(crate) fn work(&self) -> Work {
        Work {
            turns: self.clone(),
            spent: Arc::default(),
        }
    }
}

/// A work of one or several tasks: a query, the planning of a statement. Clones are the same work.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    turns: Turns,
    spent: Arc<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    micros: AtomicU64,
    polls_on_trial: AtomicUsize,
}

impl Work {
    /// A task of this work.
    pub(crate) fn task(&self) -> Task {
        Task {
            spent: Arc::clone(&self.spent),
            turn: PollSemaphore::new(Arc::clone(&self.turns.0)),
            is_waiting: false,
        }
    }
}

/// A task of a work, which is polled when it is its turn.
///
/// One that waits for its turn has to be polled when it is woken, or it would keep the turn from the others: whoever polls it waits for nothing
/// else.
pub(crate) struct Task {
    spent: Arc<Spent>,
    turn: PollSemaphore,
    is_waiting: bool,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("spent", &self.spent)
            .finish_non_exhaustive()
    }
}

impl Task {
    /// Polls once it is the task's turn; it is at once within a poll that has its turn, and for work that has computed little.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if HAS_TURN.get() {
            return poll(cx);
        }
        let trial = if self.is_waiting {
            None
        } else {
            self.spent.trial()
        };
        let _turn = match trial {
            Some(trial) => Turn::OnTrial(trial),
            None => {
                self.is_waiting = true;
                // The semaphore is never closed.
                let turn = ready!(self.turn.poll_acquire(cx));
                self.is_waiting = false;
                Turn::Taken(turn)
            }
        };
        let _polling = Polling::begin(&self.spent);
        poll(cx)
    }
}

/// Held during a poll.
#[allow(dead_code)] // held, never read
enum Turn<'a> {
    OnTrial(Trial<'a>),
    Taken(Option<OwnedSemaphorePermit>),
}

impl Spent {
    fn trial(&self) -> Option<Trial<'_>> {
        if u128::from(self.micros.load(Ordering::Relaxed)) >= FREE.as_micros() {
            return None;
        }
        let trial = Trial(self);
        let others = self.polls_on_trial.fetch_add(1, Ordering::Relaxed);
        (others < POLLS_ON_TRIAL).then_some(trial)
    }
}

/// A poll without a turn.
struct Trial<'a>(&'a Spent);

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.0.polls_on_trial.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts the time of a poll, also if it panics.
struct Polling<'a> {
    spent: &'a Spent,
    since: Instant,
}

impl<'a> Polling<'a> {
    fn begin(spent: &'a Spent) -> Self {
        HAS_TURN.set(true);
        Self {
            spent,
            since: Instant::now(),
        }
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        HAS_TURN.set(false);
        let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.spent.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// A future that is polled in turns.
pub(super) struct InTurns<F> {
    task: Task,
    future: Pin<Box<F>>,
}

impl<F> InTurns<F> {
    pub(super) fn new(task: Task, future: F) -> Self {
        Self {
            task,
            future: Box::pin(future),
        }
    }
}

impl<F: Future> Future for InTurns<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { task, future } = &mut *self;
        task.poll(cx, |cx| future.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::FutureExt;
    use futures::task::noop_waker_ref;

    use super::*;

    fn context() -> Context<'static> {
        Context::from_waker(noop_waker_ref())
    }

    /// Makes it a work that takes turns.
    fn has_computed_for_long(work: &Work) {
        work.spent.micros.store(1 << 40, Ordering::Relaxed);
    }

    /// Polls `inner` while a poll of `outer`'s task is being made.
    fn poll_meanwhile(outer: &mut Task, inner: impl FnOnce() -> Poll<()>) -> Poll<Poll<()>> {
        outer.poll(&mut context(), |_| {
            // As on another thread.
            HAS_TURN.set(false);
            let polled = inner();
            HAS_TURN.set(true);
            Poll::Ready(polled)
        })
    }

    fn poll_of(task: &mut Task) -> Poll<()> {
        task.poll(&mut context(), |_| Poll::Ready(()))
    }

    #[test]
    fn what_has_computed_for_long_waits_for_its_like_and_keeps_nobody_else_waiting() {
        let turns = Turns::new(1);
        let [heavy, other, new] = [turns.work(), turns.work(), turns.work()];
        has_computed_for_long(&heavy);
        has_computed_for_long(&other);
        let (mut running, mut waiting, mut fresh) = (heavy.task(), other.task(), new.task());
        let meanwhile = poll_meanwhile(&mut running, || poll_of(&mut waiting));
        assert_eq!(meanwhile, Poll::Ready(Poll::Pending));
        assert_eq!(poll_of(&mut waiting), Poll::Ready(()));
        let meanwhile = poll_meanwhile(&mut running, || poll_of(&mut fresh));
        assert_eq!(meanwhile, Poll::Ready(Poll::Ready(())));
    }

    #[test]
    fn a_work_on_trial_has_few_threads() {
        let turns = Turns::new(1);
        let (work, heavy) = (turns.work(), turns.work());
        has_computed_for_long(&heavy);
        let (mut first, mut second, mut third) = (work.task(), work.task(), work.task());
        let mut taken = heavy.task();
        // The only turn is taken, two polls are on trial, and the third one waits.
        let polled = poll_meanwhile(&mut taken, || {
            let polled = poll_meanwhile(&mut first, || {
                poll_meanwhile(&mut second, || poll_of(&mut third)).map(|third| {
                    assert_eq!(third, Poll::Pending);
                })
            });
            polled.map(|second| assert_eq!(second, Poll::Ready(())))
        });
        assert_eq!(polled, Poll::Ready(Poll::Ready(())));
        assert_eq!(work.spent.polls_on_trial.load(Ordering::Relaxed), 0);
        assert_eq!(poll_of(&mut third), Poll::Ready(()));
    }

    #[test]
    fn within_a_turn_nobody_waits_for_another_one() {
        let turns = Turns::new(1);
        let work = turns.work();
        has_computed_for_long(&work);
        let (mut outer, mut inner) = (work.task(), work.task());
        let polled = outer.poll(&mut context(), |_| poll_of(&mut inner));
        assert_eq!(polled, Poll::Ready(()));
    }

    #[tokio::test]
    async fn all_get_their_turn_in_the_end() {
        let turns = Turns::new(2);
        let tasks = (0..50).map(|_| {
            let work = turns.work();
            has_computed_for_long(&work);
            let mut left = 20;
            let steps = poll_fn(move |cx| {
                left -= 1;
                if left == 0 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            });
            tokio::spawn(InTurns::new(work.task(), steps))
        });
        for ended in futures::future::join_all(tasks).await {
            ended.unwrap();
        }
        assert_eq!(turns.0.available_permits(), 2);
    }

    #[test]
    fn a_poll_that_panics_gives_its_turn_back() {
        let turns = Turns::new(1);
        let work = turns.work();
        has_computed_for_long(&work);
        let panics = InTurns::new(work.task(), async { panic!("of the test") });
        let caught = std::panic::AssertUnwindSafe(panics).catch_unwind();
        assert!(futures::executor::block_on(caught).is_err());
        assert_eq!(poll_of(&mut work.task()), Poll::Ready(()));
        assert!(!HAS_TURN.get());
    }
}
