//! Pruning needs certainty: an expression that is not understood keeps all shards.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator};

use crate::fragment::ShardSelection;
use crate::key_reference::type_of_key;
use crate::value_list::ValueList;
use volary_exec::shard_key::{NULL_SHARD, hash_agrees, shard_of_scalar, shards_of};

/// The shard key of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardKey<'a> {
    /// The name of the key column.
    pub column: &'a str,
    /// The type of the key column.
    pub data_type: &'a DataType,
    /// Number of shards of the table.
    pub shards: u32,
}

/// Returns the shards that can hold rows for which all `filters` are true.
pub(crate) fn select_shards(key: ShardKey<'_>, filters: &[Expr]) -> ShardSelection {
    filters
        .iter()
        .map(|filter| key.select_by(filter))
        .fold(ShardSelection::All, ShardSelection::and)
}

impl ShardKey<'_> {
    fn select_by(self, filter: &Expr) -> ShardSelection {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => self.select_by(left).and(self.select_by(right)),
                Operator::Or => self.select_by(left).or(self.select_by(right)),
                Operator::Eq => self.select_equal(left, right),
                Operator::IsNotDistinctFrom => self.select_not_distinct(left, right),
                _ => ShardSelection::All,
            },
            Expr::InList(InList {
                expr,
                list,
                negated: false,
            }) => list
                .iter()
                .map(|item| self.select_equal(expr, item))
                .fold(ShardSelection::none(), ShardSelection::or),
            Expr::ScalarFunction(_) => self.select_listed(filter),
            Expr::IsNull(inner) if self.key_type_of(inner).is_some() => {
                shards_with_null_keys(inner)
            }
            Expr::Literal(ScalarValue::Boolean(Some(false)), _) => ShardSelection::none(),
            Expr::Alias(alias) => self.select_by(&alias.expr),
            _ => ShardSelection::All,
        }
    }

    fn select_equal(self, left: &Expr, right: &Expr) -> ShardSelection {
        match self.key_and_literal(left, right) {
            // Nothing equals NULL.
            Some((_, value)) if value.is_null() => ShardSelection::none(),
            Some((key_type, value)) => self.select_value(&key_type, value),
            None => ShardSelection::All,
        }
    }

    /// Returns the shards of the values of a list that the key is compared with.
    fn select_listed(self, call: &Expr) -> ShardSelection {
        let Some((values, key)) = ValueList::of_call(call) else {
            return ShardSelection::All;
        };
        match self.key_type_of(key) {
            Some(key_type) if hash_agrees(values.data_type(), &key_type) => {
                match shards_of(values, self.shards) {
                    Ok(shards) => ShardSelection::Some(shards.into_iter().collect()),
                    Err(_) => ShardSelection::All,
                }
            }
            _ => ShardSelection::All,
        }
    }

    fn select_not_distinct(self, left: &Expr, right: &Expr) -> ShardSelection {
        match self.key_and_literal(left, right) {
            Some((_, value)) if value.is_null() => match (left, right) {
                (Expr::Literal(..), key) | (key, _) => shards_with_null_keys(key),
            },
            Some((key_type, value)) => self.select_value(&key_type, value),
            None => ShardSelection::All,
        }
    }

    /// Returns the type in which the key is compared, and the literal that it is compared with.
    fn key_and_literal<'e>(
        self,
        left: &'e Expr,
        right: &'e Expr,
    ) -> Option<(DataType, &'e ScalarValue)> {
        let (key, value) = match (left, right) {
            (key, Expr::Literal(value, _)) | (Expr::Literal(value, _), key) => (key, value),
            _ => return None,
        };
        Some((self.key_type_of(key)?, value))
    }

    /// Returns the type of `expr` if it is the shard key, or a cast that keeps its hash.
    fn key_type_of(self, expr: &Expr) -> Option<DataType> {
        type_of_key(expr, self.column, self.data_type)
    }

    fn select_value(self, compared_as: &DataType, value: &ScalarValue) -> ShardSelection {
        // Both operands of a comparison have one type. A literal of another type is not understood.
        if !hash_agrees(&value.data_type(), compared_as) {
            return ShardSelection::All;
        }
        match shard_of_scalar(value, self.shards) {
            Ok(shard) => ShardSelection::Some(BTreeSet::from([shard])),
            Err(_) => ShardSelection::All,
        }
    }
}

