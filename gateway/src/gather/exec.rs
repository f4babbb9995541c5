//! The plan node.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{TryStreamExt, stream};
use parking_lot::Mutex;
use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::ids::WorkerId;

use super::context::QueryContext;
use super::report::Reports;
use super::stream::{FragmentRequest, worker_stream};
use crate::planning::encode;

/// A worker and the shards that each scan of the fragment covers there.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The worker.
    pub worker: WorkerId,
    /// By the scan's ordinal.
    pub scans: Vec<ScanShards>,
}

/// Runs a fragment on its workers and gives the union of their rows, or their merge where the fragment is ordered.
///
/// The fragment is no child: optimizer rules that run after the cut must not look into it.
#[derive(Debug)]
pub struct GatherExec {
    fragment: Arc<dyn ExecutionPlan>,
    targets: Vec<Target>,
    ordered: bool,
    fetch: Option<usize>,
    ends_because: Cow<'static, str>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    reports: Reports,
    request: Mutex<Option<Arc<FragmentRequest>>>,
}

impl GatherExec {
    /// `ordered`: each worker's rows come in the fragment's ordering. `fetch`: so many rows of a worker are of use.
    /// `ends_because`: why the fragment is not larger, for EXPLAIN.
    pub fn new(
        fragment: Arc<dyn ExecutionPlan>,
        targets: Vec<Target>,
        ordered: bool,
        fetch: Option<usize>,
        partitions: usize,
        ends_because: Cow<'static, str>,
    ) -> Self {
        let properties = PlanProperties::new(
            // The order of rows within a partition is the fragment's; equalities between columns hold as they do there.
            fragment.equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            fragment,
            targets,
            ordered,
            fetch,
            ends_because,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            reports: Reports::default(),
            request: Mutex::new(None),
        }
    }

    /// What runs on the workers.
    pub fn fragment(&self) -> &Arc<dyn ExecutionPlan> {
        &self.fragment
    }

    /// The workers that are asked.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// What the workers said; complete when all partitions have ended.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Why the fragment is not larger.
    pub fn ends_because(&self) -> &str {
        &self.ends_because
    }

    /// An equal part of the workers.
    fn targets_of(&self, partition: usize) -> &[Target] {
        let partitions = self.properties.output_partitioning().partition_count();
        let start = partition * self.targets.len() / partitions;
        let end = (partition + 1) * self.targets.len() / partitions;
        &self.targets[start..end]
    }

    /// The encoded fragment, made once for all partitions. Scalar subqueries that it contains have been run by now.
    fn request(
        &self,
        query: &Arc<QueryContext>,
        batch_rows: usize,
    ) -> Result<Arc<FragmentRequest>> {
        let mut request = self.request.lock();
        if let Some(request) = request.as_ref() {
            return Ok(Arc::clone(request));
        }
        let made = Arc::new(FragmentRequest {
            query: Arc::clone(query),
            plan: encode::encode(&self.fragment)?.into(),
            schema: self.fragment.schema(),
            ordered: self.ordered,
            fetch: self.fetch,
            batch_rows,
            reports: self.reports.clone(),
        });
        *request = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl DisplayAs for GatherExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatherExec: workers={}", self.targets.len())?;
        if self.ordered {
            f.write_str(", ordered")?;
        }
        if let Some(fetch) = self.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        write!(f, ", ends because {}", self.ends_because)
    }
}

impl ExecutionPlan for GatherExec {
    fn name(&self) -> &'static str {
        "GatherExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let query = QueryContext::of(&context)?;
        let batch_rows = context.session_config().batch_size();
        let request = self.request(&query, batch_rows)?;
        let schema = self.schema();
        let streams: Vec<_> = self
            .targets_of(partition)
            .iter()
            .map(|target| worker_stream(Arc::clone(&request), target.clone()))
            .collect();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let ordering = self.properties.output_ordering().filter(|_| self.ordered);
        let (Some(ordering), true) = (ordering, streams.len() > 1) else {
            let rows = stream::select_all(streams).map_err(Into::into);
            let counted = rows.inspect_ok(move |batch: &RecordBatch| {
                metrics.record_output(batch.num_rows());
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, counted)));
        };
        let streams = streams
            .into_iter()
            .map(|stream| {
                let stream = stream.map_err(Into::into);
                Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), stream))
                    as SendableRecordBatchStream
            })
            .collect();
        let reservation =
            MemoryConsumer::new(format!("Gather[{partition}]")).register(context.memory_pool());
        StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(schema)
            .with_expressions(ordering)
            .with_metrics(metrics)
            .with_batch_size(batch_rows)
            .with_fetch(self.fetch)
            .with_reservation(reservation)
            .build()
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let statistics = StatisticsContext::new()
            .compute(self.fragment.as_ref(), &StatisticsArgs::new())?
            .as_ref()
            .clone();
        Ok(Arc::new(statistics.to_inexact()))
    }
}
