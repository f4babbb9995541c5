use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::encode::{FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use datafusion::config::TableParquetOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::future::Either;
use futures::stream::{self, Stream};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, ready};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tonic::Status;
use tracing::{Instrument, Span};
use volary_exec::batches::CoalesceBytes;
use volary_exec::buckets::Buckets;
use volary_exec::client_rows::client_rows;
use volary_exec::reserve_outgoing;
use volary_exec::run::{display_with_metrics, make_runnable, record_operators};
use volary_exec::stage_timer::TimedOutput;
use volary_flight_proto::fragment::Fragment;
use volary_flight_proto::frame::{EndOfStream, Frame};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::stage_times::StageTimes;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::trace::TraceParent;
use volary_flight_proto::{Error, ErrorCode, Result, ipc};
use volary_gather::members::MembersExec;
use volary_gather::merge::BucketMergeExec;
use volary_gather::report::StreamReports;
use volary_node::admission::{Admission, RunPlace};
use volary_node::held_stream::HeldStream;
use volary_node::runtimes::{CpuStream, PlanOwner};
use volary_node::traces;

use super::bind::{Binder, TicketBindings};
use super::bucket_order::{BucketOrder, Outlines, execute_in_bucket_order};
use super::cache::{DecodedFragment, TicketFragment};
use super::decode::decode;
use super::keep_alive::KeepAliveStream;
use super::optimize::optimize;
use super::relay::MemberRelay;
use super::running::ListedFragment;
use super::short;
use super::stage_timers::{StageTimers, micros};
use super::work::Work;
use crate::config::CLIENT_TIMEOUT;
use crate::context::WorkerContext;
use crate::lookup::answer::{self as lookup, LookupParts};
use crate::lookup::request::KeyedFragment;
use crate::storage::Segment;
use crate::totals::{CountedMessages, FragmentKind, WorkerTotals};

/// Size at which the encoder splits a message, in bytes. It is larger than any batch, because
/// batches get their size before they are encoded.
const NO_SPLIT_BYTES: usize = usize::MAX / 2;
/// Time that a gateway may take to read rows: there is no limit. A merge may read the rows of other
/// workers first, as long as its query runs. The gateway itself ends its queries, after
/// `gateway.query.timeout` at the latest, and their streams end with them. If the gateway is gone,
/// HTTP/2's keepalive ends the streams.
const READER_TIMEOUT: Duration = Duration::MAX;
/// Maximum number of buckets: the maximum number of partitions of a gateway, 1024, times the
/// maximum number of rounds, 128.
const MOST_BUCKETS: usize = 1 << 17;

/// Returns the messages of a fragment: its schema, its rows, and at the end a summary of what was
/// done. The stream sends keep-alives while the fragment waits for a place, and whenever there is
/// nothing else to send. Dropping the stream ends the fragment.
///
/// The stream does everything that takes time, and reports its errors, so that the gateway is
/// answered at once. A gateway gives up a worker that is silent, so a busy worker must send
/// keep-alives. If the ticket only names the fragment, and the fragment is not cached, the stream
/// asks the gateway for it. That needs no place.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if an id in the ticket is not valid, or if its fragment cannot be
/// decoded.
pub(crate) fn run_for_gateway(
    context: Arc<WorkerContext>,
    ticket: FragmentTicket,
) -> Result<KeepAliveStream> {
    let query_id = ticket.query_id()?;
    // A gateway of the same process may call from within a span of its own.
    let span = tracing::info_span!(parent: None, "fragment", %query_id, worker = %context.id);
    traces::continue_from(&span, TraceParent::from_bytes(&ticket.trace));
    let Some(ticket_fragment) = context.fragment_cache.ticket_fragment(&ticket)? else {
        span.in_scope(|| {
            tracing::debug!("the fragment is not cached: the gateway is asked to send it");
        });
        let question = stream::iter([Ok(frame_message(&Frame::send_fragment()))]);
        return Ok(KeepAliveStream::new(question, Duration::MAX));
    };
    let interval = ticket_fragment.keep_alive();
    let kind = if ticket_fragment.relays() {
        FragmentKind::Relay
    } else {
        FragmentKind::Shards
    };
    let totals = Arc::clone(&context.totals);
    let started = start(context, ticket, ticket_fragment, Instant::now())
        .inspect_err(|error| tracing::info!(error = format_args!("{error:#}"), "fragment failed"))
        .instrument(span);
    let messages = Box::pin(started.map_err(Status::from).try_flatten_stream());
    let messages = CountedMessages::new(messages, kind, &totals);
    Ok(KeepAliveStream::new(messages, interval))
}

