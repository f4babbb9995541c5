//! The function [`hash_agrees`] alone decides which casts keep hashes. Two functions recognise
//! keys, because the planner has two kinds of expressions. In those of statements, columns have
//! names. In those of physical plans, columns have positions, and a plan knows which expressions
//! are equal.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::{Cast, Expr, TryCast};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column as PhysicalColumn};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use volary_exec::shard_key::hash_agrees;

/// Returns the type that `expression` has if it is the shard key, the column `key` of type
/// `key_type`, or a cast of it. Returns `None` for other expressions, and for a cast whose equal
/// values may be in different shards.
pub(crate) fn type_of_key(expression: &Expr, key: &str, key_type: &DataType) -> Option<DataType> {
    match expression {
        Expr::Column(Column { name, .. }) if name == key => Some(key_type.clone()),
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            let inner = type_of_key(expr, key, key_type)?;
            hash_agrees(&inner, field.data_type()).then(|| field.data_type().clone())
        }
        Expr::Alias(alias) => type_of_key(&alias.expr, key, key_type),
        _ => None,
    }
}

/// Returns whether `expression` is one of the `keys` that partition `plan`, or a cast of a key that
/// keeps its hash.
///
/// A cast that returns NULL for values that do not fit is not such a cast. A join may treat such
/// NULLs as equal, and they can be in any shard.
pub(crate) fn is_partition_key(
    expression: &Arc<dyn PhysicalExpr>,
    plan: &Arc<dyn ExecutionPlan>,
    keys: &[Arc<dyn PhysicalExpr>],
) -> bool {
    let equals = plan.equivalence_properties().eq_group();
    let is_key = |candidate: &Arc<dyn PhysicalExpr>| {
        keys.iter().any(|key| {
            key.eq(candidate)
                || equals
                    .normalize_expr(Arc::clone(key))
                    .eq(&equals.normalize_expr(Arc::clone(candidate)))
        })
    };
    if is_key(expression) {
        return true;
    }
    let Some(cast) = (expression.as_ref() as &dyn Any).downcast_ref::<CastExpr>() else {
        return false;
    };
    let is_column = (cast.expr().as_ref() as &dyn Any).is::<PhysicalColumn>();
    is_column
        && cast
            .expr()
            .data_type(&plan.schema())
            .is_ok_and(|from| hash_agrees(&from, cast.cast_type()))
        && is_key(cast.expr())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{cast, col, try_cast};
    use datafusion::physical_expr::Partitioning;
    use datafusion::physical_expr::expressions::{col as column, lit};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::repartition::RepartitionExec;

    use super::*;

    fn read(expression: &Expr) -> Option<DataType> {
        type_of_key(expression, "k", &DataType::Int32)
    }

    #[test]
    fn the_key_is_seen_through_casts_that_keep_its_hash() {
        assert_eq!(read(&col("k")), Some(DataType::Int32));
        assert_eq!(read(&col("t.k").alias("l")), Some(DataType::Int32));
        assert_eq!(
            read(&cast(col("k"), DataType::Int64)),
            Some(DataType::Int64)
        );
        assert_eq!(
            read(&try_cast(cast(col("k"), DataType::Int64), DataType::Int8)),
            Some(DataType::Int8)
        );
    }

    #[test]
    fn other_columns_and_casts_that_change_the_hash_are_no_key() {
        for expression in [
            col("v"),
            cast(col("k"), DataType::Utf8),
            // The result has the type of the key again, but 2^24 + 1 and 2^24 have become one
            // value.
            cast(cast(col("k"), DataType::Float32), DataType::Int32),
            col("k") + col("k"),
        ] {
            assert_eq!(read(&expression), None, "{expression}");
        }
    }

    #[test]
    fn a_plan_is_partitioned_by_its_key_and_by_casts_that_keep_its_hash() {
        let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int32, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let key = column("k", &schema).unwrap();
        let partitioning = Partitioning::Hash(vec![Arc::clone(&key)], 4);
        let rows = Arc::new(EmptyExec::new(Arc::clone(&schema)));
        let plan: Arc<dyn ExecutionPlan> =
            Arc::new(RepartitionExec::try_new(rows, partitioning).unwrap());
        let keys = [Arc::clone(&key)];
        let cast_to = |expression: &Arc<dyn PhysicalExpr>, to: DataType| {
            Arc::new(CastExpr::new(Arc::clone(expression), to, None)) as Arc<dyn PhysicalExpr>
        };
        let other = column("v", &schema).unwrap();
        assert!(is_partition_key(&key, &plan, &keys));
        assert!(is_partition_key(
            &cast_to(&key, DataType::Int64),
            &plan,
            &keys
        ));
        for expression in [
            Arc::clone(&other),
            cast_to(&other, DataType::Int64),
            cast_to(&key, DataType::Utf8),
            lit(1),
        ] {
            assert!(!is_partition_key(&expression, &plan, &keys), "{expression}");
        }
    }
}
