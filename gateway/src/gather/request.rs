//! What the streams of one gather ask their workers for.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use parking_lot::Mutex;
use prost::Message;
use volary_flight_proto::fragment::{FragmentId, HashBuckets};
use volary_node::buckets::Buckets;

use super::context::QueryContext;
use super::flow::Flow;
use super::report::Reports;
use super::runtime_filter::{Narrowed, narrowed, place};
use crate::cluster::KnownBy;
use crate::fragment::encode::{EncodedPlan, encode};

/// Workers send a sign of life so many times within the idle timeout.
const SIGNS_OF_LIFE_PER_TIMEOUT: u32 = 4;
/// Keys in the tickets of one gather, all workers together: a list that is short for one worker is long for thousands.
const MAX_KEYS_SENT: usize = 4_000_000;

/// A fragment to be run on several workers.
#[derive(Debug)]
pub struct FragmentRequest {
    /// The query.
    pub query: Arc<QueryContext>,
    /// The fragment's handle.
    pub fragment_id: FragmentId,
    /// The encoded fragment (`volary_flight_proto::fragment::Fragment`).
    pub fragment: Bytes,
    /// The workers that need not be sent it.
    pub known_by: Arc<KnownBy>,
    /// The encoded values of its parameters.
    pub parameters: Bytes,
    /// What its streams may have on their way.
    pub flow: Flow,
    /// The fragment's columns.
    pub schema: SchemaRef,
    /// Where workers are reported.
    pub reports: Reports,
}

/// A fragment, and the request that is made of it once, when the first stream opens: by then the scalar subqueries that it
/// contains have been run, and the joins above it know what they look for.
#[derive(Debug)]
pub struct Fragment {
    plan: Arc<dyn ExecutionPlan>,
    /// How many workers are asked.
    workers: usize,
    ordered: bool,
    fetch: Option<usize>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    buckets: Option<Buckets>,
    /// Gathers of the query, which divide its memory.
    gathers: usize,
    filled: Option<Filled>,
    reports: Reports,
    made: Mutex<Option<Made>>,
}

type Made = Option<Arc<FragmentRequest>>;

/// A fragment that is encoded.
#[derive(Debug)]
pub struct PreparedFragment {
    id: FragmentId,
    message: Bytes,
    encoded: EncodedPlan,
}

impl PreparedFragment {
    /// The statement's parameters that stand in it, once for each time.
    pub fn statement_parameters(&self) -> impl Iterator<Item = usize> {
        let of_statement = self.encoded.of_statement.iter();
        of_statement.map(|(_, number)| *number)
    }
}

/// A fragment that was encoded for another query, with the values of this one.
#[derive(Debug, Clone)]
struct Filled {
    fragment: Arc<PreparedFragment>,
    parameters: Bytes,
}

impl Fragment {
    /// See [`super::GatherExec::new`].
    pub fn new(
        plan: Arc<dyn ExecutionPlan>,
        workers: usize,
        ordered: bool,
        fetch: Option<usize>,
    ) -> Self {
        Self {
            plan,
            workers,
            ordered,
            fetch,
            filters: Vec::new(),
            buckets: None,
            gathers: 1,
            filled: None,
            reports: Reports::default(),
            made: Mutex::new(None),
        }
    }

    /// The same, whose rows come in the order of their buckets.
    pub fn by_bucket(&self, buckets: Buckets) -> Self {
        Self {
            buckets: Some(buckets),
            ..self.narrowed_by([])
        }
    }

    /// The same, as one of so many in a query.
    pub fn one_of(&self, gathers: usize) -> Self {
        Self {
            gathers,
            ..self.narrowed_by([])
        }
    }

    /// The same, whose rows are narrowed by these filters, too, as far as they are known when it is sent.
    pub fn narrowed_by(&self, filters: impl IntoIterator<Item = Arc<dyn PhysicalExpr>>) -> Self {
        Self {
            filters: self.filters.iter().cloned().chain(filters).collect(),
            buckets: self.buckets.clone(),
            gathers: self.gathers,
            filled: self.filled.clone(),
            ..Self::new(
                Arc::clone(&self.plan),
                self.workers,
                self.ordered,
                self.fetch,
            )
        }
    }

    /// The same, encoded before, with these values of the statement's parameters, for so many workers.
    ///
    /// # Errors
    /// If a value cannot be encoded.
    pub fn filled(
        &self,
        fragment: &Arc<PreparedFragment>,
        values: &[ScalarValue],
        workers: usize,
    ) -> Result<Self> {
        let parameters = fragment.encoded.parameters_with(values)?;
        let filled = Filled {
            fragment: Arc::clone(fragment),
            parameters: parameters.encode_to_vec().into(),
        };
        Ok(Self {
            workers,
            filled: Some(filled),
            ..self.narrowed_by([])
        })
    }

    /// How many gathers the query has; at least one.
    pub fn gathers(&self) -> usize {
        self.gathers.max(1)
    }