/// Builds a message without rows.
fn frame_message(frame: &Frame) -> FlightData {
    FlightData {
        app_metadata: frame.to_bytes(),
        ..FlightData::default()
    }
}

/// Waits for a place and starts the fragment.
async fn start(
    context: Arc<WorkerContext>,
    ticket: FragmentTicket,
    ticket_fragment: TicketFragment,
    arrived: Instant,
) -> Result<Either<stream::Iter<std::vec::IntoIter<Message>>, FragmentStream>> {
    let admission = if ticket_fragment.relays() {
        &context.relay_admission
    } else {
        &context.fragment_admission
    };
    let waiting = wait_for_place(&context, admission, ticket.owner);
    let place = waiting.instrument(tracing::debug_span!("queue")).await?;
    let mut options = StreamOptions {
        arrived,
        queued: arrived.elapsed(),
        timers: StageTimers::default(),
        query_id: ticket.query_id()?,
        batch_bytes: usize::try_from(ticket.batch_bytes).unwrap_or(usize::MAX),
        small_bytes: usize::try_from(ticket.single_round_bytes).unwrap_or(usize::MAX),
        place,
    };
    let runtimes = context.runtimes.of_user(ticket.owner);
    let cached = ticket_fragment.cached().cloned();
    let work = async move {
        let began = Instant::now();
        options.timers.queued = began.saturating_duration_since(arrived);
        let fragment = context.fragment_cache.decoded(ticket_fragment)?;
        if let Some(keyed) = &fragment.keyed
            && let Some(messages) =
                answer_by_key(&context, &fragment, keyed, &ticket, &options).await
        {
            return Ok(stream::iter(messages).left_stream());
        }
        let ticket_fragment = TicketFragment::Cached(fragment);
        let fragment =
            tracing::debug_span!("bind").in_scope(|| bind(&context, ticket, ticket_fragment))?;
        options.timers.bind = began.elapsed();
        Ok(stream_rows(&context, fragment, options)?.right_stream())
    };
    short::start(&runtimes, cached, work.in_current_span()).await
}

/// Returns all messages of a fragment that asks for rows by key, if the rows are found in decoded
/// columns.
async fn answer_by_key(
    context: &WorkerContext,
    fragment: &DecodedFragment,
    keyed: &KeyedFragment,
    ticket: &FragmentTicket,
    options: &StreamOptions,
) -> Option<Vec<Message>> {
    let started = Instant::now();
    // The ordinary way reports what is wrong with a ticket.
    let bindings = TicketBindings::of(ticket.clone()).ok()?;
    let task = context.environments.for_fragment(
        &fragment.settings,
        context.target_partitions(),
        &context.runtime_env,
    );
    let parts = LookupParts {
        storage: &context.storage,
        cache: &context.lookups,
        task: &task,
        check_bytes: context.config.storage.check_on_open.bytes() as u64,
    };
    let announced = &ticket.announced;
    let answer = lookup::answer(parts, keyed, &bindings, announced, options.batch_bytes).await?;
    context.totals.sent.add_rows(answer.rows);
    let total = micros(options.arrived.elapsed());
    let end = EndOfStream {
        rows: answer.rows,
        batches: answer.batches,
        first_row_us: total,
        total_us: total,
        compute_us: micros(started.elapsed()),
        scanned_rows: answer.scanned_rows,
        segments: answer.segments,
        plan_metrics: if fragment.settings.with_plan_metrics {
            answer.describe()
        } else {
            String::new()
        },
        queued_us: micros(options.queued),
        stages: Some(StageTimes {
            queued_us: micros(options.timers.queued),
            index_us: micros(started.elapsed().saturating_sub(answer.encoding)),
            encode_us: micros(answer.encoding),
            ..StageTimes::default()
        }),
        ..EndOfStream::default()
    };
    tracing::debug!(
        rows = end.rows,
        total_us = end.total_us,
        "fragment was answered by key"
    );
    let end = frame_message(&Frame::end(end));
    let messages = answer.messages.into_iter().chain([end]);
    Some(messages.map(Ok).collect())
}

