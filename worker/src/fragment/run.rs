//! Executing a fragment, and streaming its rows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow_flight::FlightData;
use arrow_flight::encode::{FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use datafusion::config::TableParquetOptions;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::{Stream, StreamExt, TryFutureExt, TryStreamExt, ready};
use tokio::time::timeout;
use tonic::Status;
use tracing::{Instrument, Span};
use volary_flight_proto::frame::{EndOfStream, Frame};
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::admission::Place;
use volary_node::batches::CoalesceBytes;
use volary_node::run::{StopsWhenDropped, runnable};

use super::bind::Binder;
use super::decode::decode;
use super::keep_alive::WithKeepAlive;
use super::optimize::optimize;
use crate::context::WorkerContext;
use crate::storage::Segment;

/// Larger messages than any batch: batches are sized before they are encoded.
const NO_SPLIT_BYTES: usize = usize::MAX / 2;
/// A gateway reads a worker's rows as late as it likes: a merge may take those of other workers first, as long as its query runs. It ends
/// its queries itself, after `gateway.query.timeout` at the latest, and with them their streams; if it is gone, HTTP/2's
/// keepalive ends them.
const READER_TIMEOUT: Duration = Duration::MAX;

/// The messages of a fragment, from now on: signs of life while it waits for a place, then its schema, its rows, and at the end
/// what was done; between them signs of life whenever there is nothing else to send. Dropping the stream ends the fragment.
///
/// Whatever takes time is done by the stream, errors included, so that the gateway is answered at once: it gives up a worker
/// that says nothing, and one that has much to do is not dead.
pub fn messages(context: Arc<WorkerContext>, ticket: FragmentTicket) -> WithKeepAlive {
    let interval = Duration::from_millis(u64::from(ticket.keep_alive_ms));
    let span = tracing::info_span!("fragment", query_id = %ticket.query_id, worker = %context.id);
    let started = start(context, ticket, Instant::now())
        .inspect_err(|error| tracing::info!(%error, "fragment failed"))
        .instrument(span);
    WithKeepAlive::new(started.map_err(Status::from).try_flatten_stream(), interval)
}

/// Waits for a place and starts the fragment.
async fn start(
    context: Arc<WorkerContext>,
    ticket: FragmentTicket,
    arrived: Instant,
) -> Result<FragmentStream> {
    let place = enter(&context).await?;
    let options = Options {
        arrived,
        queued: arrived.elapsed(),
        batch_bytes: usize::try_from(ticket.batch_bytes).unwrap_or(usize::MAX),
        with_plan_metrics: ticket.with_plan_metrics,
        place,
    };
    let runtimes = context.runtimes.clone();
    let work = async move {
        let fragment = bind(&context, ticket)?;
        stream(&context, fragment, options)
    };
    runtimes.on_cpu(work.in_current_span()).await
}

async fn enter(context: &WorkerContext) -> Result<Place> {
    let longest = context.config.execution.max_wait;
    let entered = timeout(longest, context.admission.enter()).await;
    entered.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorCode::ResourceExhausted,
            format!("the fragment has waited {longest:?} for a place; retry when less runs, or raise worker.execution.max_running"),
        ))
    })
}

/// A fragment that is bound and ready to run.
struct BoundFragment {
    plan: Arc<dyn ExecutionPlan>,
    end: StopsWhenDropped,
    task: Arc<TaskContext>,
    segments: Vec<Arc<Segment>>,
}

/// Decodes, binds and optimises; runs on the CPU runtime.
fn bind(context: &WorkerContext, ticket: FragmentTicket) -> Result<BoundFragment> {
    let target_partitions = context.target_partitions();
    let task = context
        .environments
        .of(&ticket, target_partitions, &context.runtime_env);
    let parquet = TableParquetOptions {
        global: task.session_config().options().execution.parquet.clone(),
        ..TableParquetOptions::default()
    };
    let snapshot = ticket
        .snapshot
        .ok_or_else(|| Error::invalid("the ticket has no snapshot"))?;
    let binder = Binder::new(
        context.storage.clone(),
        Arc::clone(&context.runtime_env),
        parquet,
        snapshot,
        ticket.scans,
        target_partitions,
    );
    let plan = decode(&ticket.plan, &binder, &task)?;
    let plan = optimize(plan, task.session_config().options())?;
    let plan = one_stream(plan, ticket.ordered, ticket.fetch)?;
    let (plan, end) = runnable(plan)?;
    Ok(BoundFragment {
        plan,
        end,
        task,
        segments: binder.into_segments(),
    })
}

/// One partition: merged by the plan's ordering, or as rows come.
fn one_stream(
    plan: Arc<dyn ExecutionPlan>,
    ordered: bool,
    fetch: Option<u64>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let fetch = fetch.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
    if plan.output_partitioning().partition_count() == 1 && fetch.is_none() {
        return Ok(plan);
    }
    if !ordered {
        return Ok(Arc::new(
            CoalescePartitionsExec::new(plan).with_fetch(fetch),
        ));
    }
    let ordering = plan.output_ordering().cloned().ok_or_else(|| {
        Error::invalid("the ticket asks for ordered rows, and the fragment does not order them")
    })?;
    Ok(Arc::new(
        SortPreservingMergeExec::new(ordering, plan).with_fetch(fetch),
    ))
}

