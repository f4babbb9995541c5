//! A timer is a task of its own, and most results have ended before such a task has even begun.
//! Starting it takes a sixth of the processor time of a small statement. So a timer is started only
//! if it is still needed after some time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Time after which the timers are started that are still needed.
pub(super) const DELAY: Duration = Duration::from_millis(20);

/// Starts timers that are still needed after [`DELAY`].
#[derive(Debug)]
pub(super) struct LateTimers {
    new: Arc<NewTimers>,
    _starting: AbortOnDropHandle<()>,
}

/// A timer that is started [`DELAY`] after its creation. Dropping this ends it.
#[derive(Debug)]
pub(super) struct LateTimer(Arc<Mutex<TimerState>>);

#[derive(Debug, Default)]
struct NewTimers {
    timers: Mutex<Vec<Weak<Mutex<TimerState>>>>,
    /// Notified when the first one is added.
    added: Notify,
}

#[derive(Default)]
struct TimerState {
    /// The timer, until it is started.
    waiting: Option<BoxFuture<'static, ()>>,
    _started: Option<AbortOnDropHandle<()>>,
}

impl LateTimers {
    /// Creates the timers, which run on `runtime`.
    pub(super) fn new(runtime: &Handle) -> Self {
        let new = Arc::<NewTimers>::default();
        let starting = runtime.spawn(start_needed(Arc::clone(&new)));
        Self {
            new,
            _starting: AbortOnDropHandle::new(starting),
        }
    }

    /// Adds a timer.
    pub(super) fn add(&self, timer: impl Future<Output = ()> + Send + 'static) -> LateTimer {
        let late = LateTimer(Arc::new(Mutex::new(TimerState {
            waiting: Some(timer.boxed()),
            _started: None,
        })));
        let mut timers = self.new.timers.lock();
        timers.push(Arc::downgrade(&late.0));
        if timers.len() == 1 {
            self.new.added.notify_one();
        }
        late
    }
}

impl LateTimer {
    /// Starts the timer at once. Must be called within a runtime.
    pub(super) fn start(&self) {
        self.0.lock().start();
    }
}

impl TimerState {
    fn start(&mut self) {
        if let Some(timer) = self.waiting.take() {
            self._started = Some(AbortOnDropHandle::new(tokio::spawn(timer)));
        }
    }
}

impl std::fmt::Debug for TimerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerState").finish_non_exhaustive()
    }
}

async fn start_needed(new: Arc<NewTimers>) {
    loop {
        new.added.notified().await;
        tokio::time::sleep(DELAY).await;
        let timers = std::mem::take(&mut *new.timers.lock());
        for timer in timers.iter().filter_map(Weak::upgrade) {
            timer.lock().start();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_timer_runs_if_it_is_still_needed() {
        let timers = LateTimers::new(&Handle::current());
        for _ in 0..2 {
            let (ran, has_run) = oneshot::channel();
            let timer = timers.add(async { ran.send(()).unwrap() });
            has_run.await.unwrap();
            drop(timer);
        }
    }

    #[tokio::test]
    async fn dropping_a_timer_drops_what_it_waits_for_before_and_after_its_start() {
        let timers = LateTimers::new(&Handle::current());
        for is_started in [false, true] {
            let (held, dropped) = oneshot::channel::<()>();
            let timer = timers.add(async {
                let _held = held;
                std::future::pending::<()>().await;
            });
            if is_started {
                timer.start();
            }
            drop(timer);
            assert!(dropped.await.is_err());
        }
    }

    #[tokio::test]
    async fn timers_are_forgotten_once_those_that_are_needed_are_started() {
        let timers = LateTimers::new(&Handle::current());
        for _ in 0..100 {
            drop(timers.add(std::future::pending()));
        }
        let (ran, has_run) = oneshot::channel();
        let _last = timers.add(async { ran.send(()).unwrap() });
        has_run.await.unwrap();
        assert!(timers.new.timers.lock().is_empty());
    }
}