async fn wait_for_place(
    context: &WorkerContext,
    admission: &Admission,
    owner: u32,
) -> Result<RunPlace> {
    let longest = context.config.execution.max_wait;
    let mut entering = pin!(admission.enter_session(&owner));
    // There is a place at once in most cases, so that no timer is needed.
    if let Some(place) = entering.as_mut().now_or_never() {
        return place;
    }
    place_or_timeout(timeout(longest, entering).await, longest)
}

fn place_or_timeout(
    entered: std::result::Result<Result<RunPlace>, Elapsed>,
    longest: Duration,
) -> Result<RunPlace> {
    entered.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorCode::ResourceExhausted,
            format!("the fragment has waited {longest:?} for a place; retry when fewer queries run, or raise worker.execution.max_running"),
        ))
    })
}

/// Waits for a place among the parts that clients fetch themselves, and starts the fragment. Its
/// rows come as they are computed, in batches of any size. `limit` is the time that the whole part
/// may take. The fragment also ends if its reader takes no rows for `limit`, or for
/// [`CLIENT_TIMEOUT`].
///
/// # Errors
/// Returns `RESOURCE_EXHAUSTED` if the fragment waits too long, and the errors of the fragment.
pub(crate) async fn run_for_client(
    context: Arc<WorkerContext>,
    ticket: FragmentTicket,
    given: TicketFragment,
    client: String,
    limit: Duration,
) -> Result<CpuStream> {
    let longest = context.config.execution.max_wait;
    let entering = context.client_admission.enter_session(&client);
    let place = place_or_timeout(timeout(longest, entering).await, longest)?;
    let runtimes = context.runtimes.of_user(ticket.owner);
    let query_id = ticket.query_id()?;
    let work = async move {
        let fragment = bind(&context, ticket, given)?;
        let (plan, task) = (Arc::clone(&fragment.plan), Arc::clone(&fragment.task));
        let rows = fragment.stop_guard.start(|| execute_stream(plan, task))?;
        let held = HeldForClient {
            _listed: context
                .running_fragments
                .list(query_id, fragment.stop_guard.running_plan()),
            _segments: fragment.segments,
            _place: place,
        };
        let rows = ClientRows {
            schema: rows.schema(),
            rows: HeldStream::new(rows, held),
            totals: Arc::clone(&context.totals),
            plan: Arc::clone(&fragment.plan),
            span: Span::current(),
        };
        // A client that reads nothing does not poll the stream, so the deadline of its call cannot
        // end the fragment. This timeout ends it.
        let reader_timeout = limit.min(CLIENT_TIMEOUT);
        Ok(context
            .runtimes
            .stream_on_cpu(Box::pin(rows), reader_timeout, fragment.stop_guard))
    };
    runtimes.on_cpu(work.in_current_span()).await
}

/// The rows of a fragment for a client.
struct ClientRows {
    schema: SchemaRef,
    rows: HeldStream<SendableRecordBatchStream, HeldForClient>,
    totals: Arc<WorkerTotals>,
    plan: Arc<dyn ExecutionPlan>,
    span: Span,
}

impl Drop for ClientRows {
    fn drop(&mut self) {
        record_operators(&self.plan, &self.span);
    }
}

/// The resources that are held until the rows for a client end or are dropped.
struct HeldForClient {
    _listed: ListedFragment,
    /// The segments that are read. Their files are not deleted as long as these values live.
    _segments: Vec<Arc<Segment>>,
    _place: RunPlace,
}

impl RecordBatchStream for ClientRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Stream for ClientRows {
    type Item = std::result::Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.rows.poll_next_unpin(cx));
        if let Some(Ok(batch)) = &next {
            self.totals.sent.add_rows(batch.num_rows() as u64);
        }
        Poll::Ready(next)
    }
}

/// A fragment that is bound and ready to run.
struct BoundFragment {
    plan: Arc<dyn ExecutionPlan>,
    stop_guard: PlanOwner,
    task: Arc<TaskContext>,
    segments: Vec<Arc<Segment>>,
    with_plan_metrics: bool,
    is_short: bool,
    buckets: Option<Buckets>,
    /// Reports of the other workers whose rows the fragment merges.
    member_reports: Option<StreamReports>,
    /// The schema of the rows for a client; `None` if the rows are not converted to a client's
    /// types.
    announced_schema: Option<SchemaRef>,
}

