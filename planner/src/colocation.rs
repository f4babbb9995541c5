use std::any::Any;
use std::sync::Arc;

use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::fragment::MAX_TARGET_PARTITIONS;
use crate::key_reference::is_partition_key;

/// Returns whether matching rows of a join are in the same shard. This is so if both sides are
/// partitioned like their scans, with the same number of shards, by shard keys that the join
/// compares.
pub(crate) fn is_colocated(plan: &Arc<dyn ExecutionPlan>) -> bool {
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
        let shards = shard_partition_count(left_on, left);
        shards.is_some() && shards == shard_partition_count(right_on, right)
    })
}

/// Returns the partition count that stands for the number of shards, if `expression` is the shard
/// key that partitions the rows of `plan`.
fn shard_partition_count(
    expression: &Arc<dyn PhysicalExpr>,
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<usize> {
    if let Some((keys, count)) = shard_partitioning(plan)
        && is_partition_key(expression, plan, keys)
    {
        return Some(count);
    }
    // If a join key is not a column, the planner computes it in a projection below the join.
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let column = (expression.as_ref() as &dyn Any).downcast_ref::<Column>()?;
    let computed = projection.expr().get(column.index())?;
    shard_partition_count(&computed.expr, projection.input())
}

/// Returns the partitioning of a subtree if it comes from a scan. Only scans declare more than
/// [`MAX_TARGET_PARTITIONS`] partitions.
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
    use datafusion::physical_plan::repartition::RepartitionExec;

    use super::*;

    /// Returns rows `(k, cast)` in `shards` shards by `k`, where `cast` is `k` as another type.
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