/// Returns the shards in which `key`, an expression that reads the shard key, can be NULL.
fn shards_with_null_keys(key: &Expr) -> ShardSelection {
    match key {
        // TRY_CAST also returns NULL for values that do not fit, which can be in any shard.
        Expr::TryCast(_) => ShardSelection::All,
        Expr::Cast(Cast { expr, .. }) => shards_with_null_keys(expr),
        Expr::Alias(alias) => shards_with_null_keys(&alias.expr),
        _ => ShardSelection::Some(BTreeSet::from([NULL_SHARD])),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{cast, col, lit, try_cast};

    use super::*;

    const SHARDS: u32 = 64;

    fn select_one(filter: &Expr) -> ShardSelection {
        let key = ShardKey {
            column: "k",
            data_type: &DataType::Int32,
            shards: SHARDS,
        };
        select_shards(key, std::slice::from_ref(filter))
    }

    fn shards(values: &[i32]) -> ShardSelection {
        ShardSelection::Some(
            values
                .iter()
                .map(|value| shard_of_scalar(&ScalarValue::from(*value), SHARDS).unwrap())
                .collect(),
        )
    }

    #[test]
    fn equality_lists_and_alternatives_prune() {
        assert_eq!(select_one(&col("k").eq(lit(7))), shards(&[7]));
        assert_eq!(
            select_one(&col("k").in_list(vec![lit(1), lit(2)], false)),
            shards(&[1, 2])
        );
        assert_eq!(
            select_one(&col("k").eq(lit(1)).or(col("k").eq(lit(9)))),
            shards(&[1, 9])
        );
        assert_eq!(
            select_one(&col("k").eq(lit(1)).and(col("v").gt(lit(9)))),
            shards(&[1])
        );
    }

    #[test]
    fn contradictions_ask_nobody() {
        let (one, two) = (col("k").eq(lit(1)), col("k").eq(lit(2)));
        assert_eq!(select_one(&one.and(two)), ShardSelection::none());
        assert_eq!(
            select_one(&col("k").in_list(vec![], false)),
            ShardSelection::none()
        );
        assert_eq!(
            select_one(&col("k").eq(lit(ScalarValue::Int32(None)))),
            ShardSelection::none()
        );
    }

    #[test]
    fn nulls_are_in_their_shard() {
        assert_eq!(
            select_one(&col("k").is_null()),
            ShardSelection::Some(BTreeSet::from([NULL_SHARD]))
        );
        // A value that does not fit becomes NULL, too, and can be in any shard.
        assert_eq!(
            select_one(&try_cast(col("k"), DataType::Int8).is_null()),
            ShardSelection::All
        );
    }

    #[test]
    fn widening_casts_prune_and_others_do_not() {
        assert_eq!(
            select_one(&cast(col("k"), DataType::Int64).eq(lit(7_i64))),
            shards(&[7])
        );
        assert_eq!(
            select_one(&try_cast(col("k"), DataType::Utf8).eq(lit("7"))),
            ShardSelection::All
        );
        assert_eq!(
            select_one(&cast(col("k"), DataType::Float64).eq(lit(7.0))),
            ShardSelection::All
        );
    }

    #[test]
    fn what_is_not_understood_keeps_all_shards() {
        for filter in [
            col("k").gt(lit(1)),
            col("k").not_eq(lit(1)),
            col("k").in_list(vec![lit(1)], true),
            col("k").eq(col("v")),
            col("v").eq(lit(1)),
            col("k").eq(lit(1)).or(col("v").eq(lit(1))),
            (col("k") + lit(1)).eq(lit(1)),
        ] {
            assert_eq!(select_one(&filter), ShardSelection::All, "{filter}");
        }
    }
}
