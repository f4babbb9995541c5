use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::RecordBatchStream;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio_util::task::AbortOnDropHandle;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::plan::{PlanOwner, RunningPlan};
use super::turns::Task;

/// Number of items that may wait between the runtime that computes them and the one that sends
/// them.
const ITEMS_AHEAD: usize = 2;

/// The items of a stream that is computed on the CPU runtime. Dropping this value drops that stream
/// at once.
#[derive(Debug)]
pub struct CpuItems<T, E> {
    receiver: mpsc::Receiver<Result<T, E>>,
    task: Option<AbortOnDropHandle<Result<()>>>,
}

impl<T, E> CpuItems<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    pub(super) fn start(
        cpu: &Handle,
        mut stream: impl Stream<Item = Result<T, E>> + Send + Unpin + 'static,
        reader_timeout: Duration,
        mut turn_task: Task,
        plan: Option<RunningPlan>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(ITEMS_AHEAD);
        let ended = plan.clone();
        let handing_over = async move {
            while let Some(item) =
                poll_fn(|cx| turn_task.poll(cx, |cx| stream.poll_next_unpin(cx))).await
            {
                let last = item.is_err();
                // After a plan was ended, its expressions only report that the query has ended. The
                // plan knows why.
                let plan_error = ended.as_ref().filter(|_| last).and_then(RunningPlan::error);
                let item = plan_error.map_or(item, |error| Err(error.into()));
                match sender.send_timeout(item, reader_timeout).await {
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
        };
        let task = cpu.spawn(async move {
            let Some(plan) = plan else {
                return handing_over.await;
            };
            tokio::select! {
                biased;
                error = plan.wait_ended() => Err(error),
                handed_over = handing_over => handed_over,
            }
        });
        Self {
            receiver,
            task: Some(AbortOnDropHandle::new(task)),
        }
    }
}

impl<T, E: From<Error>> Stream for CpuItems<T, E> {
    type Item = Result<T, E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.receiver.poll_recv(cx) {
            Poll::Ready(None) => {}
            other => return other,
        }
        // The sender is gone. The result of the task says whether these were all items.
        let Some(task) = &mut self.task else {
            return Poll::Ready(None);
        };
        let ended = ready!(Pin::new(task).poll(cx));
        self.task = None;
        let error = match ended {
            Ok(Ok(())) => return Poll::Ready(None),
            Ok(Err(error)) => error,
            Err(source) if source.is_cancelled() => {
                Error::new(ErrorCode::Cancelled, "the node is shutting down")
                    .with_sqlstate(SqlState::AdminShutdown)
            }
            Err(source) => Error::with_source(ErrorCode::Internal, "a task panicked", source),
        };
        Poll::Ready(Some(Err(error.into())))
    }
}

/// The rows of a plan that is computed on the CPU runtime.
#[derive(Debug)]
pub struct CpuStream {
    schema: SchemaRef,
    rows: CpuItems<RecordBatch, DataFusionError>,
    /// Ends the plan when it is dropped: the aborted task may be in the middle of a long poll.
    _plan: PlanOwner,
}

impl CpuStream {
    pub(super) fn new(
        schema: SchemaRef,
        rows: CpuItems<RecordBatch, DataFusionError>,
        plan: PlanOwner,
    ) -> Self {
        Self {
            schema,
            rows,
            _plan: plan,
        }
    }
}

impl Stream for CpuStream {
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.poll_next_unpin(cx)
    }
}

impl RecordBatchStream for CpuStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
