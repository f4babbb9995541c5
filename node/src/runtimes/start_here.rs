//! Most statements and writes are short. Handing one over to the CPU runtime and back takes longer
//! than the work itself, so such work begins on the thread that has received it. It continues on
//! the CPU runtime as soon as it turns out to be long.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::{Duration, Instant};

use volary_flight_proto::{Error, Result};

use super::turns::PermittedFuture;
use super::{Runtimes, run_on};

/// Computing time after which work continues on the CPU runtime. It is spread over several polls,
/// and other calls wait for no more than one of them.
pub(super) const SHORT_WORK_TIME: Duration = Duration::from_millis(2);

/// Size of rows, in bytes, above which sorting, converting or encoding them takes long. Work with
/// more rows should [continue on the CPU runtime](continue_on_cpu).
pub const SHORT_WORK_BYTES: usize = 32 << 10;

thread_local! {
    /// What is known of the work that this thread polls, if the thread is not one of the CPU
    /// runtime.
    static PLACE: Cell<Place> = const { Cell::new(Place::Cpu) };
}

/// The place where the work that a thread polls computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the CPU runtime, or on a thread of somebody who has not called [`Runtimes::start_here`].
    Cpu,
    /// On the thread that has received it.
    Here,
    /// On the thread that has received it, but not after this poll.
    HereUntilPollEnds,
}

/// Restores what was known before, when it is dropped.
struct PlaceGuard(Place);

impl PlaceGuard {
    fn begin() -> Self {
        Self(PLACE.replace(Place::Here))
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        PLACE.set(self.0);
    }
}

