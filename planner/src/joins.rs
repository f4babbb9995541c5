use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::colocation::is_colocated;
use crate::fragment::ShardScanExec;
use crate::locality::{emits_right_side_only, is_nondeterministic};

/// Makes a reference table the collected side of its joins, if the type of the join lets each
/// worker run it alone.
#[derive(Debug)]
pub(crate) struct ReferenceJoins;

impl PhysicalOptimizerRule for ReferenceJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match collect_reference(&node)? {
                Some(changed) => Transformed::yes(changed),
                None => Transformed::no(node),
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &'static str {
        "ReferenceJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn collect_reference(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        if join.null_aware {
            return Ok(None);
        }
        let (left, right) = (is_replicated(join.left()), is_replicated(join.right()));
        let join_type = *join.join_type();
        if left && (right || emits_right_side_only(join_type)) {
            let collected = join
                .builder()
                .with_partition_mode(PartitionMode::CollectLeft)
                .recompute_properties()
                .build_exec()?;
            return Ok(Some(collected));
        }
        if right && emits_right_side_only(join_type.swap()) {
            return join.swap_inputs(PartitionMode::CollectLeft).map(Some);
        }
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let only_right = is_replicated(join.right()) && !is_replicated(join.left());
        if only_right && emits_right_side_only(join.join_type().swap()) {
            return join.swap_inputs().map(Some);
        }
    } else if let Some(join) = plan.downcast_ref::<CrossJoinExec>()
        && is_replicated(join.right())
        && !is_replicated(join.left())
    {
        return join.swap_inputs().map(Some);
    }
    Ok(None)
}

/// Returns whether the subtree reads only reference tables and has the same rows on every worker.
fn is_replicated(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<ShardScanExec>() {
        return scan.is_reference();
    }
    let keeps_rows = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>();
    keeps_rows && !is_nondeterministic(plan) && plan.children().into_iter().all(is_replicated)
}

/// Removes the repartitioning that the planner puts below a join of co-located tables. It does so
/// if the join has more keys than the shard key, or compares the shard keys through a cast.
#[derive(Debug)]
pub(crate) struct ColocatedJoins;

impl PhysicalOptimizerRule for ColocatedJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if !node.is::<HashJoinExec>() {
                return Ok(Transformed::no(node));
            }
            let children: Option<Vec<_>> = node
                .children()
                .into_iter()
                .map(|child| {
                    child
                        .downcast_ref::<RepartitionExec>()
                        .map(|repartition| Arc::clone(repartition.input()))
                })
                .collect();
            let Some(children) = children else {
                return Ok(Transformed::no(node));
            };
            let direct = replace_children_if_necessary(Arc::clone(&node), children)?;
            Ok(if is_colocated(&direct) {
                Transformed::yes(direct)
            } else {
                Transformed::no(node)
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &'static str {
        "ColocatedJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
