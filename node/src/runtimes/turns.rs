//! Decides which tasks compute if there is more to compute than there are processors.
//!
//! A task keeps its thread until its poll ends, and a poll may take seconds: for example a regular
//! expression over a batch of long texts, or an aggregate that is written as one value. With one
//! thread per processor, two such tasks would keep all others waiting. So there are more threads
//! than processors, and each poll needs a permit.
//!
//! There are two kinds of work, and each has its own permits, one per processor. Work is long once
//! it has computed for some time, and new before that. If a poll of new work takes longer than
//! that, its work becomes long during the poll, and another task gets its permit.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use volary_flight_proto::{Error, ErrorCode, Result};

use lent::{Lent, Permits};

/// Implements permits that are passed on to others when they are kept for too long.
mod lent;

/// Computing time after which work is long. Before that it is new.
const NEW_FOR: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this thread is in a poll that has a permit.
    static HAS_PERMIT: Cell<bool> = const { Cell::new(false) };
    /// The resources taken by the work that this thread currently works for.
    static CURRENT: RefCell<Option<Arc<Taken>>> = const { RefCell::new(None) };
}

/// Returns the resources taken by the work that this thread works for, or `None` if it works for
/// none.
pub(crate) fn current() -> Option<Arc<Taken>> {
    CURRENT.with_borrow(Option::clone)
}

/// The permits to compute on a node. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    new: Permits,
    long: Arc<Semaphore>,
    /// Number of tasks that wait for a permit.
    waiting: Arc<AtomicUsize>,
}

impl Turns {
    /// Creates `at_a_time` permits for new work, and as many for long work.
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self {
            new: Permits::new(at_a_time),
            long: Arc::new(Semaphore::new(at_a_time)),
            waiting: Arc::default(),
        }
    }

    /// Returns the number of threads for `at_a_time` polls of each kind. It includes threads for
    /// polls of new work that have turned out to be long. While all of those are busy, new work
    /// waits.
    pub(super) fn threads(at_a_time: usize) -> usize {
        2 * at_a_time + at_a_time.max(8)
    }

    /// Passes on the permits that new work has kept for too long. Never ends. It must not run on
    /// the same runtime as that work.
    pub(super) async fn pass_on(self) {
        self.new.pass_on(NEW_FOR).await;
    }

    /// Creates a work that has computed nothing yet.
    pub(crate) fn work(&self) -> Work {
        Work {
            turns: self.clone(),
            taken: Arc::default(),
        }
    }
}

/// A work that consists of one or more tasks, such as a query or the planning of a statement.
/// Clones are the same work.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    turns: Turns,
    taken: Arc<Taken>,
}

impl Work {
    /// Creates a task of this work.
    pub(crate) fn task(&self) -> Task {
        Task {
            permits: self.turns.new.clone(),
            taken: Arc::clone(&self.taken),
            new: PollSemaphore::new(self.turns.new.semaphore()),
            long: PollSemaphore::new(Arc::clone(&self.turns.long)),
            waits_as: None,
            waiting: Arc::clone(&self.turns.waiting),
            wait: None,
            gives_way: false,
        }
    }

    /// Returns a guard. Dropping the guard tells the work that nobody waits for its result any
    /// more.
    pub(super) fn awaited(&self) -> Awaited {
        Awaited(Arc::clone(&self.taken))
    }

    /// Runs `done` for this work, and not for the work of the task that calls it.
    pub(crate) fn within<T>(&self, done: impl FnOnce() -> T) -> T {
        let _outer = WorksFor::begin(&self.taken);
        done()
    }

    /// Returns the bytes that the operators of this work hold of the node's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.taken.bytes.load(Ordering::Relaxed)
    }
}

/// A guard that lives as long as somebody waits for the result of a work.
pub(super) struct Awaited(Arc<Taken>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::Relaxed);
    }
}

/// Fails if nobody waits any more for the result of what this thread computes.
///
/// # Errors
/// `CANCELLED` if nobody waits.
pub fn check_awaited() -> Result<()> {
    let is_abandoned = |taken: &Arc<Taken>| taken.is_abandoned.load(Ordering::Relaxed);
    if CURRENT.with_borrow(|current| current.as_ref().is_some_and(is_abandoned)) {
        return Err(Error::new(ErrorCode::Cancelled, "the statement has ended"));
    }
    Ok(())
}

/// Makes the thread work for the previous work again when it is dropped.
struct WorksFor(Option<Arc<Taken>>);