/// Waits until this work is on the CPU runtime. Call it before something that computes for long
/// without a pause. Work that is there already continues at once.
pub async fn continue_on_cpu() {
    let mut has_asked = false;
    poll_fn(|context| {
        if has_asked || PLACE.get() == Place::Cpu {
            return Poll::Ready(());
        }
        has_asked = true;
        PLACE.set(Place::HereUntilPollEnds);
        // The work may poll this future only when it is woken.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Runtimes {
    /// Runs `work` on the thread that polls the returned future, and on the CPU runtime once it has
    /// computed for long or [asks](continue_on_cpu) for it. Tasks that the work spawns are on the
    /// CPU runtime. Dropping the returned future cancels the work as with [`Self::on_cpu`].
    ///
    /// # Errors
    /// The errors of the work, and `INTERNAL` if it panics.
    pub async fn start_here<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let turn = self.permits.work();
        let _awaited = turn.awaited_guard();
        let mut work = Box::pin(work);
        let done = poll_fn(|context| {
            let (polled, place) = {
                let _cpu = self.cpu.enter();
                let _place = PlaceGuard::begin();
                let poll = || work.as_mut().poll(context);
                let polled = turn.poll_without_permit(|| catch_unwind(AssertUnwindSafe(poll)));
                (polled, PLACE.get())
            };
            match polled {
                Ok(Poll::Ready(result)) => Poll::Ready(Some(result)),
                Err(panic) => Poll::Ready(Some(Err(panic_error(panic.as_ref())))),
                Ok(Poll::Pending)
                    if place == Place::HereUntilPollEnds || turn.computed() >= SHORT_WORK_TIME =>
                {
                    Poll::Ready(None)
                }
                Ok(Poll::Pending) => Poll::Pending,
            }
        })
        .await;
        match done {
            Some(result) => result,
            None => run_on(&self.cpu, PermittedFuture::of_boxed(turn.task(), work)).await,
        }
    }
}

impl Runtimes {
    /// Starts work that mostly waits, for as long as it likes, on the I/O runtime. It continues on
    /// the CPU runtime, for good, once one of its polls computes for long, or when it
    /// [asks](continue_on_cpu) for it. Tasks that the work spawns are on the CPU runtime.
    pub fn spawn_here(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cpu = self.cpu.clone();
        self.io.spawn(async move {
            let mut work = Box::pin(work);
            let is_done = poll_fn(|context| {
                let began = Instant::now();
                let (polled, place) = {
                    let _cpu = cpu.enter();
                    let _place = PlaceGuard::begin();
                    (work.as_mut().poll(context), PLACE.get())
                };
                if polled.is_ready() {
                    return Poll::Ready(true);
                }
                if place == Place::HereUntilPollEnds || began.elapsed() >= SHORT_WORK_TIME {
                    return Poll::Ready(false);
                }
                Poll::Pending
            });
            if !is_done.await {
                cpu.spawn(work);
            }
        });
    }
}

/// Returns the error of a task or a call that has panicked.
pub(crate) fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("a task panicked: {}", text.unwrap_or("no text")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread::{self, ThreadId};

    use futures::FutureExt;
    use futures::stream::{FuturesUnordered, StreamExt};
    use tokio::sync::oneshot;
    use volary_flight_proto::ErrorCode;

    use super::*;
    use crate::runtimes::OwnedRuntimes;

    fn this_thread() -> ThreadId {
        thread::current().id()
    }

    fn name_of_this_thread() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn short_work_stays_even_if_it_waits_and_what_it_spawns_does_not() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let (sender, receiver) = oneshot::channel();
        let work = runtimes.handles().start_here(async {
            let before = this_thread();
            receiver.await.unwrap();
            let spawned = tokio::spawn(async { name_of_this_thread() });
            Ok((before, this_thread(), spawned.await.unwrap()))
        });
        let (threads, ()) = tokio::join!(work, async { sender.send(()).unwrap() });
        let here = this_thread();
        assert_eq!(threads.unwrap(), (here, here, "volary-cpu".to_owned()));
    }

    #[tokio::test]
    async fn long_work_goes_to_the_cpu_runtime_when_a_poll_has_ended() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let work = runtimes.handles().start_here(async {
            let began = Instant::now();
            while began.elapsed() < SHORT_WORK_TIME {
                thread::yield_now();
            }
            let before = this_thread();
            tokio::task::yield_now().await;
            Ok((before, name_of_this_thread()))
        });
        let threads = work.await.unwrap();
        assert_eq!(threads, (this_thread(), "volary-cpu".to_owned()));
    }

    #[tokio::test]
    async fn work_that_waits_stays_however_often_it_computes_and_goes_when_it_asks() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let (sender, receiver) = oneshot::channel();
        runtimes.handles().spawn_here(async {
            let mut names = BTreeSet::new();
            let began = Instant::now();
            while began.elapsed() < 2 * SHORT_WORK_TIME {
                names.insert(name_of_this_thread());
                tokio::task::yield_now().await;
            }
            continue_on_cpu().await;
            sender.send((names, name_of_this_thread())).unwrap();
        });
        let (before, after) = receiver.await.unwrap();
        assert_eq!(after, "volary-cpu");
        assert!(before.contains("volary-io"), "{before:?}");
    }

    #[tokio::test]
    async fn work_that_asks_for_it_goes_to_the_cpu_runtime_once() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let work = runtimes.handles().start_here(async {
            let asking = || async {
                continue_on_cpu().await;
                name_of_this_thread()
            };
            // Each of these is polled only when it is woken.
            let several: FuturesUnordered<_> = [asking(), asking()].into_iter().collect();
            let mut names: Vec<_> = several.collect().await;
            names.push(asking().now_or_never().unwrap());
            Ok(names)
        });
        assert_eq!(work.await.unwrap(), ["volary-cpu"; 3]);
        // Whoever has not begun here goes on where it is.
        assert!(continue_on_cpu().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_thread_is_as_before() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let work = runtimes
            .handles()
            .start_here(async { panic!("no {}", "kea") as Result<()> });
        let error = work.await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Internal);
        assert!(error.message().contains("no kea"), "{error}");
        assert_eq!(PLACE.get(), Place::Cpu);
    }

    #[tokio::test]
    async fn work_that_is_dropped_ends_here_and_on_the_cpu_runtime() {
        struct Ends(Option<oneshot::Sender<()>>);
        impl Drop for Ends {
            fn drop(&mut self) {
                let _ = self.0.take().map(|sender| sender.send(()));
            }
        }
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        for goes in [false, true] {
            let (sender, ended) = oneshot::channel();
            let (begun, has_begun) = oneshot::channel();
            let mut work = Box::pin(runtimes.handles().start_here(async move {
                let _ends = Ends(Some(sender));
                if goes {
                    continue_on_cpu().await;
                }
                begun.send(()).unwrap();
                std::future::pending::<Result<()>>().await
            }));
            assert!((&mut work).now_or_never().is_none());
            has_begun.await.unwrap();
            drop(work);
            ended.await.unwrap();
        }
    }
}