    /// What runs on the workers.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Whether a worker's rows come in the fragment's ordering.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// So many rows of a worker are of use.
    pub fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    /// The buckets whose order a worker's rows come in.
    pub fn buckets(&self) -> Option<&Buckets> {
        self.buckets.as_ref()
    }

    /// Filters that joins above fill while the query runs.
    pub fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    /// What is known of its rows before it runs.
    ///
    /// # Errors
    /// If an operator cannot say.
    pub fn statistics(&self) -> Result<Arc<Statistics>> {
        StatisticsContext::new().compute(self.plan.as_ref(), &StatisticsArgs::new())
    }

    /// What the workers said.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// The request; `None` if no row of the fragment is of use, so that nobody needs to be asked.
    ///
    /// # Errors
    /// If the fragment cannot be encoded; `RESOURCE_EXHAUSTED` if the query may not hold what is on its way.
    pub fn request(
        &self,
        query: &Arc<QueryContext>,
        task: &TaskContext,
    ) -> Result<Option<Arc<FragmentRequest>>> {
        let mut made = self.made.lock();
        if let Some(made) = made.as_ref() {
            return Ok(made.clone());
        }
        let max_keys = (MAX_KEYS_SENT / self.workers.max(1)).min(query.config.runtime_filter_keys);
        let narrowed = if self.filters.is_empty() {
            Narrowed::All
        } else {
            let statistics = self.statistics()?;
            let narrowed = narrowed(&self.filters, &self.plan.schema(), &statistics, max_keys)?;
            self.reports.narrowed_to(narrowed.to_string());
            narrowed
        };
        let batch_rows = task.session_config().batch_size();
        let filled = match (&self.filled, narrowed) {
            (Some(filled), _) => Some(filled.clone()),
            (None, Narrowed::None) => None,
            (None, Narrowed::All) => Some(self.encoded(query, &self.plan, batch_rows)?),
            (None, Narrowed::To(filter)) => {
                let plan = place(Arc::clone(&self.plan), &filter)?;
                Some(self.encoded(query, &plan, batch_rows)?)
            }
        };
        let request = match filled {
            None => None,
            Some(filled) => Some(Arc::new(self.of_query(query, filled, task)?)),
        };
        *made = Some(request.clone());
        Ok(request)
    }

    /// The fragment as it is planned, encoded. `query` is one with the same settings as those that it is used for.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn prepare(&self, query: &QueryContext, batch_rows: usize) -> Result<PreparedFragment> {
        self.message(query, &self.plan, batch_rows)
    }

    fn encoded(
        &self,
        query: &QueryContext,
        plan: &Arc<dyn ExecutionPlan>,
        batch_rows: usize,
    ) -> Result<Filled> {
        let fragment = self.message(query, plan, batch_rows)?;
        Ok(Filled {
            parameters: fragment.encoded.parameters.encode_to_vec().into(),
            fragment: Arc::new(fragment),
        })
    }

    fn message(
        &self,
        query: &QueryContext,
        plan: &Arc<dyn ExecutionPlan>,
        batch_rows: usize,
    ) -> Result<PreparedFragment> {
        let encoded = encode(plan)?;
        let keep_alive = query.config.idle_timeout / SIGNS_OF_LIFE_PER_TIMEOUT;
        let fragment = volary_flight_proto::fragment::Fragment {
            plan: encoded.plan.clone(),
            ordered: self.ordered,
            fetch: self.fetch.map(|rows| rows as u64),
            batch_rows: to_u32(batch_rows),
            keep_alive_ms: u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX),
            with_plan_metrics: query.with_plan_metrics,
            time_zone: query.time_zone.clone(),
            buckets: self.buckets.as_ref().map(|buckets| HashBuckets {
                columns: buckets
                    .columns()
                    .iter()
                    .map(|column| to_u32(*column))
                    .collect(),
                partitions: to_u32(buckets.partitions()),
                rounds: to_u32(buckets.rounds()),
            }),
        };
        let message = Bytes::from(fragment.encode_to_vec());
        Ok(PreparedFragment {
            id: FragmentId::of(&message),
            message,
            encoded,
        })
    }

    fn of_query(
        &self,
        query: &Arc<QueryContext>,
        filled: Filled,
        task: &TaskContext,
    ) -> Result<FragmentRequest> {
        let fragment = &filled.fragment;
        Ok(FragmentRequest {
            query: Arc::clone(query),
            fragment_id: fragment.id,
            fragment: fragment.message.clone(),
            known_by: query.cluster.known_by(fragment.id),
            parameters: filled.parameters,
            flow: Flow::reserve(
                self.workers,
                self.gathers(),
                query.memory,
                &query.config,
                task.memory_pool(),
            )?,
            schema: self.plan.schema(),
            reports: self.reports.clone(),
        })
    }
}

/// Positions and counts are far below 2³².
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
