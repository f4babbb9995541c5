//! The plan node.

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
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::ticket::FragmentTicket;
use volary_gather::announced::Announced;
use volary_gather::merge::Source;
use volary_gather::passed_on::PassedOnStream;
use volary_gather::report::Reports;
use volary_gather::stream::{FromMessage, WorkerStream, worker_stream};
use volary_gather::{InTurns, Target};
use volary_node::buckets::Buckets;

use super::contents::ScannedTables;
use super::context::QueryContext;
use super::fragment::{Fragment, PreparedFragment};
use super::relays::Relays;
use super::runtime_filter::known_keys;

/// Runs a fragment on its workers and gives the union of their rows, or their merge where the fragment is ordered.
///
/// The fragment is no child: optimizer rules that run after the cut must not look into it.
#[derive(Debug)]
pub struct GatherExec {
    fragment: Arc<Fragment>,
    targets: Vec<Target>,
    ends_because: Cow<'static, str>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GatherExec {
    /// `on_worker` is the fragment as workers see it: if that has an ordering, each worker's rows come in it. `fetch`: so many rows
    /// of a worker are of use.
    /// `ends_because`: why the fragment is not larger, for EXPLAIN.
    pub fn new(
        fragment: Arc<dyn ExecutionPlan>,
        on_worker: &Arc<dyn ExecutionPlan>,
        targets: Vec<Target>,
        fetch: Option<usize>,
        partitions: usize,
        ends_because: Cow<'static, str>,
    ) -> Self {
        let properties = PlanProperties::new(
            what_holds_of_merged(on_worker),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let ordered = on_worker.output_ordering().is_some();
        Self {
            fragment: Arc::new(Fragment::new(fragment, targets.len(), ordered, fetch)),
            targets,
            ends_because,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// What runs on the workers.
    pub fn fragment(&self) -> &Arc<dyn ExecutionPlan> {
        self.fragment.plan()
    }

    /// The workers that are asked.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// What the workers said; complete when all partitions have ended.
    pub fn reports(&self) -> &Reports {
        self.fragment.reports()
    }

    /// Who merges the rows of others, if anybody does.
    pub fn relays(&self) -> Option<&Relays> {
        self.fragment.relays()
    }

    /// So many rows of a worker are of use.
    pub fn fetch_per_worker(&self) -> Option<usize> {
        self.fragment.fetch()
    }

    /// Why the fragment is not larger.
    pub fn ends_because(&self) -> &str {
        &self.ends_because
    }

    /// Whether its workers send their rows in the order of buckets.
    pub fn is_by_bucket(&self) -> bool {
        self.fragment.buckets().is_some()
    }

    /// The order in which its rows come; `None` if nothing is known of it.
    pub fn ordering(&self) -> Option<&LexOrdering> {
        let ordering = self.properties.output_ordering();
        ordering.filter(|_| self.fragment.is_ordered())
    }

    /// Whether nothing is known of the order of its rows.
    pub fn has_no_order(&self) -> bool {
        !self.fragment.is_ordered()
    }

    /// The same, whose workers send their rows in the order of their buckets: to be read by [`Source::open`].
    #[must_use]
    pub fn by_bucket(&self, buckets: Buckets) -> Self {
        self.with_fragment(self.fragment.by_bucket(buckets))
    }

    /// The same, whose rows are merged by relays before they come.
    #[must_use]
    pub fn relayed(&self, relays: Relays) -> Self {
        self.with_fragment(self.fragment.relayed(relays))
    }

    /// The same, whose workers are sent what these filters of joins say by then. `None` if that is as it was: it has all of them already,
    /// or has a limit, and the rows that this leaves are chosen before the join sees them.
    pub fn narrowed_by(&self, filters: Vec<Arc<dyn PhysicalExpr>>) -> Option<Self> {
        if self.fragment.fetch().is_some() {
            return None;
        }
        let has = self.fragment.filters().iter();
        let has: HashSet<_> = has.map(|filter| filter.expression_id()).collect();
        let new = |filter: &Arc<dyn PhysicalExpr>| !has.contains(&filter.expression_id());
        let filters: Vec<_> = filters.into_iter().filter(new).collect();
        (!filters.is_empty()).then(|| self.with_fragment(self.fragment.narrowed_by(filters)))
    }

    /// The same, as one of so many in a query: they divide its memory.
    #[must_use]
    pub fn one_of(&self, gathers: usize) -> Self {
        self.with_fragment(self.fragment.one_of(gathers))
    }

    /// How many gathers the query has; at least one.
    pub fn gathers(&self) -> usize {
        self.fragment.gathers()
    }

    /// The fragment, encoded: see [`Self::filled`].
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn prepare(&self, query: &QueryContext, batch_rows: usize) -> Result<PreparedFragment> {
        self.fragment.prepare(query, batch_rows)
    }

    /// Whether its workers are asked for rows as they are: no joins above narrow them, they come in no buckets, and by no relays.
    pub fn is_plain(&self) -> bool {
        let fragment = &self.fragment;
        fragment.filters().is_empty() && fragment.buckets().is_none() && fragment.relays().is_none()
    }

    /// The same gather for another query: with these values of the statement's parameters, from these workers.
    ///
    /// # Errors
    /// If a value cannot be encoded.
    pub fn filled(
        &self,
        fragment: &Arc<PreparedFragment>,
        values: &[ScalarValue],
        targets: Vec<Target>,
    ) -> Result<Self> {
        let fragment = self.fragment.filled(fragment, values, targets.len())?;
        Ok(Self {
            targets,
            ..self.with_fragment(fragment)
        })
    }

    /// A ticket for each of its workers, with which somebody else has that worker's rows; all of them together are the gather's. `None` if
    /// its rows are narrowed, merged or put in order as they come here.
    ///
    /// # Errors
    /// If the fragment cannot be encoded.
    pub fn parts(
        &self,
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<Option<Vec<FragmentTicket>>> {
        if !self.has_rows_as_they_are() {
            return Ok(None);
        }
        let parts = self.fragment.parts(query, &self.targets, batch_rows)?;
        Ok(Some(parts))
    }

    /// Whether its rows are those of its workers, neither narrowed nor merged nor put in order as they come here.
    pub fn has_rows_as_they_are(&self) -> bool {
        let is_one = self.targets.len() == 1;
        let is_any_order = self.has_no_order() && self.fetch_per_worker().is_none();
        self.is_plain() && (is_one || is_any_order)
    }

    /// Its rows as its workers would send them to a client who was announced this, a stream for each worker. `None` if they are not those of its workers.
    ///
    /// # Errors
    /// If the query is not known.
    pub fn passed_on(
        &self,
        announced: &Announced,
        task: &Arc<TaskContext>,
    ) -> Result<Option<Vec<PassedOnStream>>> {
        if !self.has_rows_as_they_are() {
            return Ok(None);
        }
        let streams = self.streams(&self.targets, task, Some(announced))?;
        Ok(Some(streams))
    }

    /// A stream for each of these workers.
    fn streams<T: FromMessage>(
        &self,
        asked: &[Target],
        task: &Arc<TaskContext>,
        announced: Option<&Announced>,
    ) -> Result<Vec<BoxStream<'static, volary_flight_proto::Result<T>>>> {
        let query = QueryContext::of(task)?;
        let tables = ScannedTables::of(self.fragment.plan(), &query.tables)?;
        let streams = asked.iter().map(|target| {
            let (fragment, query) = (Arc::clone(&self.fragment), Arc::clone(&query));
            let (task, announced) = (Arc::clone(task), announced.cloned());
            let request = move || Ok(fragment.request(&query, &task, announced.as_ref())?);
            worker_stream(request, tables.counted(target))
        });
        Ok(streams.collect())
    }

    /// The workers that can do the same as this one.
    pub fn others_than(&self, worker: WorkerId) -> Vec<WorkerId> {
        let can_both =
            |target: &&Target| target.worker == worker || target.others.contains(&worker);
        let Some(target) = self.targets.iter().find(can_both) else {
            return Vec::new();
        };
        let all = std::iter::once(target.worker).chain(target.others.iter().copied());
        all.filter(|other| *other != worker).collect()
    }

    /// Of one of those tickets, for rows with this schema. `others`: the workers that can do the same.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the ticket does not have its fragment.
    pub fn of_part(part: FragmentTicket, schema: SchemaRef, others: Vec<WorkerId>) -> Result<Self> {
        let target = Target {
            worker: WorkerId(part.worker_id),
            others,
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
        Ok(whole.with_fragment(whole.fragment.of_part(part)?))
    }

    fn with_fragment(&self, fragment: Fragment) -> Self {
        Self {
            fragment: Arc::new(fragment),
            targets: self.targets.clone(),
            ends_because: self.ends_because.clone(),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// How many partitions read the workers.
    pub fn partitions(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }

    /// Who is asked by a partition: an equal part of the workers, or of the relays.
    fn asked_by(&self, partition: usize, query: &QueryContext) -> Cow<'_, [Target]> {
        let (targets, partitions) = (&self.targets, self.partitions());
        match self.fragment.relays() {
            None => Target::part_of(targets, partition, partitions).into(),
            Some(relays) => relays
                .of_reader(targets, partition, partitions, query.peers.as_ref())
                .into(),
        }
    }
}

impl Source for GatherExec {
    fn open(&self, partition: usize, task: &Arc<TaskContext>) -> Result<Vec<WorkerStream>> {
        let query = QueryContext::of(task)?;
        self.streams(&self.asked_by(partition, &query), task, None)
    }

    fn memory(&self, task: &TaskContext) -> Result<usize> {
        Ok(QueryContext::of(task)?.memory / self.gathers())
    }
}

/// What holds of a fragment's rows when partitions and workers are merged by its ordering: equalities between columns, and this one
/// ordering. A constant that differs between partitions is none any more, and another ordering holds within a partition only.
pub fn what_holds_of_merged(fragment: &Arc<dyn ExecutionPlan>) -> EquivalenceProperties {
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
        if self.fragment.relays().is_some() {
            write!(f, ", relays={}", self.fragment.streams())?;
        }
        if self.fragment.is_ordered() {
            f.write_str(", ordered")?;
        }
        if let Some(fetch) = self.fragment.fetch() {
            write!(f, ", fetch={fetch}")?;
        }
        if let Some(buckets) = self.fragment.buckets() {
            write!(f, ", by bucket of columns {:?}", buckets.columns())?;
        }
        if !self.fragment.filters().is_empty() {
            let keys = self.fragment.filters().iter().flat_map(known_keys);
            let keys: Vec<_> = keys.map(ToString::to_string).collect();
            write!(f, ", narrowed at run time by [{}]", keys.join(", "))?;
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
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // A join fills its filter only if it finds it here.
        for filter in self.fragment.filters() {
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
        // No promise that no other rows come.
        let answer = FilterPushdownPropagation::all_unsupported(result);
        if phase != FilterPushdownPhase::Post {
            return Ok(answer);
        }
        Ok(match self.narrowed_by(dynamic) {
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
            let rows = InTurns::new(streams).map_err(Into::into);
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
            .with_fetch(self.fragment.fetch())
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
        let statistics = self.fragment.statistics()?.as_ref().clone();
        Ok(Arc::new(statistics.to_inexact()))
    }
}
