use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::TryStreamExt;
use parking_lot::Mutex;

use crate::connections::Window;
use crate::flow::FlowControl;
use crate::merge::GatherSource;
use crate::merged_streams::MergedStreams;
use crate::request::{GatherRequest, RequestSpec};
use crate::stream::{WorkerStream, worker_stream};
use crate::target::WorkerTarget;

/// The leaf of the plan that a relay runs. It reads the rows of the relay's members. A gateway
/// plans with this leaf, too; there it has no members.
#[derive(Debug)]
pub struct MembersExec {
    members: Option<Arc<Members>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The workers that a relay reads.
#[derive(Debug)]
pub struct Members {
    targets: Vec<WorkerTarget>,
    spec: RequestSpec,
    memory: usize,
    request: Mutex<Option<Arc<GatherRequest>>>,
}

impl Members {
    /// Creates the members: each of `targets` is asked `question`. `memory` limits both the bytes
    /// that are in transit and the bytes that are merged.
    pub fn new(targets: Vec<WorkerTarget>, spec: RequestSpec, memory: usize) -> Self {
        Self {
            targets,
            spec,
            memory,
            request: Mutex::new(None),
        }
    }

    /// Returns the request. It is made when the first stream opens, because memory for all streams
    /// is reserved with it.
    fn request(&self, task: &TaskContext) -> volary_flight_proto::Result<Arc<GatherRequest>> {
        let mut cached = self.request.lock();
        if let Some(made) = cached.as_ref() {
            return Ok(Arc::clone(made));
        }
        let (streams, limits) = (self.targets.len(), &self.spec.limits);
        let flow = FlowControl::reserve(
            Window::Wide,
            streams,
            1,
            self.memory,
            limits,
            task.memory_pool(),
        )?;
        let request = Arc::new(self.spec.clone().with_flow(flow));
        *cached = Some(Arc::clone(&request));
        Ok(request)
    }
}

impl MembersExec {
    /// Creates a leaf whose rows have this schema. It has at most `partitions` partitions, and not
    /// more partitions than members.
    pub fn new(schema: SchemaRef, members: Option<Arc<Members>>, partitions: usize) -> Self {
        let count = members.as_ref().map_or(1, |members| members.targets.len());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.min(count).max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            members,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl GatherSource for MembersExec {
    fn open(&self, partition: usize, task: &Arc<TaskContext>) -> Result<Vec<WorkerStream>> {
        let Some(members) = &self.members else {
            return internal_err!(
                "the members of a relay are read on a node that does not know them"
            );
        };
        let partitions = self.properties.output_partitioning().partition_count();
        let streams = WorkerTarget::part_for_reader(&members.targets, partition, partitions);
        let streams = streams.iter().map(|target| {
            let (members, task) = (Arc::clone(members), Arc::clone(task));
            worker_stream(move || members.request(&task).map(Some), target.clone())
        });
        Ok(streams.collect())
    }

    fn memory(&self, _: &TaskContext) -> Result<usize> {
        Ok(self.members.as_ref().map_or(0, |members| members.memory))
    }
}

impl DisplayAs for MembersExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MembersExec")?;
        match &self.members {
            Some(members) => write!(f, ": workers={}", members.targets.len()),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for MembersExec {
    fn name(&self) -> &'static str {
        "MembersExec"
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
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let streams = self.open(partition, &task)?.into_iter();
        let streams = streams.map(|stream| stream.map_ok(|rows| rows.batch));
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = MergedStreams::new(streams).map_err(Into::into);
        let rows = rows.inspect_ok(move |batch: &RecordBatch| {
            metrics.record_output(batch.num_rows());
        });
        let rows = RecordBatchStreamAdapter::new(self.schema(), rows);
        Ok(Box::pin(cooperative(rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
