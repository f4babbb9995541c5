//! Joins that can run on the workers.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use crate::config::MAX_TARGET_PARTITIONS;
use crate::planning::key_reference::is_partition_key;
use crate::planning::locality::{emits_right_side_only, may_differ};
use crate::planning::shard_scan::ShardScanExec;

/// Makes a reference table the collected side of its joins, wherever the join's type lets a worker do it by itself.
#[derive(Debug)]
pub struct ReferenceJoins;

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

/// Whether the subtree reads reference tables only and gives the same rows on every worker.
fn is_replicated(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<ShardScanExec>() {
        return scan.is_reference();
    }
    let keeps_rows = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>();
    keeps_rows && !may_differ(plan) && plan.children().into_iter().all(is_replicated)
}

/// Takes away the repartitioning that the planner puts below a join of co-located tables whose keys are more than the
/// shard key, or are compared through a cast.
#[derive(Debug)]
pub struct ColocatedJoins;

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
            let direct = Arc::clone(&node).replace_children(
                children,
                ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
            )?;
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

/// Whether rows that match are in the same shard: both sides are scans' partitioning by shard keys that the join compares, with the
/// same number of shards.
pub fn is_colocated(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let on = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        if *join.partition_mode() != PartitionMode::Partitioned || join.null_aware {
            return false;
        }
        join.on()
    } else if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        join.on()
    } else {
        return false;
    };
    let children = plan.children();
    let [left, right] = children.as_slice() else {
        return false;
    };
    on.iter().any(|(left_on, right_on)| {
        let shards = shards_by(left_on, left);
        shards.is_some() && shards == shards_by(right_on, right)
    })
}

/// What stands for the number of shards, if `expression` is the shard key that the rows of `plan` are partitioned by.
fn shards_by(expression: &Arc<dyn PhysicalExpr>, plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some((keys, count)) = shard_partitioning(plan)
        && is_partition_key(expression, plan, keys)
    {
        return Some(count);
    }
    // The planner computes what is no column in a projection below the join.
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let column = (expression.as_ref() as &dyn Any).downcast_ref::<Column>()?;
    let computed = projection.expr().get(column.index())?;
    shards_by(&computed.expr, projection.input())
}

/// The partitioning of a subtree that goes back to a scan's: only those have so many partitions.
fn shard_partitioning(plan: &Arc<dyn ExecutionPlan>) -> Option<(&[Arc<dyn PhysicalExpr>], usize)> {
    match plan.output_partitioning() {
        Partitioning::Hash(keys, count) if *count > MAX_TARGET_PARTITIONS && keys.len() == 1 => {
            Some((keys, *count))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::{JoinType, NullEquality};
    use datafusion::physical_expr::expressions::{CastExpr, col};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;

    /// Rows `(k, cast)`, where `cast` is `k` as another type, in so many shards by `k`.
    fn rows(shards: usize, key: DataType, cast_to: DataType) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", key, true)]));
        let key = col("k", &schema).unwrap();
        let partitioning =
            Partitioning::Hash(vec![Arc::clone(&key)], MAX_TARGET_PARTITIONS + shards);
        let rows = Arc::new(EmptyExec::new(schema));
        let shards = Arc::new(RepartitionExec::try_new(rows, partitioning).unwrap());
        let cast: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(Arc::clone(&key), cast_to, None));
        let columns = [(key, "k".to_owned()), (cast, "cast".to_owned())];
        Arc::new(ProjectionExec::try_new(columns, shards).unwrap())
    }

    fn is_colocated_on(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        on: (&str, &str),
    ) -> bool {
        let on = (
            col(on.0, &left.schema()).unwrap(),
            col(on.1, &right.schema()).unwrap(),
        );
        let join = HashJoinExec::try_new(
            left,
            right,
            vec![on],
            None,
            &JoinType::Inner,
            None,
            PartitionMode::Partitioned,
            NullEquality::NullEqualsNothing,
            false,
        );
        let join: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
        is_colocated(&join)
    }

    #[test]
    fn keys_of_types_that_hash_alike_are_compared_through_a_projected_cast() {
        let left = || rows(64, DataType::Int32, DataType::Int64);
        let right = || rows(64, DataType::Int64, DataType::Int32);
        assert!(is_colocated_on(left(), right(), ("cast", "k")));
        assert!(is_colocated_on(right(), left(), ("k", "cast")));
        assert!(is_colocated_on(left(), right(), ("k", "cast")));
    }

    #[test]
    fn other_casts_and_other_numbers_of_shards_are_not_colocated() {
        let texts = || rows(64, DataType::Int32, DataType::Utf8);
        assert!(!is_colocated_on(texts(), texts(), ("cast", "cast")));
        assert!(is_colocated_on(texts(), texts(), ("k", "k")));
        let more = rows(32, DataType::Int32, DataType::Utf8);
        assert!(!is_colocated_on(texts(), more, ("k", "k")));
    }
}