impl WorksFor {
    fn begin(taken: &Arc<Taken>) -> Self {
        Self(CURRENT.replace(Some(Arc::clone(taken))))
    }
}

impl Drop for WorksFor {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The resources that a work has taken from its node: processor time and memory.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    micros: AtomicU64,
    bytes: AtomicUsize,
    /// Whether nobody waits for the result of the work any more.
    is_abandoned: AtomicBool,
}

impl Taken {
    fn add_time(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Notes that the operators of the work hold this many more bytes.
    pub(crate) fn hold(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the operators of the work hold this many fewer bytes.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn kind(&self) -> Kind {
        if u128::from(self.micros.load(Ordering::Relaxed)) < NEW_FOR.as_micros() {
            Kind::New
        } else {
            Kind::Long
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    Long,
}

/// A task of a work, which is polled only while it has a permit.
///
/// A task that waits for its permit must be polled when it is woken. Otherwise it would keep the
/// permit from other tasks. So whoever polls it must wait for nothing else.
pub(crate) struct Task {
    permits: Permits,
    taken: Arc<Taken>,
    new: PollSemaphore,
    long: PollSemaphore,
    waits_as: Option<Kind>,
    /// Number of tasks that wait for a permit.
    waiting: Arc<AtomicUsize>,
    /// Counts this task among them.
    wait: Option<Wait>,
    /// Whether the thread must look at other tasks before this one takes a permit again.
    gives_way: bool,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("taken", &self.taken)
            .field("waits_as", &self.waits_as)
            .finish_non_exhaustive()
    }
}

impl Task {
    /// Calls `poll` once the task has a permit. Within a poll that already has a permit, it calls
    /// `poll` at once.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if HAS_PERMIT.get() {
            return poll(cx);
        }
        if std::mem::take(&mut self.gives_way) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let permit = match self.poll_permit(cx) {
            Poll::Ready(permit) => permit,
            Poll::Pending => {
                let waiting = &self.waiting;
                self.wait.get_or_insert_with(|| Wait::begin(waiting));
                return Poll::Pending;
            }
        };
        self.wait = None;
        let polling = Polling::begin(&self.taken);
        let polled = poll(cx);
        drop(polling);
        drop(permit);
        // The permit may have gone to a task that waited. The runtime wakes that task on this
        // thread, in a place from which no other thread takes it. If the caller went on at once, and
        // got another permit, then the woken task would keep its own permit unused for as long as
        // that poll takes. Two such tasks kept all short queries waiting for seconds.
        self.gives_way = polled.is_ready() && self.waiting.load(Ordering::Relaxed) > 0;
        polled
    }

    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Permit> {
        // Semaphores are never closed, so there is always a permit to wait for.
        if *self.waits_as.get_or_insert_with(|| self.taken.kind()) == Kind::New {
            let permit = ready!(self.new.poll_acquire(cx));
            if self.taken.kind() == Kind::New {
                self.waits_as = None;
                return Poll::Ready(Permit::New(self.permits.lend(permit, &self.taken)));
            }
            // Other tasks of this work have computed in the meantime and made it long.
            self.waits_as = Some(Kind::Long);
        }
        let permit = ready!(self.long.poll_acquire(cx));
        self.waits_as = None;
        Poll::Ready(Permit::Long(permit))
    }
}

/// Counts a task that waits for a permit, until this is dropped.
struct Wait(Arc<AtomicUsize>);

impl Wait {
    fn begin(waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(waiting))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permit that is held during a poll.
#[allow(dead_code)] // held, never read
enum Permit {
    New(Lent),
    Long(Option<OwnedSemaphorePermit>),
}

/// Counts the time of a poll, even if the poll panics.
struct Polling<'a> {
    taken: &'a Taken,
    since: Instant,
    _works_for: WorksFor,
}

impl<'a> Polling<'a> {
    fn begin(taken: &'a Arc<Taken>) -> Self {
        HAS_PERMIT.set(true);
        Self {
            taken,
            since: Instant::now(),
            _works_for: WorksFor::begin(taken),
        }
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        HAS_PERMIT.set(false);
        self.taken.add_time(self.since.elapsed());
    }
}

/// A future that is polled only while its task has a permit.
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
    use std::sync::mpsc;

    use futures::FutureExt;
    use futures::task::noop_waker_ref;

    use super::*;