/// What a stream needs to know beside its plan.
struct Options {
    /// When the ticket arrived.
    arrived: Instant,
    /// How long it waited for a place.
    queued: Duration,
    /// The size of a batch to aim at.
    batch_bytes: usize,
    /// Whether the plan is sent with its metrics.
    with_plan_metrics: bool,
    /// Held until the stream ends or is dropped.
    place: Place,
}

/// Starts the fragment: the schema comes at once, then rows, and at the end what was done.
fn stream(
    context: &WorkerContext,
    fragment: BoundFragment,
    options: Options,
) -> Result<FragmentStream> {
    let schema = fragment.plan.schema();
    let rows = {
        // Operators spawn their tasks where they are started.
        let _cpu = context.runtimes.cpu().enter();
        execute_stream(Arc::clone(&fragment.plan), fragment.task)?
    };
    let sized = CoalesceBytes::new(rows, Arc::clone(&schema), options.batch_bytes);
    let sized = RecordBatchStreamAdapter::new(Arc::clone(&schema), sized);
    let computed = context
        .runtimes
        .stream_on_cpu(Box::pin(sized), READER_TIMEOUT)
        .stopping(fragment.end);
    let counted = Counted::default();
    let counts = counted.clone();
    let counted_rows = computed
        .map_err(|error| FlightError::Tonic(Box::new(Error::from(error).into())))
        .inspect_ok(move |batch| counts.add(batch.num_rows(), options.arrived));
    let encoder = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(NO_SPLIT_BYTES)
        .build(counted_rows);
    Ok(FragmentStream {
        encoder,
        counted,
        plan: fragment.plan,
        segments: fragment.segments,
        arrived: options.arrived,
        queued: options.queued,
        with_plan_metrics: options.with_plan_metrics,
        ended: false,
        _place: options.place,
        span: Span::current(),
    })
}

/// Rows and batches that went out.
#[derive(Debug, Clone, Default)]
struct Counted(Arc<parking_lot::Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    rows: u64,
    batches: u64,
    first_row: Option<Duration>,
}

impl Counted {
    fn add(&self, rows: usize, arrived: Instant) {
        let mut counts = self.0.lock();
        counts.rows += rows as u64;
        counts.batches += 1;
        counts.first_row.get_or_insert_with(|| arrived.elapsed());
    }
}

/// The messages of a fragment that runs. Dropping it ends the fragment.
struct FragmentStream {
    encoder: FlightDataEncoder,
    counted: Counted,
    plan: Arc<dyn ExecutionPlan>,
    segments: Vec<Arc<Segment>>,
    arrived: Instant,
    queued: Duration,
    with_plan_metrics: bool,
    ended: bool,
    _place: Place,
    span: Span,
}

impl Stream for FragmentStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(message) = ready!(self.encoder.poll_next_unpin(cx)) {
            let message = message.map_err(Error::from);
            if let Err(error) = &message {
                self.ended = true;
                self.span
                    .in_scope(|| tracing::info!(%error, "fragment failed"));
            }
            return Poll::Ready(Some(message.map_err(Status::from)));
        }
        self.ended = true;
        let end = self.end();
        self.span.in_scope(|| {
            tracing::debug!(rows = end.rows, total_us = end.total_us, "fragment ended");
        });
        Poll::Ready(Some(Ok(FlightData {
            app_metadata: Frame::end(end).to_bytes(),
            ..FlightData::default()
        })))
    }
}

impl Drop for FragmentStream {
    fn drop(&mut self) {
        if !self.ended {
            self.span
                .in_scope(|| tracing::debug!("nobody reads the fragment any more"));
        }
    }
}

impl FragmentStream {
    fn end(&self) -> EndOfStream {
        let counts = self.counted.0.lock();
        let total = self.arrived.elapsed();
        let work = Work::of(&self.plan);
        EndOfStream {
            rows: counts.rows,
            batches: counts.batches,
            first_row_us: micros(counts.first_row.unwrap_or(total)),
            total_us: micros(total),
            compute_us: micros(work.compute),
            scanned_rows: work.scanned_rows,
            scanned_bytes: work.scanned_bytes,
            segments: self.segments.len() as u64,
            plan_metrics: if self.with_plan_metrics {
                DisplayableExecutionPlan::with_metrics(self.plan.as_ref())
                    .indent(true)
                    .to_string()
            } else {
                String::new()
            },
            queued_us: micros(self.queued),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a plan did, from its operators' metrics.
#[derive(Default)]
struct Work {
    compute: Duration,
    scanned_rows: u64,
    scanned_bytes: u64,
}

impl Work {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut work = Self::default();
        work.add(plan);
        work
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(metrics) = plan.metrics() {
            let nanos = metrics.elapsed_compute().unwrap_or(0) as u64;
            self.compute += Duration::from_nanos(nanos);
            if plan.children().is_empty() {
                self.scanned_rows += metrics.output_rows().unwrap_or(0) as u64;
                self.scanned_bytes += metrics
                    .sum_by_name("bytes_scanned")
                    .map_or(0, |value: MetricValue| value.as_usize() as u64);
            }
        }
        for child in plan.children() {
            self.add(child);
        }
    }
}
