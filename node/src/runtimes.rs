//! The CPU, I/O and health runtimes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt, ready};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::task::JoinHandle;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::run::StopsWhenDropped;

/// Virtual memory of a thread's stack: planning walks expressions recursively, and a debug build's frames are large. Only what is
/// used becomes real memory.
const STACK_BYTES: usize = 16 << 20;

/// Batches between the runtime that computes them and the one that sends them.
const BATCHES_AHEAD: usize = 2;

/// Where work runs: planning and execution on the CPU runtime, the network on the I/O runtime, who lives on a third, so that
/// a busy node is not declared dead.
#[derive(Debug, Clone)]
pub struct Runtimes {
    cpu: Handle,
    io: Handle,
    health: Handle,
}

/// Owns the runtimes; they end when it is dropped, without waiting for what still runs.
#[derive(Debug)]
pub struct OwnedRuntimes {
    handles: Runtimes,
    // An Option only because a runtime is shut down by value.
    runtimes: Option<[Runtime; 3]>,
}

impl OwnedRuntimes {
    /// Starts them with so many threads for computing; `None` for one per core.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the system gives no threads.
    pub fn start(cpu_threads: Option<usize>) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = build("volary-cpu", cpu_threads.unwrap_or(cores).max(1))?;
        let io = build("volary-io", cores.clamp(1, 4))?;
        let health = build("volary-health", 1)?;
        Ok(Self {
            handles: Runtimes {
                cpu: cpu.handle().clone(),
                io: io.handle().clone(),
                health: health.handle().clone(),
            },
            runtimes: Some([cpu, io, health]),
        })
    }

    /// Their handles.
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

fn build(name: &str, threads: usize) -> Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name(name)
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
    /// For planning and execution.
    pub fn cpu(&self) -> &Handle {
        &self.cpu
    }

    /// For the network.
    pub fn io(&self) -> &Handle {
        &self.io
    }

    /// For joining, and for asking who lives.
    pub fn health(&self) -> &Handle {
        &self.health
    }

    /// Runs `work` on the CPU runtime. Dropping the returned future cancels it.
    ///
    /// # Errors
    /// Those of the work; `INTERNAL` if it panics.
    pub async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        run_on(&self.cpu, work).await
    }

    /// The same on the I/O runtime.
    ///
    /// # Errors
    /// As [`Self::on_cpu`].
    pub async fn on_io<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        run_on(&self.io, work).await
    }

    /// Polls `stream` on the CPU runtime and hands its batches over. Dropping the returned stream drops the other at once;
    /// so does a reader that takes no batch for `reader_timeout`; with `Duration::MAX` it may take as long as it likes.
    pub fn stream_on_cpu(
        &self,
        mut stream: SendableRecordBatchStream,
        reader_timeout: Duration,
    ) -> CpuStream {
        let schema = stream.schema();
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let task = self.cpu.spawn(async move {
            while let Some(batch) = stream.next().await {
                let last = batch.is_err();
                match sender.send_timeout(batch, reader_timeout).await {
                    Ok(()) if !last => {}
                    Err(SendTimeoutError::Timeout(_)) => {
                        return Err(Error::new(
                            ErrorCode::DeadlineExceeded,
                            format!("the reader took no rows for {reader_timeout:?}"),
                        ));
                    }
                    Ok(()) | Err(SendTimeoutError::Closed(_)) => break,
                }
            }
            Ok(())
        });
        CpuStream {
            schema,
            receiver,
            task: Some(AbortOnDrop(task)),
            stops: None,
        }
    }
}

async fn run_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let mut task = AbortOnDrop(runtime.spawn(work));
    (&mut task.0).await.unwrap_or_else(|source| {
        Err(if source.is_cancelled() {
            Error::new(ErrorCode::Cancelled, "the node is shutting down")
        } else {
            Error::with_source(ErrorCode::Internal, "a task panicked", source)
        })
    })
}

/// A stream that is computed on the CPU runtime.
#[derive(Debug)]
pub struct CpuStream {
    schema: SchemaRef,
    receiver: mpsc::Receiver<Result<RecordBatch, DataFusionError>>,
    task: Option<AbortOnDrop<Result<()>>>,
    stops: Option<StopsWhenDropped>,
}

impl CpuStream {
    /// The same, which ends its plan when it is dropped: the task that is aborted then may be in the middle of a long poll.
    #[must_use]
    pub fn stopping(mut self, plan: StopsWhenDropped) -> Self {
        self.stops = Some(plan);
        self
    }
}

impl Stream for CpuStream {
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.receiver.poll_recv(cx) {
            Poll::Ready(None) => {}
            other => return other,
        }
        // The sender is gone: how the task ended says whether these were all rows.
        let Some(task) = &mut self.task else {
            return Poll::Ready(None);
        };
        let ended = ready!(Pin::new(&mut task.0).poll(cx));
        self.task = None;
        let error = match ended {
            Ok(Ok(())) => return Poll::Ready(None),
            Ok(Err(error)) => error,
            Err(source) if source.is_cancelled() => {
                Error::new(ErrorCode::Cancelled, "the node is shutting down")
            }
            Err(source) => Error::with_source(ErrorCode::Internal, "a task panicked", source),
        };
        Poll::Ready(Some(Err(error.into())))
    }
}

impl RecordBatchStream for CpuStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Ends a task when it is dropped.
#[derive(Debug)]
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
