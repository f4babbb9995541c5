//! A planned query, and the stream of its rows.

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
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{Stream, StreamExt};
use volary_catalog::access::Access;
use volary_flight_proto::ids::{QueryId, WorkerId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, Result};
use volary_gather::InTurns;
use volary_gather::announced::Announced;
use volary_gather::passed_on::PassedOn;
use volary_node::Runtimes;
use volary_node::admission::Place;
use volary_node::run::runnable;
use volary_node::runtimes::CpuStream;
use volary_planner::gather::{GatherExec, QueryContext};

use super::columns::fingerprint_of;
use super::gate::Gate;
use super::session::Claimant;
use crate::statements::Noted;

/// So many workers' streams are opened and read by whoever sends their messages on, without a hand-over. To open thousands would keep others waiting.
const MOST_READ_INLINE: usize = 16;

/// How long a client may read nothing before its query is ended.
pub(crate) const READER_TIMEOUT: Duration = Duration::from_secs(600);

/// What the planning of a query found, for one who plans it again.
#[derive(Debug, Clone, Default)]
pub struct Planned {
    /// What it sees; `None` for what is committed now.
    pub snapshot: Option<Snapshot>,
    /// The tables and views of the schema `public` that it reads, by name: a table's id, the fingerprint of a view's text.
    pub reads: BTreeMap<String, u64>,
    /// The fingerprint of its columns; `None` if it is not known.
    pub columns: Option<u64>,
}

/// A query that is planned. Dropping it, or the stream, ends it on all nodes.
#[derive(Debug)]
pub struct Query {
    /// Its id.
    pub id: QueryId,
    /// Its columns.
    pub schema: SchemaRef,
    /// What it sees.
    pub snapshot: Snapshot,
    /// What it reads, and as of which version: see [`Planned`].
    pub reads: BTreeMap<String, u64>,
    /// Who might do what when it was planned.
    pub access: Arc<Access>,
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) task: Arc<TaskContext>,
    pub(super) runtimes: Runtimes,
    pub(super) planned_in: Duration,
    pub(super) gate: Gate,
    pub(super) claimant: Claimant,
    /// Whether it only lists what the gateway knows.
    pub(super) is_listing: bool,
}

impl Query {
    /// Where its place is.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What its columns are told apart by: see [`Planned`].
    pub fn columns(&self) -> u64 {
        fingerprint_of(&self.schema)
    }

    /// A ticket for each worker, if the query's rows are those of its workers, as they are and in any order: see [`GatherExec::parts`].
    ///
    /// # Errors
    /// If what workers run cannot be encoded.
    pub fn parts(&self) -> Result<Option<Vec<FragmentTicket>>> {
        let Some(gather) = self.gather() else {
            return Ok(None);
        };
        let (query, config) = (QueryContext::of(&self.task)?, self.task.session_config());
        Ok(gather.parts(&query, config.batch_size())?)
    }

    /// The query of the rows for which one of those tickets is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the ticket is none.
    pub fn of_part(self, part: FragmentTicket) -> Result<Self> {
        let others = self
            .gather()
            .map(|gather| gather.others_than(WorkerId(part.worker_id)));
        let gather = GatherExec::of_part(part, self.plan.schema(), others.unwrap_or_default())?;
        Ok(Self {
            plan: Arc::new(gather),
            ..self
        })
    }

    /// Notes how it was planned, of a query that does not run here.
    pub fn note(&self, noted: &Noted) {
        noted.planned(&self.plan, self.planned_in);
    }

    /// The gather that is the whole query, if it is one.
    fn gather(&self) -> Option<&GatherExec> {
        let mut plan = &self.plan;
        while let Some(cooperative) = plan.downcast_ref::<CooperativeExec>() {
            plan = cooperative.input();
        }
        plan.downcast_ref::<GatherExec>()
    }

    /// Whether its rows are those of its workers as they are, so that a client's messages may be theirs.
    pub fn has_workers_rows_as_they_are(&self) -> bool {
        self.gather().is_some_and(GatherExec::has_rows_as_they_are)
    }

    /// Waits for a place and runs the query, which is `noted`: the messages of its workers, for a client that was announced this. Where the rows have to pass
    /// operators here, there are none. Deadlines are the caller's.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait; `INTERNAL` if the workers' rows are not those of the query.
    pub async fn start_passing_on(
        self,
        noted: Noted,
        announced: &Announced,
    ) -> Result<impl Stream<Item = Result<PassedOn>> + Send + use<>> {
        noted.planned(&self.plan, self.planned_in);
        let streams = match self.gather() {
            Some(gather) => gather.passed_on(announced, &self.task)?,
            None => None,
        };
        let streams = streams.ok_or_else(|| {
            Error::internal("the rows of a query were to be passed on that are put together here")
        })?;
        let env = self.task.runtime_env();
        let place = self
            .gate
            .enter(&self.claimant, false, self.id, &noted, &env)
            .await?;
        let is_many = streams.len() > MOST_READ_INLINE;
        let messages = InTurns::new(streams);
        let messages = if is_many {
            let handed = self.runtimes.read_on_cpu(messages, READER_TIMEOUT);
            handed.boxed()
        } else {
            messages.boxed()
        };
        Ok(messages.map(move |message| {
            let _held = &place;
            message
        }))
    }

    /// Waits for a place and runs the query, which is `noted`. The stream's batches have exactly `self.schema`. Deadlines are the caller's, who has
    /// those of the call that the query belongs to.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub async fn start(self, noted: Noted) -> Result<CpuStream> {
        noted.planned(&self.plan, self.planned_in);
        let env = self.task.runtime_env();
        let gate = &self.gate;
        let place = gate
            .enter(&self.claimant, self.is_listing, self.id, &noted, &env)
            .await?;
        let (rows, end) = {
            // Operators spawn their tasks where they are started.
            let _cpu = self.runtimes.cpu().enter();
            let (plan, end) = runnable(self.plan, &self.task, &self.runtimes)?;
            (execute_stream(plan, self.task)?, end)
        };
        let stream = QueryStream {
            rows,
            schema: self.schema,
            _place: place,
        };
        Ok(self
            .runtimes
            .stream_on_cpu(Box::pin(stream), READER_TIMEOUT, end))
    }
}

/// Rows with exactly the schema that was announced, and the place of their statement among those that run.
struct QueryStream {
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
    _place: Place,
}

impl Stream for QueryStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let schema = Arc::clone(&self.schema);
        self.rows.poll_next_unpin(cx).map(|next| {
            // What was planned and what operators declare may differ in nullability and metadata.
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
