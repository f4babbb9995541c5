use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{Stream, StreamExt};
use tracing::Span;
use volary_catalog::RelationName;
use volary_catalog::access::Access;
use volary_exec::run::{make_runnable, record_operators};
use volary_flight_proto::ids::{QueryId, WorkerId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, Result};
use volary_gather::MergedStreams;
use volary_gather::announced_schema::AnnouncedSchema;
use volary_gather::forwarded::ForwardedMessage;
use volary_node::Runtimes;
use volary_node::admission::RunPlace;
use volary_node::held_stream::HeldStream;
use volary_node::traces;
use volary_planner::gather::{GatherExec, QueryContext};
use volary_planner::generic_plan::is_constant;

use super::result_columns::columns_fingerprint;
use super::session::Claimant;
use super::statement_queue::{READER_TIMEOUT, StatementQueue};
use crate::client_types::{ClientSchema, ClientSchemas, TypeProfile};
use crate::statements::{Planning, ProgressHandle};

/// Maximum number of workers' streams that are read inline. The task that sends their messages to
/// the client then opens and reads the streams itself, without a hand-over to the CPU runtime.
/// Opening thousands of streams in that task would keep other work waiting.
const MAX_INLINE_STREAMS: usize = 16;

/// The results of planning a query that are needed to plan it again.
#[derive(Debug, Clone, Default)]
pub(crate) struct EarlierPlan {
    /// The snapshot that the query sees. `None` for the writes that are committed now.
    pub snapshot: Option<Snapshot>,
    /// The tables and views of users that the query reads, by name. The number is a table's id, or
    /// the fingerprint of a view's text and owner.
    pub reads: BTreeMap<RelationName, u64>,
    /// The fingerprint of the query's columns. `None` if it is not known.
    pub columns_fingerprint: Option<u64>,
}

/// A planned query. Dropping this value, or the stream of the rows, ends the query on all nodes.
#[derive(Debug)]
pub struct PlannedQuery {
    /// The id of the query.
    pub id: QueryId,
    /// The columns of the query.
    pub schema: SchemaRef,
    /// The snapshot that the query sees.
    pub snapshot: Snapshot,
    /// The tables and views that the query reads, and their versions: see
    /// [`EarlierPlan::reads`].
    pub reads: BTreeMap<RelationName, u64>,
    /// The users, roles and grants at the time of planning.
    pub access: Arc<Access>,
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) task: Arc<TaskContext>,
    pub(super) runtimes: Runtimes,
    /// Time that parsing took. It is zero if no text was parsed.
    pub(super) parsing_time: Duration,
    pub(super) planning_time: Duration,
    /// Says whether a generic plan was used.
    pub(super) plan_found: bool,
    pub(super) queue: StatementQueue,
    pub(super) claimant: Claimant,
    /// Says whether the query only lists rows of one system table.
    pub(super) is_listing: bool,
    /// The schemas that clients are sent.
    pub(super) client_schemas: Arc<ClientSchemas>,
}

impl PlannedQuery {
    /// Returns the queue in which the query waits for its place.
    pub(crate) fn queue(&self) -> &StatementQueue {
        &self.queue
    }

    /// Returns the fingerprint of the query's columns: see
    /// [`EarlierPlan::columns_fingerprint`].
    pub(crate) fn columns_fingerprint(&self) -> u64 {
        columns_fingerprint(&self.schema)
    }

    /// Returns the schema of the rows for clients of this profile.
    ///
    /// # Errors
    /// `INTERNAL` if the schema cannot be encoded.
    pub(crate) fn client_schema(&self, profile: TypeProfile) -> Result<ClientSchema> {
        self.client_schemas.get(profile, &self.schema).cloned()
    }

    /// Returns a ticket for each worker. Returns `None` unless the query's rows are exactly those
    /// of its workers, in any order: see [`GatherExec::parts`].
    ///
    /// # Errors
    /// Returns an error if the workers' fragment cannot be encoded.
    pub(crate) fn worker_tickets(&self) -> Result<Option<Vec<FragmentTicket>>> {
        let Some(gather) = self.gather() else {
            return Ok(None);
        };
        let (query, config) = (
            QueryContext::from_task(&self.task)?,
            self.task.session_config(),
        );
        Ok(gather.parts(&query, config.batch_size())?)
    }

    /// Turns the query into a query of only the rows that this ticket of [`Self::worker_tickets`]
    /// stands for.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the ticket is not valid.
    pub(crate) fn into_part(self, part: FragmentTicket) -> Result<Self> {
        let replicas = self
            .gather()
            .map(|gather| gather.replicas_of(WorkerId(part.worker_id)));
        let gather = GatherExec::from_part(part, self.plan.schema(), replicas.unwrap_or_default())?;
        Ok(Self {
            plan: Arc::new(gather),
            ..self
        })
    }

    /// Notes the plan of the query, and how it was made.
    pub fn note(&self, progress: &ProgressHandle) {
        let planning = Planning {
            parsing: self.parsing_time,
            planning: self.planning_time,
            plan_found: self.plan_found,
        };
        progress.set_planned(&self.plan, planning);
    }