    /// A task that does not run within this time never runs.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn context() -> Context<'static> {
        Context::from_waker(noop_waker_ref())
    }

    fn long_work(turns: &Turns) -> Work {
        let work = turns.work();
        work.taken.add_time(NEW_FOR);
        work
    }

    /// Polls the task `outer`, and calls `inner` during this poll, as if on another thread.
    fn poll_meanwhile<T>(outer: &mut Task, inner: impl FnOnce() -> T) -> Poll<T> {
        outer.poll(&mut context(), |_| {
            HAS_PERMIT.set(false);
            let done = inner();
            HAS_PERMIT.set(true);
            Poll::Ready(done)
        })
    }

    fn poll_of(task: &mut Task) -> Poll<()> {
        task.poll(&mut context(), |_| Poll::Ready(()))
    }

    #[test]
    fn long_work_waits_for_its_like_and_keeps_new_work_waiting_for_nothing() {
        let turns = Turns::new(1);
        let [mut running, mut waiting] = [long_work(&turns).task(), long_work(&turns).task()];
        let meanwhile = poll_meanwhile(&mut running, || poll_of(&mut waiting));
        assert_eq!(meanwhile, Poll::Ready(Poll::Pending));
        // The task that has made another one wait lets the runtime look at others first.
        assert_eq!(poll_of(&mut running), Poll::Pending);
        assert_eq!(poll_of(&mut waiting), Poll::Ready(()));
        let mut new = turns.work().task();
        let meanwhile = poll_meanwhile(&mut running, || poll_of(&mut new));
        assert_eq!(meanwhile, Poll::Ready(Poll::Ready(())));
    }

    #[test]
    fn new_work_waits_for_its_like_until_that_has_computed_for_long() {
        let turns = Turns::new(1);
        let (work, other) = (turns.work(), turns.work());
        let mut running = work.task();
        let mut waiting = [work.task(), other.task(), other.task()];
        let done = poll_meanwhile(&mut running, || {
            for task in &mut waiting {
                assert_eq!(poll_of(task), Poll::Pending);
            }
            turns.new.pass_on_once(Duration::ZERO);
            // The other task of the same work counts as long work now.
            waiting.each_mut().map(poll_of)
        });
        assert_eq!(done, Poll::Ready([Poll::Ready(()); 3]));
        assert_eq!(work.taken.kind(), Kind::Long);
        assert_eq!(other.taken.kind(), Kind::New);
        // Passing the permit on has not duplicated it.
        let (mut first, mut second) = (turns.work().task(), turns.work().task());
        let meanwhile = poll_meanwhile(&mut first, || poll_of(&mut second));
        assert_eq!(meanwhile, Poll::Ready(Poll::Pending));
    }

    #[test]
    fn within_a_poll_that_has_a_permit_nobody_waits_for_another_one() {
        let turns = Turns::new(1);
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
        let turns = Turns::new(2);
        let other_permit = turns.new.semaphore().try_acquire_owned().unwrap();
        let (runs, has_run) = mpsc::channel();
        let (mut going_on, mut waiting) = (turns.work().task(), turns.work().task());
        let is_waiting = Arc::clone(&turns.waiting);
        let going_on = runtime.spawn(async move {
            let waits_for_permit = async move {
                poll_fn(|cx| waiting.poll(cx, |_| Poll::Ready(()))).await;
                runs.send(()).unwrap();
            };
            let first = |_: &mut Context<'_>| {
                tokio::spawn(waits_for_permit);
                while is_waiting.load(Ordering::Relaxed) == 0 {
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
        let waited = runtime.block_on(going_on).unwrap();
        waited.expect("the task that has got the permit did not run");
    }

    #[tokio::test]
    async fn all_get_their_turn_in_the_end() {
        let turns = Turns::new(2);
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
            tokio::spawn(InTurns::new(work.task(), steps))
        });
        for ended in futures::future::join_all(tasks).await {
            ended.unwrap();
        }
        assert_eq!(turns.long.available_permits(), 2);
        assert_eq!(turns.new.semaphore().available_permits(), 2);
        passes_on.abort();
    }

    #[test]
    fn a_poll_that_panics_gives_its_permit_back() {
        let turns = Turns::new(1);
        for work in [turns.work(), long_work(&turns)] {
            let panics = InTurns::new(work.task(), async { panic!("of the test") });
            let caught = std::panic::AssertUnwindSafe(panics).catch_unwind();
            assert!(futures::executor::block_on(caught).is_err());
            assert_eq!(poll_of(&mut work.task()), Poll::Ready(()));
            assert!(!HAS_PERMIT.get());
        }
    }
}
