use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use volary_exec::buckets::Buckets;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::ticket::FragmentTicket;
use volary_gather::announced_schema::AnnouncedSchema;
use volary_gather::forwarded::ForwardedStream;
use volary_gather::merge::GatherSource;
use volary_gather::report::StreamReports;
use volary_gather::stream::{FromMessage, WorkerStream, worker_stream};
use volary_gather::{MergedStreams, Window, WorkerTarget};

use super::context::QueryContext;
use super::fragment_request::FragmentRequest;
use super::fragment_spec::{FragmentSpec, PreparedFragment};
use super::relay_plan::RelayPlan;
use super::runtime_filter::resolved_keys;
use super::shard_counts::ScannedTables;

/// Runs a fragment on its workers. Returns the union of their rows, or merges them if the fragment
/// is ordered.
///
/// The fragment is not a child of the node, because optimizer rules that run after the cut must not
/// look into it.
#[derive(Debug)]
pub struct GatherExec {
    request: Arc<FragmentRequest>,
    targets: Vec<WorkerTarget>,
    end_reason: Cow<'static, str>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GatherExec {
    /// Builds a gather. `worker_plan` is the fragment as workers see it. If it has an ordering, the
    /// rows of each worker arrive in that order. `fetch` is the maximum number of rows that are
    /// needed from each worker. `end_reason` says why the fragment is not larger, for EXPLAIN.
    pub fn new(
        fragment: Arc<dyn ExecutionPlan>,
        worker_plan: &Arc<dyn ExecutionPlan>,
        targets: Vec<WorkerTarget>,
        fetch: Option<usize>,
        partitions: usize,
        end_reason: Cow<'static, str>,
    ) -> Self {
        let properties = PlanProperties::new(
            merged_properties(worker_plan),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let ordered = worker_plan.output_ordering().is_some();
        let spec = FragmentSpec::new(fragment, targets.len(), ordered, fetch);
        Self {
            request: Arc::new(FragmentRequest::new(spec)),
            targets,
            end_reason,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Returns the plan that runs on the workers.
    pub fn fragment(&self) -> &Arc<dyn ExecutionPlan> {
        self.spec().plan()
    }

    /// Returns the workers that run the fragment.
    pub fn targets(&self) -> &[WorkerTarget] {
        &self.targets
    }

    /// Returns the reports of the workers. They are complete when all partitions have ended.
    pub fn reports(&self) -> &StreamReports {
        self.request.reports()
    }

    /// Returns the relays, if the gather has any.
    pub fn relays(&self) -> Option<&RelayPlan> {
        self.spec().relays()
    }

    /// Returns the maximum number of rows that are needed from each worker.
    pub(crate) fn fetch_per_worker(&self) -> Option<usize> {
        self.spec().fetch()
    }

    /// Returns why the fragment is not larger.
    pub fn end_reason(&self) -> &str {
        &self.end_reason
    }

    /// Returns whether the workers send their rows in the order of buckets.
    pub(crate) fn has_buckets(&self) -> bool {
        self.spec().buckets().is_some()
    }

    /// Returns the order in which the rows arrive, or `None` if their order is unknown.
    pub fn ordering(&self) -> Option<&LexOrdering> {
        let ordering = self.properties.output_ordering();
        ordering.filter(|_| self.spec().is_ordered())
    }

    /// Returns whether the order of the rows is unknown.
    pub(crate) fn is_unordered(&self) -> bool {
        !self.spec().is_ordered()
    }

    /// Returns the same gather, whose workers send their rows in the order of their buckets. It
    /// must be read with [`GatherSource::open`].
    #[must_use]
    pub(crate) fn with_buckets(&self, buckets: Buckets) -> Self {
        self.with_spec(self.spec().with_buckets(buckets))
    }

    /// Returns the same gather, whose rows are merged by relays before they reach the gateway.
    #[must_use]
    pub(crate) fn with_relays(&self, relays: RelayPlan) -> Self {
        self.with_spec(self.spec().with_relays(relays))
    }

    /// Returns the same gather with filters of joins. When it starts, its workers are sent the keys
    /// that the joins know by then. Returns `None` if the gather would not change. Either it has
    /// all these filters already, or it has a limit, which chooses rows before the join sees them.
    pub(crate) fn with_filters(&self, filters: Vec<Arc<dyn PhysicalExpr>>) -> Option<Self> {
        if self.spec().fetch().is_some() {
            return None;
        }
        let has = self.spec().filters().iter();
        let has: HashSet<_> = has.map(|filter| filter.expression_id()).collect();
        let new = |filter: &Arc<dyn PhysicalExpr>| !has.contains(&filter.expression_id());
        let filters: Vec<_> = filters.into_iter().filter(new).collect();
        (!filters.is_empty()).then(|| self.with_spec(self.spec().with_filters(filters)))
    }

    /// Returns the same gather as one of `gathers` gathers of a query, which share its memory.
    #[must_use]
    pub(crate) fn with_gather_count(&self, gathers: usize) -> Self {
        self.with_spec(self.spec().with_gather_count(gathers))
    }

    /// Returns how many gathers the query has, which is at least one.
    pub(crate) fn gather_count(&self) -> usize {
        self.spec().gather_count()
    }

    /// Encodes the fragment for use in [`Self::with_parameters`].
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub fn prepare(&self, query: &QueryContext, batch_rows: usize) -> Result<PreparedFragment> {
        self.spec().prepare(query, batch_rows)
    }

    /// Returns whether the workers send the rows of the fragment unchanged. No join above narrows
    /// them, and they come neither by bucket nor through relays.
    pub fn is_plain(&self) -> bool {
        let spec = self.spec();
        spec.filters().is_empty() && spec.buckets().is_none() && spec.relays().is_none()
    }

    /// Returns the same gather for another query, with these values of the statement's parameters
    /// and these workers.
    ///
    /// # Errors
    /// An error if a value cannot be encoded.
    pub(crate) fn with_parameters(
        &self,
        fragment: &Arc<PreparedFragment>,
        values: &[ScalarValue],
        targets: Vec<WorkerTarget>,
    ) -> Result<Self> {
        let spec = self.spec();
        let spec = spec.with_parameters(fragment, values, targets.len())?;
        Ok(Self {
            targets,
            ..self.with_spec(spec)
        })
    }

    /// Returns a ticket for each worker, with which another reader gets the rows of that worker.
    /// The rows of all tickets together are the rows of the gather. Returns `None` if the gather
    /// narrows, merges or orders the rows of its workers.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub fn parts(
        &self,
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<Option<Vec<FragmentTicket>>> {
        if !self.passes_rows_unchanged() {
            return Ok(None);
        }
        let parts = self.spec().parts(query, &self.targets, batch_rows)?;
        Ok(Some(parts))
    }

    /// Returns whether the gather returns the rows of its workers without narrowing, merging or
    /// ordering them.
    pub fn passes_rows_unchanged(&self) -> bool {
        let is_one = self.targets.len() == 1;
        let is_any_order = self.is_unordered() && self.fetch_per_worker().is_none();
        self.is_plain() && (is_one || is_any_order)
    }

    /// Returns a stream for each worker with messages in the form that was announced to a client.
    /// Returns `None` if the gather narrows, merges or orders the rows of its workers.
    ///
    /// # Errors
    /// An error if the task does not belong to a query.
    pub fn forwarded_streams(
        &self,
        announced: &AnnouncedSchema,
        task: &Arc<TaskContext>,
    ) -> Result<Option<Vec<ForwardedStream>>> {
        if !self.passes_rows_unchanged() {
            return Ok(None);
        }
        let streams = self.streams(&self.targets, task, Some(announced))?;
        Ok(Some(streams))
    }

    /// Returns a stream for each of these workers.
    fn streams<T: FromMessage>(
        &self,
        targets: &[WorkerTarget],
        task: &Arc<TaskContext>,
        announced: Option<&AnnouncedSchema>,
    ) -> Result<Vec<BoxStream<'static, volary_flight_proto::Result<T>>>> {
        let query = QueryContext::from_task(task)?;
        let tables = ScannedTables::from_fragment(self.spec().plan(), &query.tables)?;
        // A key of a table with several shards was asked for. Its rows are few in most cases.
        let widest = match &self.targets[..] {
            [target] if tables.is_one_shard_of_several(target) => Window::Middle,
            _ => Window::Wide,
        };
        let streams = targets.iter().map(|target| {
            let (request, query) = (Arc::clone(&self.request), Arc::clone(&query));
            let (task, announced) = (Arc::clone(task), announced.cloned());
            let request = move || Ok(request.get(&query, &task, announced.as_ref(), widest)?);
            worker_stream(request, tables.with_counts(target))
        });
        Ok(streams.collect())
    }

    /// Returns the other workers that can run the same part of the fragment as this one.
    pub fn replicas_of(&self, worker: WorkerId) -> Vec<WorkerId> {
        let can_both =
            |target: &&WorkerTarget| target.worker == worker || target.replicas.contains(&worker);
        let Some(target) = self.targets.iter().find(can_both) else {
            return Vec::new();
        };
        let all = std::iter::once(target.worker).chain(target.replicas.iter().copied());
        all.filter(|other| *other != worker).collect()
    }

    /// Returns the gather of one ticket of [`Self::parts`], for rows with this schema. `others` are
    /// the other workers that can run the same part.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the ticket does not contain its fragment.
    pub fn from_part(
        part: FragmentTicket,
        schema: SchemaRef,
        others: Vec<WorkerId>,
    ) -> Result<Self> {
        let target = WorkerTarget {
            worker: WorkerId(part.worker_id),
            replicas: others,
            scans: part.scans.clone(),
            members: Vec::new(),
        };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema));
        let whole = Self::new(
            Arc::clone(&plan),
            &plan,
            vec![target],
            None,
            1,
            "it is a part of a query".into(),
        );
        Ok(whole.with_spec(whole.spec().with_part(part)?))
    }

