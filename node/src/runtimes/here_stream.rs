use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;

use super::Runtimes;
use super::cpu_stream::CpuItems;
use super::plan::PlanOwner;
use super::start_here::{SHORT_WORK_TIME, panic_error};

/// The rows of a short plan. They are computed on the thread that reads them, as long as they are
/// there at once. Dropping this value ends the plan.
struct HereStream {
    rows: Rows,
    cpu: Handle,
    reader_timeout: Duration,
    computed: Duration,
    plan: PlanOwner,
}

enum Rows {
    /// The plan is polled by whoever reads its rows.
    Here(SendableRecordBatchStream),
    /// The plan is polled on the CPU runtime.
    OnCpu(CpuItems<RecordBatch, DataFusionError>),
    Ended,
}

impl Runtimes {
    /// Polls the stream of a plan that is expected to be short, on the thread that polls the
    /// returned stream. Once the plan waits for something or has computed for long, the rest of it
    /// is polled on the CPU runtime, as by [`Self::stream_on_cpu`]. `reader_timeout` is the one of
    /// that function.
    pub fn stream_here(
        &self,
        stream: SendableRecordBatchStream,
        reader_timeout: Duration,
        plan: PlanOwner,
    ) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + Unpin + use<> {
        HereStream::new(self, stream, reader_timeout, plan)
    }
}

impl HereStream {
    fn new(
        runtimes: &Runtimes,
        stream: SendableRecordBatchStream,
        reader_timeout: Duration,
        plan: PlanOwner,
    ) -> Self {
        Self {
            rows: Rows::Here(stream),
            cpu: runtimes.cpu.clone(),
            reader_timeout,
            computed: Duration::ZERO,
            plan,
        }
    }