/// Decodes, binds and optimises a fragment.
fn bind(
    context: &Arc<WorkerContext>,
    ticket: FragmentTicket,
    ticket_fragment: TicketFragment,
) -> Result<BoundFragment> {
    let fragment = context.fragment_cache.decoded(ticket_fragment)?;
    let settings = &fragment.settings;
    let runtimes = context.runtimes.of_user(ticket.owner);
    let target_partitions = context.target_partitions();
    let task = context
        .environments
        .for_fragment(settings, target_partitions, &context.runtime_env);
    let parquet = TableParquetOptions {
        global: task.session_config().options().execution.parquet.clone(),
        ..TableParquetOptions::default()
    };
    let relaying = MemberRelay::of(context, settings, &ticket)?;
    let announced = match &ticket.announced[..] {
        [] => None,
        encoded => Some(Arc::new(ipc::schema_from_bytes(encoded)?)),
    };
    let members = relaying.as_ref().map(|relaying| relaying.reports().clone());
    let binder = Binder::new(
        context.storage.clone(),
        Arc::clone(&context.runtime_env),
        Arc::clone(&context.decoded_segments),
        parquet,
        TicketBindings::of(ticket)?,
        target_partitions,
    )
    .with_check_bytes(context.config.storage.check_on_open.bytes())
    .with_relay(relaying);
    let plan = decode(&fragment.plan, &binder, &task)?;
    let buckets = requested_buckets(settings, plan.schema().fields().len())?;
    let plan = match (&members, &buckets) {
        (None, _) => optimize(plan, task.session_config().options())?,
        (Some(_), Some(buckets)) => merge_members_by_bucket(plan, buckets.clone())?,
        (Some(_), None) => plan,
    };
    let plan = match &buckets {
        // All partitions of the plan are read in parallel.
        Some(_) => plan,
        None => merge_partitions(plan, settings.ordered, settings.fetch)?,
    };
    let is_short = buckets.is_none() && short::is_short(&plan);
    let (plan, end) = make_runnable(plan, &task, &runtimes)?;
    if let Some(keyed) = &fragment.keyed {
        keyed.note_schema(&plan.schema());
    }
    Ok(BoundFragment {
        is_short,
        plan,
        stop_guard: end,
        task,
        segments: binder.into_segments(),
        with_plan_metrics: settings.with_plan_metrics,
        buckets,
        member_reports: members,
        announced_schema: announced,
    })
}

/// Builds the merge of the members' rows. The rows come by bucket, and are merged as a gateway
/// merges them.
fn merge_members_by_bucket(
    aggregate: Arc<dyn ExecutionPlan>,
    buckets: Buckets,
) -> Result<Arc<dyn ExecutionPlan>> {
    let members = match aggregate.children()[..] {
        [members] if members.is::<MembersExec>() => Arc::clone(members),
        _ => {
            return Err(Error::invalid(
                "a relay that merges by bucket must have a plan that aggregates the rows of its members",
            ));
        }
    };
    let merge = BucketMergeExec::<MembersExec>::for_relay(aggregate, members, buckets)?;
    Ok(Arc::new(merge))
}

/// Returns the buckets that the rows of a fragment are to be ordered by.
fn requested_buckets(settings: &Fragment, columns: usize) -> Result<Option<Buckets>> {
    let Some(requested) = &settings.buckets else {
        return Ok(None);
    };
    let hashed: Vec<usize> = requested
        .columns
        .iter()
        .map(|column| *column as usize)
        .collect();
    let (partitions, rounds) = (requested.partitions as usize, requested.rounds as usize);
    let fits = hashed.iter().all(|column| *column < columns)
        && (1..=MOST_BUCKETS).contains(&partitions.saturating_mul(rounds));
    if !fits || settings.ordered || settings.fetch.is_some() {
        return Err(Error::invalid(format!(
            "rows with {columns} columns cannot be sent in the order of {partitions} × {rounds} buckets of columns {hashed:?}; run the same release on all nodes"
        )));
    }
    Ok(Some(Buckets::new(hashed, partitions, rounds)))
}