    /// Notes that the query runs in the current span, for the trace of its gathers.
    fn note_run_span(&self) -> Result<Span> {
        let query = QueryContext::from_task(&self.task)?;
        query.span.set_current();
        Ok(Span::current())
    }

    /// Returns the gather, if the whole query consists of one gather.
    fn gather(&self) -> Option<&GatherExec> {
        let mut plan = &self.plan;
        while let Some(cooperative) = plan.downcast_ref::<CooperativeExec>() {
            plan = cooperative.input();
        }
        plan.downcast_ref::<GatherExec>()
    }

    /// Returns whether the query's rows are exactly those of its workers. The workers' messages can
    /// then be sent to the client undecoded.
    pub(crate) fn passes_rows_unchanged(&self) -> bool {
        self.gather().is_some_and(GatherExec::passes_rows_unchanged)
    }

    /// Waits for a place and runs the query. Returns the messages of its workers, for a client that
    /// was sent the schema `announced`. Refuses the query if its rows have to pass operators on
    /// this gateway, because there are no such messages then. `progress` is the handle for notes
    /// about the query's progress. The caller has to enforce deadlines.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait. `INTERNAL` if the workers' rows are not
    /// those of the query.
    pub(crate) async fn start_forwarding(
        self,
        progress: ProgressHandle,
        announced: &AnnouncedSchema,
    ) -> Result<impl Stream<Item = Result<ForwardedMessage>> + Send + use<>> {
        self.note_run_span()?;
        self.note(&progress);
        let streams = match self.gather() {
            Some(gather) => gather.forwarded_streams(announced, &self.task)?,
            None => None,
        };
        let streams = streams.ok_or_else(|| {
            Error::internal("the rows of this query cannot be forwarded unchanged, because the gateway computes them")
        })?;
        let env = self.task.runtime_env();
        let place = self
            .queue
            .wait_for_place(&self.claimant, false, self.id, &progress, &env)
            .await?;
        let is_many = streams.len() > MAX_INLINE_STREAMS;
        let messages = MergedStreams::new(streams);
        let messages = if is_many {
            let on_cpu = self.runtimes.read_on_cpu(messages, READER_TIMEOUT);
            on_cpu.boxed()
        } else {
            messages.boxed()
        };
        Ok(HeldStream::new(messages, place))
    }

    /// Waits for a place and runs the query. The batches of the stream have exactly the schema
    /// `self.schema`. `progress` is the handle for notes about the query's progress. The caller has
    /// to enforce deadlines, because it knows those of the call that the query belongs to.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub async fn start(self, progress: ProgressHandle) -> Result<SendableRecordBatchStream> {
        let run_span = self.note_run_span()?;
        self.note(&progress);
        let is_constant = is_constant(&self.plan);
        let env = self.task.runtime_env();
        let queue = &self.queue;
        let place = queue
            .wait_for_place(&self.claimant, self.is_listing, self.id, &progress, &env)
            .await?;
        let (rows, end, traced) = {
            // Operators spawn their tasks on the runtime in which they are started.
            let _cpu = self.runtimes.cpu().enter();
            let (plan, end) = make_runnable(self.plan, &self.task, &self.runtimes)?;
            let traced = traces::is_recorded(&run_span).then(|| (Arc::clone(&plan), run_span));
            (execute_stream(plan, self.task)?, end, traced)
        };
        let stream = QueryStream {
            rows: HeldStream::new(rows, place),
            schema: self.schema,
            traced,
        };
        let (stream, runtimes) = (Box::pin(stream), self.runtimes);
        // Handing a known row over to the CPU runtime and back takes longer than making it.
        Ok(if is_constant {
            let schema = stream.schema();
            let rows = runtimes.stream_here(stream, READER_TIMEOUT, end);
            Box::pin(RecordBatchStreamAdapter::new(schema, rows))
        } else {
            Box::pin(runtimes.stream_on_cpu(stream, READER_TIMEOUT, end))
        })
    }
}

/// The rows of a query, with exactly the announced schema. The stream holds the statement's place.
struct QueryStream {
    rows: HeldStream<SendableRecordBatchStream, RunPlace>,
    schema: SchemaRef,
    /// The plan and the span in which it runs, if its operators are to be in the trace.
    traced: Option<(Arc<dyn ExecutionPlan>, Span)>,
}

impl Drop for QueryStream {
    fn drop(&mut self) {
        if let Some((plan, span)) = &self.traced {
            record_operators(plan, span);
        }
    }
}

impl Stream for QueryStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let schema = Arc::clone(&self.schema);
        self.rows.poll_next_unpin(cx).map(|next| {
            // The planned schema and the schema of the operators may differ in nullability and
            // metadata.
            next.map(|batch| {
                let batch = batch?;
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                Ok(RecordBatch::try_new_with_options(
                    schema, columns, &options,
                )?)
            })
        })
    }
}

impl RecordBatchStream for QueryStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
