use std::future::Future;
use std::time::Duration;

use datafusion::physical_plan::SendableRecordBatchStream;
use futures::Stream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

pub use cpu_stream::{CpuItems, CpuStream};
pub use plan::{PlanOwner, RunningPlan};
pub(crate) use start_here::panic_error;
pub use start_here::{SHORT_WORK_BYTES, continue_on_cpu};
pub use turns::check_awaited;
use turns::{PermittedFuture, UserPermits, Work};

/// Computes streams on the CPU runtime whose items are read elsewhere.
mod cpu_stream;
/// Computes a short stream on the thread that reads it.
mod here_stream;
/// Represents a plan that runs: its owner, and the handle with which others end it.
mod plan;
/// Runs short work on the thread that has received it.
mod start_here;
/// Decides which tasks compute if there is more to compute than there are processors.
pub mod turns;

/// Virtual memory of a thread's stack, in bytes. Planning walks expressions recursively, and the
/// stack frames of a debug build are large. Only the used part becomes real memory.
const STACK_BYTES: usize = 16 << 20;

/// Nice value of the threads that compute, on Linux. With it, a thread that computes gets half as
/// much time as a network thread if both want the same processor. Short queries need mostly the
/// network threads. The value of a thread never changes, because only privileged processes may
/// lower it again.
#[cfg(target_os = "linux")]
const COMPUTE_NICE: i32 = 3;
/// Value for [`COMPUTE_NICE`] on the scale of the crate `thread-priority`, from 0 to 100.
#[cfg(target_os = "linux")]
const COMPUTE_PRIORITY: u8 = 40;

/// Handles of the runtimes. Planning and execution run on the CPU runtime and the network on the
/// I/O runtime. Membership and liveness checks run on a third one, so that a busy node is not
/// declared dead.
#[derive(Debug, Clone)]
pub struct Runtimes {
    cpu: Handle,
    io: Handle,
    health: Handle,
    permits: UserPermits,
}

/// Owns the runtimes. Dropping it ends them without waiting for running tasks.
#[derive(Debug)]
pub struct OwnedRuntimes {
    handles: Runtimes,
    // This is an `Option` only because a runtime is shut down by value.
    runtimes: Option<[Runtime; 3]>,
}

impl OwnedRuntimes {
    /// Starts the runtimes. There are `cpu_threads` permits for polls of new work, and as many for
    /// polls of long work. `None` means one of each per core.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the system gives no threads.
    pub fn start(cpu_threads: Option<usize>) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let computing = cpu_threads.unwrap_or(cores).max(1);
        let cpu = build(
            "volary-cpu",
            UserPermits::threads(computing),
            lower_priority,
        )?;
        let io = build("volary-io", cores.clamp(1, 4), || {})?;
        let health = build("volary-health", 1, || {})?;
        let permits = UserPermits::new(computing);
        health.spawn(permits.clone().pass_on());
        Ok(Self {
            handles: Runtimes {
                cpu: cpu.handle().clone(),
                io: io.handle().clone(),
                health: health.handle().clone(),
                permits,
            },
            runtimes: Some([cpu, io, health]),
        })
    }

    /// Returns the handles of the runtimes.
    pub fn handles(&self) -> &Runtimes {
        &self.handles
    }
}

impl Drop for OwnedRuntimes {
    fn drop(&mut self) {
        for runtime in self.runtimes.take().into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

/// Gives the calling thread the priority of threads that compute, unless its priority is lower.
fn lower_priority() {
    // Elsewhere than on Linux, the priority is that of the whole process.
    #[cfg(target_os = "linux")]
    if nice_value().is_some_and(|nice| nice < COMPUTE_NICE) {
        use thread_priority::{ThreadPriority, set_current_thread_priority};
        let lowered = ThreadPriority::try_from(COMPUTE_PRIORITY).map(set_current_thread_priority);
        if !matches!(lowered, Ok(Ok(()))) {
            tracing::debug!(?lowered, "the priority of a CPU thread cannot be lowered");
        }
    }
}

/// Returns the nice value of the calling thread.
#[cfg(target_os = "linux")]
fn nice_value() -> Option<i32> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    // The nice value is the 19th field, and the name in parentheses is the second one.
    let after_name = stat.rsplit(')').next()?;
    after_name.split_whitespace().nth(16)?.parse().ok()
}

fn build(name: &str, threads: usize, begin: fn()) -> Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name(name)
        .on_thread_start(begin)
        .worker_threads(threads)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|source| {
            Error::with_source(
                ErrorCode::ResourceExhausted,
                format!("cannot start the {threads} threads of {name}"),
                source,
            )
        })
}