/// Reduces a plan to one partition. The rows are merged by the plan's ordering, or taken as they
/// come.
fn merge_partitions(
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
        Error::invalid("the fragment must return ordered rows, but its plan does not order them")
    })?;
    Ok(Arc::new(
        SortPreservingMergeExec::new(ordering, plan).with_fetch(fetch),
    ))
}

/// A message of a fragment, or the error that ends it.
type Message = std::result::Result<FlightData, Status>;

/// What a stream needs to know besides its plan.
struct StreamOptions {
    /// Id of the query.
    query_id: QueryId,
    /// Time at which the ticket arrived.
    arrived: Instant,
    /// Time that the fragment waited for a place.
    queued: Duration,
    /// Measures the stages of the fragment.
    timers: StageTimers,
    /// Size that a batch should have, in bytes.
    batch_bytes: usize,
    /// Total size up to which rows by bucket come in one round, in bytes.
    small_bytes: usize,
    /// Place of the fragment. It is held until the stream ends or is dropped.
    place: RunPlace,
}

/// Starts the fragment. The schema comes at once, then the rows, and at the end a summary of what
/// was done.
fn stream_rows(
    context: &WorkerContext,
    fragment: BoundFragment,
    options: StreamOptions,
) -> Result<FragmentStream> {
    let (sized, outlines) = {
        // Operators spawn their tasks in the runtime in which they are started.
        let _cpu = context.runtimes.cpu().enter();
        fragment
            .stop_guard
            .start(|| execute_sized(&fragment, &options))?
    };
    let listed = context
        .running_fragments
        .list(options.query_id, fragment.stop_guard.running_plan());
    let schema = sized.schema();
    let (runtimes, end) = (&context.runtimes, fragment.stop_guard);
    let computed = match fragment.is_short {
        true => Either::Left(runtimes.stream_here(sized, READER_TIMEOUT, end)),
        false => Either::Right(runtimes.stream_on_cpu(sized, READER_TIMEOUT, end)),
    };
    let sent_counter = SentCounter::default();
    let (counts, totals) = (sent_counter.clone(), Arc::clone(&context.totals));
    let counted_rows = computed
        .map_err(|error| FlightError::Tonic(Box::new(Error::from(error).into())))
        .inspect_ok(move |batch| {
            counts.add(batch.num_rows(), options.arrived);
            totals.sent.add_rows(batch.num_rows() as u64);
        });
    let encoder = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(NO_SPLIT_BYTES)
        .build(options.timers.messages.source(counted_rows));
    Ok(FragmentStream {
        encoder: options.timers.messages.output(encoder),
        outlines,
        has_sent_schema: false,
        sent_counter,
        plan: fragment.plan,
        segments: fragment.segments,
        member_reports: fragment.member_reports,
        arrived: options.arrived,
        queued: options.queued,
        timers: options.timers,
        with_plan_metrics: fragment.with_plan_metrics,
        has_ended: false,
        _listed: listed,
        place: Some(options.place),
        span: Span::current(),
    })
}

/// Returns the fragment's rows in batches of the requested size. Rows by bucket come with their
/// outlines.
fn execute_sized(
    fragment: &BoundFragment,
    options: &StreamOptions,
) -> Result<(SendableRecordBatchStream, Option<Outlines>)> {
    let (plan, task, timers) = (&fragment.plan, &fragment.task, &options.timers);
    if let Some(buckets) = &fragment.buckets {
        let order = BucketOrder {
            buckets: buckets.clone(),
            small_bytes: options.small_bytes,
            batch_bytes: options.batch_bytes,
        };
        let (rows, outlines) = execute_in_bucket_order(plan, task, order, &timers.ordering)?;
        return Ok((rows, Some(outlines)));
    }
    let schema = plan.schema();
    let rows = execute_stream(Arc::clone(plan), Arc::clone(task))?;
    let rows = timers.batches.source(rows);
    let (schema, sized) = match &fragment.announced_schema {
        None => {
            let rows = reserve_outgoing(rows);
            let sized = CoalesceBytes::new(rows, Arc::clone(&schema), options.batch_bytes);
            (schema, sized.boxed())
        }
        Some(announced) => {
            let to = Arc::clone(announced);
            let sized = client_rows(rows, Arc::clone(&to), options.batch_bytes);
            (to, sized.map_err(DataFusionError::from).boxed())
        }
    };
    let sized = RecordBatchStreamAdapter::new(schema, timers.batches.output(sized));
    Ok((Box::pin(sized), None))
}

