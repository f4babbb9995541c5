use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, Partitioning};
use volary_exec::buckets::Buckets;
use volary_gather::merge::BucketMergeExec;

use crate::gather::GatherExec;

/// Replaces a final aggregate by a [`BucketMergeExec`] if it aggregates rows that are gathered and
/// then repartitioned. The rule runs late, because other rules look for aggregates.
#[derive(Debug)]
pub(crate) struct BucketMerge;

impl PhysicalOptimizerRule for BucketMerge {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let merged = plan.transform_up(|node| {
            Ok(match merge(&node)? {
                Some(merge) => Transformed::yes(Arc::new(merge) as _),
                None => Transformed::no(node),
            })
        })?;
        Ok(merged.data)
    }

    fn name(&self) -> &'static str {
        "BucketMerge"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn merge(node: &Arc<dyn ExecutionPlan>) -> Result<Option<BucketMergeExec<GatherExec>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return Ok(None);
    };
    // An aggregate that follows the order of its input emits rows early by itself. An aggregate
    // with a limit does not read all rows of a round.
    let merges_all = *aggregate.mode() == AggregateMode::FinalPartitioned
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.limit_options().is_none();
    let Some(repartitioning) = aggregate.input().downcast_ref::<RepartitionExec>() else {
        return Ok(None);
    };
    let Partitioning::Hash(keys, partitions) = repartitioning.partitioning() else {
        return Ok(None);
    };
    let Some(gather) = repartitioning.input().downcast_ref::<GatherExec>() else {
        return Ok(None);
    };
    // Each small piece of a list or struct column would be sent with the values of all other
    // pieces.
    let schema = gather.schema();
    let is_flat = !schema
        .fields()
        .iter()
        .any(|field| field.data_type().is_nested());
    let columns = keys.iter().map(|key| key.downcast_ref::<Column>());
    let columns: Option<Vec<_>> = columns.map(|column| column.map(Column::index)).collect();
    let Some(columns) = columns.filter(|_| merges_all && is_flat && gather.is_unordered()) else {
        return Ok(None);
    };
    let buckets = Buckets::for_partitions(columns, *partitions);
    let gather = Arc::new(gather.with_buckets(buckets.clone()));
    BucketMergeExec::try_new(Arc::clone(node), gather, buckets).map(Some)
}