    /// Polls the plan as a part of its work, without a permit. A panic becomes an error.
    fn poll_here(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch, DataFusionError>>> {
        let Rows::Here(stream) = &mut self.rows else {
            return Poll::Ready(None);
        };
        if let Some(error) = self.plan.error() {
            return Poll::Ready(Some(Err(error.into())));
        }
        let began = Instant::now();
        // Operators spawn their tasks in the runtime in which they are polled.
        let _cpu = self.cpu.enter();
        let poll = || catch_unwind(AssertUnwindSafe(|| stream.poll_next_unpin(cx)));
        let polled = self.plan.work().poll_without_permit(poll);
        self.computed += began.elapsed();
        match polled {
            Ok(polled) => polled,
            Err(panic) => Poll::Ready(Some(Err(panic_error(panic.as_ref()).into()))),
        }
    }

    fn continue_on_cpu(&mut self) {
        let rows = std::mem::replace(&mut self.rows, Rows::Ended);
        self.rows = match rows {
            Rows::Here(stream) => Rows::OnCpu(CpuItems::start(
                &self.cpu,
                stream,
                self.reader_timeout,
                self.plan.work().task(),
                Some(self.plan.running_plan()),
            )),
            other => other,
        };
    }
}

impl Stream for HereStream {
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.rows {
            Rows::OnCpu(rows) => return rows.poll_next_unpin(cx),
            Rows::Ended => return Poll::Ready(None),
            Rows::Here(_) => {}
        }
        match self.poll_here(cx) {
            Poll::Pending => {
                self.continue_on_cpu();
                self.poll_next(cx)
            }
            Poll::Ready(Some(Ok(batch))) => {
                if self.computed >= SHORT_WORK_TIME {
                    self.continue_on_cpu();
                }
                Poll::Ready(Some(Ok(batch)))
            }
            Poll::Ready(last) => {
                self.rows = Rows::Ended;
                // After a plan was ended, its expressions only report that the query has ended. The
                // plan knows why.
                let reason = self.plan.error();
                Poll::Ready(last.map(|last| match reason {
                    Some(reason) => Err(reason.into()),
                    None => last,
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use datafusion::arrow::datatypes::{Schema, SchemaRef};
    use datafusion::arrow::record_batch::RecordBatchOptions;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::{FutureExt, stream};
    use parking_lot::Mutex;
    use tokio_util::sync::CancellationToken;
    use volary_flight_proto::{Error, ErrorCode};

    use super::*;
    use crate::runtimes::OwnedRuntimes;

    /// Names of the threads that have computed batches.
    type Threads = Arc<Mutex<Vec<String>>>;

    fn schema() -> SchemaRef {
        Arc::new(Schema::empty())
    }

    fn note_thread(threads: &Threads) {
        let name = thread::current().name().unwrap_or_default().to_owned();
        threads.lock().push(name);
    }

    fn batch(rows: usize) -> RecordBatch {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema(), Vec::new(), &options).unwrap()
    }

    fn start(
        runtimes: &Runtimes,
        batches: impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + 'static,
    ) -> HereStream {
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema(), batches));
        let plan = PlanOwner::new(runtimes.work(), CancellationToken::new());
        HereStream::new(runtimes, rows, Duration::MAX, plan)
    }

    async fn row_counts(mut rows: HereStream) -> Vec<usize> {
        let mut counts = Vec::new();
        while let Some(batch) = rows.next().await {
            counts.push(batch.unwrap().num_rows());
        }
        counts
    }

    fn here() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn rows_that_are_there_at_once_are_computed_by_their_reader() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let threads = Threads::default();
        let noted = Arc::clone(&threads);
        let batches = stream::iter(1..4).map(move |rows| {
            note_thread(&noted);
            Ok(batch(rows))
        });
        let counts = row_counts(start(runtimes.handles(), batches)).await;
        assert_eq!(counts, [1, 2, 3]);
        assert_eq!(*threads.lock(), [here(), here(), here()]);
    }

    #[tokio::test]
    async fn a_plan_that_waits_or_computes_for_long_continues_on_the_cpu_runtime() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        for waits in [true, false] {
            let threads = Threads::default();
            let noted = Arc::clone(&threads);
            let batches = stream::iter(1..4).then(move |rows| {
                let noted = Arc::clone(&noted);
                async move {
                    if rows == 2 && waits {
                        tokio::task::yield_now().await;
                    }
                    note_thread(&noted);
                    let began = Instant::now();
                    while rows == 1 && !waits && began.elapsed() < SHORT_WORK_TIME {
                        thread::yield_now();
                    }
                    Ok(batch(rows))
                }
            });
            let counts = row_counts(start(runtimes.handles(), batches)).await;
            assert_eq!(counts, [1, 2, 3]);
            let cpu = || "volary-cpu".to_owned();
            assert_eq!(*threads.lock(), [here(), cpu(), cpu()]);
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_end() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let batches = stream::iter([0]).map(|_| panic!("no kea"));
        let mut rows = start(runtimes.handles(), batches);
        let error = Error::from(rows.next().await.unwrap().unwrap_err());
        assert_eq!(error.code(), ErrorCode::Internal);
        assert!(error.message().contains("no kea"), "{error}");
        assert!(rows.next().await.is_none());
    }

    #[tokio::test]
    async fn a_plan_that_was_ended_says_why_wherever_it_is_computed() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        for waits in [true, false] {
            let batches = stream::iter([1, 2]).map(|rows| Ok(batch(rows)));
            let batches = match waits {
                true => batches.take(1).chain(stream::pending()).boxed(),
                false => batches.boxed(),
            };
            let mut rows = start(runtimes.handles(), batches);
            assert_eq!(rows.next().await.unwrap().unwrap().num_rows(), 1);
            if waits {
                assert!(rows.next().now_or_never().is_none());
            }
            assert!(rows.plan.running_plan().end("too much"));
            let error = Error::from(rows.next().await.unwrap().unwrap_err());
            assert_eq!(error.code(), ErrorCode::ResourceExhausted, "{error}");
            assert!(error.message().contains("too much"), "{error}");
            assert!(rows.next().await.is_none());
        }
    }
}
