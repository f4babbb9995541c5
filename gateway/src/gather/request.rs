//! What the streams of one gather ask their workers for.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use parking_lot::Mutex;

use super::context::QueryContext;
use super::report::Reports;
use super::runtime_filter::{Narrowed, narrowed, place};
use crate::fragment::encode;

/// Keys in the tickets of one gather, all workers together: a list that is short for one worker is long for thousands.
const MAX_KEYS_SENT: usize = 4_000_000;

/// A fragment to be run on several workers.
#[derive(Debug)]
pub struct FragmentRequest {
    /// The query.
    pub query: Arc<QueryContext>,
    /// The encoded fragment.
    pub plan: Bytes,
    /// The fragment's columns.
    pub schema: SchemaRef,
    /// Whether a worker's rows come in the fragment's ordering.
    pub ordered: bool,
    /// So many rows of a worker are of use.
    pub fetch: Option<usize>,
    /// Rows per batch inside operators.
    pub batch_rows: usize,
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
    reports: Reports,
    made: Mutex<Option<Made>>,
}

type Made = Option<Arc<FragmentRequest>>;

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
            reports: Reports::default(),
            made: Mutex::new(None),
        }
    }

    /// The same, whose rows are narrowed by these filters, too, as far as they are known when it is sent.
    pub fn narrowed_by(&self, filters: impl IntoIterator<Item = Arc<dyn PhysicalExpr>>) -> Self {
        Self {
            filters: self.filters.iter().cloned().chain(filters).collect(),
            ..Self::new(
                Arc::clone(&self.plan),
                self.workers,
                self.ordered,
                self.fetch,
            )
        }
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
    /// If the fragment cannot be encoded.
    pub fn request(
        &self,
        query: &Arc<QueryContext>,
        batch_rows: usize,
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
        let plan = match narrowed {
            Narrowed::All => Some(Arc::clone(&self.plan)),
            Narrowed::To(filter) => Some(place(Arc::clone(&self.plan), &filter)?),
            Narrowed::None => None,
        };
        let request = match plan {
            None => None,
            Some(plan) => Some(Arc::new(FragmentRequest {
                query: Arc::clone(query),
                plan: encode::encode(&plan)?.into(),
                schema: self.plan.schema(),
                ordered: self.ordered,
                fetch: self.fetch,
                batch_rows,
                reports: self.reports.clone(),
            })),
        };
        *made = Some(request.clone());
        Ok(request)
    }
}
