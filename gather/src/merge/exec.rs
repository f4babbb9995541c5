use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions, displayable,
};
use futures::{TryStreamExt, stream};
use volary_exec::buckets::Buckets;

use super::inputs::{GatherSource, MergeInputs, ReadGuard, StepRows};

/// Merges the partial aggregates of many workers, some rounds of buckets at a time. It takes the
/// place of an aggregate above a gather of type `S`, and has the properties of that aggregate.
#[derive(Debug)]
pub struct BucketMergeExec<S> {
    /// The aggregate that merges the rows of a step. Its input is [`StepRows`].
    aggregate: Arc<dyn ExecutionPlan>,
    inputs: Arc<MergeInputs<S>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<S: GatherSource> BucketMergeExec<S> {
    /// Creates a merge in place of `aggregate`. `aggregate` merges partial results and has as many
    /// partitions as `buckets`. `gather` returns the rows for the aggregate in the order of their
    /// buckets.
    ///
    /// # Errors
    /// Fails if the aggregate cannot be rebuilt.
    pub fn try_new(
        aggregate: Arc<dyn ExecutionPlan>,
        gather: Arc<S>,
        buckets: Buckets,
    ) -> Result<Self> {
        let properties = Arc::clone(aggregate.properties());
        Self::build(
            aggregate,
            MergeInputs::new(gather, buckets),
            Some(properties),
        )
    }

    /// Creates a merge in place of `aggregate` on a relay. `aggregate` may have any number of
    /// partitions.
    ///
    /// # Errors
    /// Fails if the aggregate cannot be rebuilt.
    pub fn for_relay(
        aggregate: Arc<dyn ExecutionPlan>,
        gather: Arc<dyn ExecutionPlan>,
        buckets: Buckets,
    ) -> Result<Self> {
        Self::build(aggregate, MergeInputs::new(gather, buckets), None)
    }

    /// Returns the aggregate that merges a step.
    pub fn aggregate(&self) -> &Arc<dyn ExecutionPlan> {
        &self.aggregate
    }

    /// Creates a merge with these properties. With `None`, it has those of the rebuilt aggregate.
    fn build(
        aggregate: Arc<dyn ExecutionPlan>,
        inputs: MergeInputs<S>,
        properties: Option<Arc<PlanProperties>>,
    ) -> Result<Self> {
        let inputs = Arc::new(inputs);
        let schema = inputs.gather.schema();
        let steps = (0..inputs.buckets.partitions()).map(|partition| {
            Arc::new(StepRows {
                inputs: Arc::clone(&inputs),
                partition,
                schema: Arc::clone(&schema),
            }) as Arc<dyn PartitionStream>
        });
        let steps = steps.collect();
        let steps = StreamingTableExec::try_new(Arc::clone(&schema), steps, None, [], false, None)?;
        let aggregate = aggregate.replace_children(vec![Arc::new(steps)], recompute())?;
        Ok(Self {
            properties: properties.unwrap_or_else(|| Arc::clone(aggregate.properties())),
            aggregate,
            inputs,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

fn recompute() -> ReplaceChildrenOptions {
    ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute)
}

impl<S: GatherSource> DisplayAs for BucketMergeExec<S> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregate = displayable(self.aggregate.as_ref()).one_line().to_string();
        write!(
            f,
            "BucketMergeExec: readers={}, partitions={}, rounds={}, {}",
            self.inputs.gather.output_partitioning().partition_count(),
            self.inputs.buckets.partitions(),
            self.inputs.buckets.rounds(),
            aggregate.trim_end()
        )
    }
}

impl<S: GatherSource> ExecutionPlan for BucketMergeExec<S> {
    fn name(&self) -> &'static str {
        "BucketMergeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inputs.gather]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(gather), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("a merge of buckets has one child");
        };
        let inputs = MergeInputs::new(gather, self.inputs.buckets.clone());
        let properties = Arc::clone(&self.properties);
        let replaced = Self::build(Arc::clone(&self.aggregate), inputs, Some(properties))?;
        Ok(Arc::new(replaced))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, recompute())
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.aggregate.apply_expressions(visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let aggregate = Arc::clone(&self.aggregate);
        let steps = MetricBuilder::new(&self.metrics).counter("steps", partition);
        let read = ReadGuard {
            inputs: Arc::clone(&self.inputs),
            partition,
        };
        let merged = stream::once(async move {
            let exchange = read.inputs.exchange(&context)?;
            let count = exchange.wait_for_steps(partition).await?.count();
            steps.add(count);
            let merged = stream::iter((0..count).map(Ok)).and_then(move |_| {
                // The stream holds `read` as long as somebody reads the stream.
                let partition = ReadGuard::partition(&read);
                futures::future::ready(aggregate.execute(partition, Arc::clone(&context)))
            });
            Ok::<_, DataFusionError>(merged.try_flatten())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            merged.try_flatten(),
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.aggregate.metrics().unwrap_or_default();
        for metric in self.metrics.clone_inner().iter() {
            all.push(Arc::clone(metric));
        }
        Some(all)
    }
}