impl Runtimes {
    /// Returns the runtime for planning and execution.
    pub fn cpu(&self) -> &Handle {
        &self.cpu
    }

    /// Returns the runtime for the network.
    pub fn io(&self) -> &Handle {
        &self.io
    }

    /// Returns the runtime for joining a cluster and for liveness checks.
    pub fn health(&self) -> &Handle {
        &self.health
    }

    /// Returns the same runtimes for the work of a user. Users get permits to compute in turn. The
    /// number of a user is the one in [tickets](volary_flight_proto::ticket).
    #[must_use]
    pub fn of_user(&self, user: u32) -> Self {
        Self {
            permits: self.permits.of_user(user),
            ..self.clone()
        }
    }

    /// Runs `work` on the CPU runtime. Dropping the returned future cancels the work. It then ends
    /// between two of its polls, or where it [checks](check_awaited) whether its result is still
    /// awaited.
    ///
    /// # Errors
    /// The errors of the work, and `INTERNAL` if it panics.
    pub async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let turn = self.permits.work();
        let _awaited = turn.awaited_guard();
        run_on(&self.cpu, PermittedFuture::new(turn.task(), work)).await
    }

    /// Runs `work` on the I/O runtime. Dropping the returned future cancels the work between two of
    /// its polls.
    ///
    /// # Errors
    /// The errors of the work, and `INTERNAL` if it panics.
    pub async fn on_io<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        run_on(&self.io, work).await
    }

    /// Polls the stream of a plan on the CPU runtime and hands its batches over. Dropping the
    /// returned stream drops the plan's stream at once and ends the plan. If the reader takes no
    /// batch for `reader_timeout`, the plan's stream is dropped too, and the reader gets
    /// `DEADLINE_EXCEEDED`. With `Duration::MAX` the reader may take as long as it likes.
    pub fn stream_on_cpu(
        &self,
        stream: SendableRecordBatchStream,
        reader_timeout: Duration,
        plan: PlanOwner,
    ) -> CpuStream {
        let schema = stream.schema();
        let task = plan.work().task();
        let rows = CpuItems::start(
            &self.cpu,
            stream,
            reader_timeout,
            task,
            Some(plan.running_plan()),
        );
        CpuStream::new(schema, rows, plan)
    }

    /// Creates a work that has computed nothing yet.
    pub fn work(&self) -> Work {
        self.permits.work()
    }

    /// Polls a stream of any items on the CPU runtime and hands the items over. The first error is
    /// the last item. If the reader takes no item for `reader_timeout`, the stream ends with
    /// `DEADLINE_EXCEEDED`.
    pub fn read_on_cpu<T, E>(
        &self,
        stream: impl Stream<Item = Result<T, E>> + Send + Unpin + 'static,
        reader_timeout: Duration,
    ) -> CpuItems<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        CpuItems::start(&self.cpu, stream, reader_timeout, self.work().task(), None)
    }
}

async fn run_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let task = AbortOnDropHandle::new(runtime.spawn(work));
    task.await.unwrap_or_else(|source| {
        Err(if source.is_cancelled() {
            Error::new(ErrorCode::Cancelled, "the node is shutting down")
                .with_sqlstate(SqlState::AdminShutdown)
        } else {
            Error::with_source(ErrorCode::Internal, "a task panicked", source)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn work_that_is_not_waited_for_any_more_can_know_it_within_a_poll() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        let mut work = Box::pin(runtimes.handles().on_cpu(async move {
            begun.send(()).unwrap();
            while check_awaited().is_ok() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
            Ok(())
        }));
        assert!((&mut work).now_or_never().is_none());
        has_begun.recv().unwrap();
        assert!(has_ended.try_recv().is_err());
        drop(work);
        has_ended.recv().unwrap();
        check_awaited().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn threads_that_compute_have_a_lower_priority_than_network_threads() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let network = runtimes
            .handles()
            .on_io(async { Ok(nice_value().unwrap()) })
            .await
            .unwrap();
        let computing = runtimes
            .handles()
            .on_cpu(async { Ok(nice_value().unwrap()) })
            .await
            .unwrap();
        assert_eq!(computing, network.max(COMPUTE_NICE));
    }
}