    fn spec(&self) -> &FragmentSpec {
        self.request.spec()
    }

    /// Returns a copy of the gather with another fragment. The copy has sent no request yet.
    fn with_spec(&self, spec: FragmentSpec) -> Self {
        Self {
            request: Arc::new(FragmentRequest::new(spec)),
            targets: self.targets.clone(),
            end_reason: self.end_reason.clone(),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Returns the number of partitions that read the workers.
    pub fn partitions(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }

    /// Returns the targets that a partition reads: an equal part of all workers, or of the relays.
    fn targets_of_partition(
        &self,
        partition: usize,
        query: &QueryContext,
    ) -> Cow<'_, [WorkerTarget]> {
        let (targets, partitions) = (&self.targets, self.partitions());
        match self.spec().relays() {
            None => WorkerTarget::part_for_reader(targets, partition, partitions).into(),
            Some(relays) => relays
                .targets_of_reader(targets, partition, partitions, query.peers.as_ref())
                .into(),
        }
    }
}

impl GatherSource for GatherExec {
    fn open(&self, partition: usize, task: &Arc<TaskContext>) -> Result<Vec<WorkerStream>> {
        let query = QueryContext::from_task(task)?;
        self.streams(&self.targets_of_partition(partition, &query), task, None)
    }

    fn memory(&self, task: &TaskContext) -> Result<usize> {
        Ok(QueryContext::from_task(task)?.memory / self.gather_count())
    }
}

/// Returns the properties of a fragment's rows after its partitions and workers were merged by its
/// ordering. Equalities between columns and this one ordering still hold. A constant that differs
/// between partitions no longer holds, and other orderings hold only within a partition.
pub(crate) fn merged_properties(fragment: &Arc<dyn ExecutionPlan>) -> EquivalenceProperties {
    let mut merged = fragment.equivalence_properties().clone();
    merged.clear_per_partition_constants();
    merged.clear_orderings();
    if let Some(ordering) = fragment.output_ordering() {
        merged.add_ordering(ordering.iter().cloned());
    }
    merged
}

impl DisplayAs for GatherExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatherExec: workers={}", self.targets.len())?;
        if self.spec().relays().is_some() {
            write!(f, ", relays={}", self.spec().stream_count())?;
        }
        if self.spec().is_ordered() {
            f.write_str(", ordered")?;
        }
        if let Some(fetch) = self.spec().fetch() {
            write!(f, ", fetch={fetch}")?;
        }
        if let Some(buckets) = self.spec().buckets() {
            write!(f, ", by bucket of columns {:?}", buckets.columns())?;
        }
        if !self.spec().filters().is_empty() {
            let keys = self.spec().filters().iter().flat_map(resolved_keys);
            let keys: Vec<_> = keys.map(ToString::to_string).collect();
            write!(f, ", narrowed at run time by [{}]", keys.join(", "))?;
        }
        write!(f, ", ends because {}", self.end_reason)
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
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // A join fills its filter only if it finds the filter here.
        for filter in self.spec().filters() {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let offered = result.parent_filters.iter().map(|offer| &offer.filter);
        let dynamic: Vec<_> = offered
            .filter(|filter| filter.is::<DynamicFilterPhysicalExpr>())
            .cloned()
            .collect();
        // The gather does not promise to leave out every row that the filters leave out.
        let answer = FilterPushdownPropagation::all_unsupported(result);
        if phase != FilterPushdownPhase::Post {
            return Ok(answer);
        }
        Ok(match self.with_filters(dynamic) {
            Some(narrowed) => answer.with_updated_node(Arc::new(narrowed)),
            None => answer,
        })
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let streams = self.open(partition, &context)?.into_iter();
        let streams: Vec<_> = streams
            .map(|stream| stream.map_ok(|rows| rows.batch).boxed())
            .collect();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (Some(ordering), true) = (self.ordering(), streams.len() > 1) else {
            let rows = MergedStreams::new(streams).map_err(Into::into);
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
            .with_batch_size(context.session_config().batch_size())
            .with_fetch(self.spec().fetch())
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
        let statistics = self.spec().statistics()?.as_ref().clone();
        Ok(Arc::new(statistics.to_inexact()))
    }
}