/// Counts the rows and batches that were sent.
#[derive(Debug, Clone, Default)]
struct SentCounter(Arc<parking_lot::Mutex<SentCounts>>);

#[derive(Debug, Default)]
struct SentCounts {
    rows: u64,
    batches: u64,
    first_row: Option<Duration>,
}

impl SentCounter {
    fn add(&self, rows: usize, arrived: Instant) {
        let mut counts = self.0.lock();
        counts.rows += rows as u64;
        counts.batches += 1;
        counts.first_row.get_or_insert_with(|| arrived.elapsed());
    }
}

/// The messages of a running fragment. Dropping the stream ends the fragment.
struct FragmentStream {
    encoder: TimedOutput<FlightDataEncoder>,
    outlines: Option<Outlines>,
    has_sent_schema: bool,
    sent_counter: SentCounter,
    plan: Arc<dyn ExecutionPlan>,
    segments: Vec<Arc<Segment>>,
    member_reports: Option<StreamReports>,
    arrived: Instant,
    queued: Duration,
    timers: StageTimers,
    with_plan_metrics: bool,
    has_ended: bool,
    _listed: ListedFragment,
    /// The place of the fragment. It is given back before the gateway sees the end, so that the
    /// next fragment can have it.
    place: Option<RunPlace>,
    span: Span,
}

impl Stream for FragmentStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Some(message) = ready!(self.encoder.poll_next_unpin(cx)) {
            let message = message
                .map_err(Error::from)
                .map(|message| self.add_outline(message));
            if let Err(error) = &message {
                self.has_ended = true;
                self.place = None;
                self.span.in_scope(|| {
                    tracing::info!(error = format_args!("{error:#}"), "fragment failed");
                });
            }
            return Poll::Ready(Some(message.map_err(Status::from)));
        }
        self.has_ended = true;
        self.place = None;
        let end = self.end();
        self.span.in_scope(|| {
            tracing::debug!(rows = end.rows, total_us = end.total_us, "fragment ended");
        });
        Poll::Ready(Some(Ok(frame_message(&Frame::end(end)))))
    }
}

impl Drop for FragmentStream {
    fn drop(&mut self) {
        record_operators(&self.plan, &self.span);
        if !self.has_ended {
            self.span
                .in_scope(|| tracing::debug!("the fragment was dropped before its end"));
        }
    }
}

impl FragmentStream {
    /// Adds to a message its outline: how many rows of each bucket the message contains. The
    /// encoder sends the schema first, and then a message for each batch.
    fn add_outline(&mut self, mut message: FlightData) -> FlightData {
        let has_rows = std::mem::replace(&mut self.has_sent_schema, true);
        if has_rows && let Some(outline) = self.outlines.as_ref().and_then(Outlines::next) {
            message.app_metadata = Frame::rows_by_bucket(outline).to_bytes();
        }
        message
    }

    fn end(&self) -> EndOfStream {
        let counts = self.sent_counter.0.lock();
        let now = Instant::now();
        let total = now.saturating_duration_since(self.arrived);
        let work = Work::of(&self.plan);
        let members = self
            .member_reports
            .as_ref()
            .map(StreamReports::total)
            .unwrap_or_default();
        let (own, reader) = self.timers.times(&work, now);
        EndOfStream {
            rows: counts.rows,
            batches: counts.batches,
            first_row_us: micros(counts.first_row.unwrap_or(total)),
            total_us: micros(total),
            compute_us: members.compute_us.saturating_add(micros(work.compute)),
            scanned_rows: members.scanned_rows.saturating_add(work.scanned_rows),
            scanned_bytes: members.scanned_bytes.saturating_add(work.scanned_bytes),
            segments: members.segments.saturating_add(self.segments.len() as u64),
            slowest_member: members.slowest_member,
            sent_bytes: members.sent_bytes,
            plan_metrics: if self.with_plan_metrics {
                format!(
                    "{}{}",
                    display_with_metrics(&self.plan),
                    members.plan_metrics
                )
            } else {
                String::new()
            },
            queued_us: micros(self.queued),
            stages: Some(own.plus(members.stages.unwrap_or_default())),
            reader_us: micros(reader),
        }
    }
}
