//! Filters that are known only while a query runs: the keys of a join's small side narrow the scans of its other side.
//!
//! A hash join on the gateway reads its build side first, and then says in a [`DynamicFilterPhysicalExpr`] which keys can match.
//! By the time a gather on the probe side is polled, that is known: the fragment is sent with the filter above its scans, and
//! workers send only rows that can find a partner. A filter only ever leaves out rows that the join would throw away, so
//! that a weaker one, or none, is right as well.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::StructArray;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNullExpr, Literal,
};
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPhase, PushedDown};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use futures::FutureExt;
use volary_node::key_set::KeySetExpr;

type Expr = Arc<dyn PhysicalExpr>;

/// Values of a list that readers of Parquet still compare with statistics; longer ones travel as a set.
const MAX_LISTED: usize = 20;

/// Which rows can find a partner.
#[derive(Debug, Clone)]
pub enum Narrowed {
    /// All, as far as is known.
    All,
    /// None: the fragment need not run.
    None,
    /// Those for which this is true. It can be sent to workers.
    To(Expr),
}

impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all rows"),
            Self::None => f.write_str("no row"),
            Self::To(filter) => {
                let mut separator = "";
                for part in split_conjunction(filter) {
                    f.write_str(separator)?;
                    match part.downcast_ref::<InListExpr>() {
                        Some(list) => write!(f, "{} IN ({} values)", list.expr(), list.len())?,
                        None => write!(f, "{part}")?,
                    }
                    separator = " AND ";
                }
                Ok(())
            }
        }
    }
}

/// What the joins above know by now. Lists of keys are sent if they have at most `max_values` different ones, and bounds if they
/// leave out some of the rows that `statistics` tell of.
///
/// # Errors
/// If an expression does not fit `schema`, that of the fragment's rows.
pub fn narrowed(
    filters: &[Expr],
    schema: &Schema,
    statistics: &Statistics,
    max_values: usize,
) -> Result<Narrowed> {
    let mut parts = Vec::new();
    for filter in filters {
        let Some(dynamic) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() else {
            continue;
        };
        // A join that has not seen its whole build side knows nothing yet; to wait for it could be to wait for oneself.
        if dynamic.wait_complete().now_or_never().is_none() {
            continue;
        }
        let reader = Reader { schema, max_values };
        match reader.read(&dynamic.current()?)? {
            Keep::All => {}
            Keep::None => return Ok(Narrowed::None),
            Keep::Where(conditions) => {
                let conditions = without_wide_bounds(&without_dense_lists(&conditions), statistics);
                for condition in conditions {
                    parts.push(reader.write(condition)?);
                }
            }
        }
    }
    Ok(if parts.is_empty() {
        Narrowed::All
    } else {
        Narrowed::To(conjunction(parts))
    })
}

/// The fragment with `filter`, an expression over its rows, as near to its scans as it may go.
///
/// # Errors
/// If an operator cannot be rebuilt.
pub fn place(fragment: Arc<dyn ExecutionPlan>, filter: &Expr) -> Result<Arc<dyn ExecutionPlan>> {
    let mut config = ConfigOptions::new();
    // Operators of the fragment add filters of their own on the workers.
    config.optimizer.enable_dynamic_filter_pushdown = false;
    config.optimizer.enable_join_dynamic_filter_pushdown = false;
    config.optimizer.enable_topk_dynamic_filter_pushdown = false;
    config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    let filters = split_conjunction(filter).into_iter().cloned().collect();
    place_all(fragment, filters, &config)
}

fn place_all(
    node: Arc<dyn ExecutionPlan>,
    filters: Vec<Expr>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children();
    // Below a limit, a filter would choose other rows.
    if children.is_empty() || node.fetch().is_some() {
        return filter_above(node, filters);
    }
    let description =
        node.gather_filters_for_pushdown(FilterPushdownPhase::Post, filters.clone(), config)?;
    let mut pushed = vec![false; filters.len()];
    let mut placed = Vec::with_capacity(children.len());
    for (child, answers) in children.iter().zip(description.parent_filters()) {
        let mut below = Vec::new();
        for (pushed, answer) in pushed.iter_mut().zip(answers) {
            if matches!(answer.discriminant, PushedDown::Yes) {
                *pushed = true;
                below.push(answer.predicate);
            }
        }
        placed.push(if below.is_empty() {
            Arc::clone(child)
        } else {
            place_all(Arc::clone(child), below, config)?
        });
    }
    let node = Arc::clone(&node).replace_children(
        placed,
        ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
    )?;
    let left: Vec<_> = filters
        .into_iter()
        .zip(pushed)
        .filter_map(|(filter, pushed)| (!pushed).then_some(filter))
        .collect();
    filter_above(node, left)
}

fn filter_above(
    node: Arc<dyn ExecutionPlan>,
    filters: Vec<Expr>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if filters.is_empty() {
        return Ok(node);
    }
    Ok(Arc::new(FilterExec::try_new(conjunction(filters), node)?))
}

/// What a filter keeps, as a conjunction.
enum Keep {
    All,
    None,
    Where(Vec<Condition>),
}

/// A condition on one expression of the probe side.
#[derive(Clone)]
enum Condition {
    AtLeast(Expr, ScalarValue),
    AtMost(Expr, ScalarValue),
    In(Expr, HashSet<ScalarValue>),
    /// `(left) OR (right)` of what cannot be merged further; made for keys that may be NULL.
    Either(Expr, Vec<Condition>),
}

struct Reader<'a> {
    schema: &'a Schema,
    max_values: usize,
}

impl Reader<'_> {
    /// Reads what [`datafusion::physical_plan::joins::HashJoinExec`] writes: bounds and lists of keys, by partition of the
    /// join in a CASE. Whatever else it writes, such as a reference to its hash table, keeps all rows.
    fn read(&self, filter: &Expr) -> Result<Keep> {
        let mut all = Vec::new();
        for part in split_conjunction(filter) {
            match self.read_part(part)? {
                Keep::All => {}
                Keep::None => return Ok(Keep::None),
                Keep::Where(conditions) => all.extend(conditions),
            }
        }
        Ok(if all.is_empty() {
            Keep::All
        } else {
            Keep::Where(all)
        })
    }

    fn read_part(&self, part: &Expr) -> Result<Keep> {
        if let Some(literal) = part.downcast_ref::<Literal>() {
            return Ok(match literal.value() {
                ScalarValue::Boolean(Some(true)) => Keep::All,
                ScalarValue::Boolean(_) => Keep::None,
                _ => Keep::All,
            });
        }
        if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
            return self.read_binary(binary);
        }
        if let Some(list) = part.downcast_ref::<InListExpr>() {
            return Ok(self.read_list(list));
        }
        if let Some(case) = part.downcast_ref::<CaseExpr>() {
            let branches = case.when_then_expr().iter().map(|(_, then)| then);
            let branches = branches
                .chain(case.else_expr())
                .map(|branch| self.read(branch))
                .collect::<Result<Vec<_>>>()?;
            return Ok(self.any_of(branches));
        }
        Ok(Keep::All)
    }

    fn read_binary(&self, binary: &BinaryExpr) -> Result<Keep> {
        let (left, right) = (binary.left(), binary.right());
        if *binary.op() == Operator::Or {
            // `key IS NULL OR …`, where NULL keys can match.
            if !only_null_checks(left) {
                return Ok(Keep::All);
            }
            return Ok(match self.read(right)? {
                Keep::All => Keep::All,
                Keep::None => Keep::Where(vec![Condition::Either(Arc::clone(left), Vec::new())]),
                Keep::Where(conditions) => {
                    Keep::Where(vec![Condition::Either(Arc::clone(left), conditions)])
                }
            });
        }
        let Some(bound) = right.downcast_ref::<Literal>() else {
            return Ok(Keep::All);
        };
        let (key, bound) = (Arc::clone(left), bound.value().clone());
        Ok(match binary.op() {
            _ if bound.is_null() => Keep::All,
            Operator::GtEq => Keep::Where(vec![Condition::AtLeast(key, bound)]),
            Operator::LtEq => Keep::Where(vec![Condition::AtMost(key, bound)]),
            _ => Keep::All,
        })
    }

    /// A list of several keys together becomes one list for each key: they can be compared with statistics, and encoded.
    fn read_list(&self, list: &InListExpr) -> Keep {
        if list.negated() {
            return Keep::All;
        }
        let literals = list.list().iter().map(|item| {
            let literal = item.downcast_ref::<Literal>();
            literal.map(Literal::value)
        });
        let Some(values) = literals.collect::<Option<Vec<_>>>() else {
            return Keep::All;
        };
        let keys = match list.expr().downcast_ref::<ScalarFunctionExpr>() {
            Some(function) if function.name() == "struct" => function.args().to_vec(),
            _ => {
                let set = values.into_iter().cloned().collect();
                return self.keep_lists(vec![Condition::In(Arc::clone(list.expr()), set)]);
            }
        };
        let mut lists = vec![HashSet::new(); keys.len()];
        for value in values {
            let ScalarValue::Struct(row) = value else {
                return Keep::All;
            };
            if add_row(row, &mut lists).is_err() {
                return Keep::All;
            }
        }
        let conditions = keys.into_iter().zip(lists);
        self.keep_lists(
            conditions
                .map(|(key, set)| Condition::In(key, set))
                .collect(),
        )
    }

    fn keep_lists(&self, conditions: Vec<Condition>) -> Keep {
        let kept: Vec<_> = conditions
            .into_iter()
            .filter(|condition| self.is_short(condition))
            .collect();
        if kept.is_empty() {
            Keep::All
        } else {
            Keep::Where(kept)
        }
    }

    fn is_short(&self, condition: &Condition) -> bool {
        !matches!(condition, Condition::In(_, set) if set.len() > self.max_values)
    }

    /// The union: conditions that every branch has on the same key, widened to hold for all of them.
    fn any_of(&self, branches: Vec<Keep>) -> Keep {
        let mut merged: Option<Vec<Condition>> = None;
        for branch in branches {
            let conditions = match branch {
                Keep::All => return Keep::All,
                Keep::None => continue,
                Keep::Where(conditions) => conditions,
            };
            merged = Some(match merged {
                None => conditions,
                Some(so_far) => so_far
                    .into_iter()
                    .filter_map(|left| conditions.iter().find_map(|right| left.clone().or(right)))
                    .filter(|condition| self.is_short(condition))
                    .collect(),
            });
        }
        match merged {
            None => Keep::None,
            Some(conditions) if conditions.is_empty() => Keep::All,
            Some(conditions) => Keep::Where(conditions),
        }
    }

    fn write(&self, condition: Condition) -> Result<Expr> {
        let literal = |value| Arc::new(Literal::new(value)) as Expr;
        Ok(match condition {
            Condition::AtLeast(key, bound) => {
                Arc::new(BinaryExpr::new(key, Operator::GtEq, literal(bound)))
            }
            Condition::AtMost(key, bound) => {
                Arc::new(BinaryExpr::new(key, Operator::LtEq, literal(bound)))
            }
            Condition::In(key, values) if values.len() <= MAX_LISTED => {
                let values = values.into_iter().map(literal).collect();
                Arc::new(InListExpr::try_new(key, values, false, self.schema)?)
            }
            Condition::In(key, values) => Arc::new(KeySetExpr::try_new(
                key,
                ScalarValue::iter_to_array(values)?,
            )?),
            Condition::Either(nulls, conditions) => {
                let mut parts = Vec::new();
                for condition in conditions {
                    parts.push(self.write(condition)?);
                }
                if parts.is_empty() {
                    nulls
                } else {
                    Arc::new(BinaryExpr::new(nulls, Operator::Or, conjunction(parts)))
                }
            }
        })
    }
}

impl Condition {
    /// What holds where either holds, if they are about the same key in the same way.
    fn or(self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::AtLeast(key, left), Self::AtLeast(other, right)) if same(&key, other) => {
                let smaller = if left <= *right { left } else { right.clone() };
                Some(Self::AtLeast(key, smaller))
            }
            (Self::AtMost(key, left), Self::AtMost(other, right)) if same(&key, other) => {
                let larger = if left >= *right { left } else { right.clone() };
                Some(Self::AtMost(key, larger))
            }
            (Self::In(key, mut left), Self::In(other, right)) if same(&key, other) => {
                left.extend(right.iter().cloned());
                Some(Self::In(key, left))
            }
            _ => None,
        }
    }
}

fn same(left: &Expr, right: &Expr) -> bool {
    left.as_ref() == right.as_ref()
}

fn add_row(row: &StructArray, lists: &mut [HashSet<ScalarValue>]) -> Result<()> {
    for (list, column) in lists.iter_mut().zip(row.columns()) {
        list.insert(ScalarValue::try_from_array(column, 0)?);
    }
    if row.num_columns() == lists.len() {
        return Ok(());
    }
    Err(DataFusionError::Internal(
        "a join's keys and their values differ in number".to_owned(),
    ))
}

fn only_null_checks(expression: &Expr) -> bool {
    if expression.is::<IsNullExpr>() {
        return true;
    }
    expression
        .downcast_ref::<BinaryExpr>()
        .is_some_and(|binary| {
            *binary.op() == Operator::Or
                && only_null_checks(binary.left())
                && only_null_checks(binary.right())
        })
}

/// Where a list holds most integers between its key's bounds, the bounds say almost as much, and cost nothing.
fn without_dense_lists(conditions: &[Condition]) -> Vec<Condition> {
    let is_dense = |condition: &Condition| match condition {
        Condition::In(key, values) => bounds(conditions, key).is_some_and(|(min, max)| {
            let range = max.abs_diff(min).saturating_add(1);
            (values.len() as u128).saturating_mul(2) >= range
        }),
        _ => false,
    };
    conditions
        .iter()
        .filter(|condition| !is_dense(condition))
        .cloned()
        .collect()
}

/// Bounds that almost all rows keep would only be compared with every row and with the statistics of every file.
fn without_wide_bounds(conditions: &[Condition], statistics: &Statistics) -> Vec<Condition> {
    let are_wide = |key: &Expr| {
        let column = key.downcast_ref::<Column>();
        let known = column.and_then(|column| statistics.column_statistics.get(column.index()));
        let known = known.and_then(|known| {
            let min = integer(known.min_value.get_value()?)?;
            Some((min, integer(known.max_value.get_value()?)?))
        });
        let (Some((least, most)), Some((min, max))) = (known, bounds(conditions, key)) else {
            return false;
        };
        let kept = most.min(max).saturating_sub(least.max(min)).max(0);
        let all = most.saturating_sub(least).max(0);
        kept.saturating_mul(10) >= all.saturating_mul(9)
    };
    conditions
        .iter()
        .filter(|condition| match condition {
            Condition::AtLeast(key, _) | Condition::AtMost(key, _) => !are_wide(key),
            _ => true,
        })
        .cloned()
        .collect()
}

/// The integers between which a key is, if both bounds are known.
fn bounds(conditions: &[Condition], key: &Expr) -> Option<(i128, i128)> {
    let min = conditions.iter().find_map(|condition| match condition {
        Condition::AtLeast(of, value) if same(of, key) => integer(value),
        _ => None,
    });
    let max = conditions.iter().find_map(|condition| match condition {
        Condition::AtMost(of, value) if same(of, key) => integer(value),
        _ => None,
    });
    min.zip(max)
}

fn integer(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(Some(value)) => (*value).into(),
        ScalarValue::Int16(Some(value)) => (*value).into(),
        ScalarValue::Int32(Some(value)) | ScalarValue::Date32(Some(value)) => (*value).into(),
        ScalarValue::Int64(Some(value)) => (*value).into(),
        ScalarValue::UInt8(Some(value)) => (*value).into(),
        ScalarValue::UInt16(Some(value)) => (*value).into(),
        ScalarValue::UInt32(Some(value)) => (*value).into(),
        ScalarValue::UInt64(Some(value)) => (*value).into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::common::stats::Precision;
    use datafusion::physical_expr::expressions::{binary, case, col, in_list, is_null, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("name", DataType::Utf8, true),
        ])
    }

    /// Of keys from 0 to 10,000.
    fn statistics() -> Statistics {
        let mut statistics = Statistics::new_unknown(&schema());
        let bound = |value: i64| Precision::Inexact(ScalarValue::from(value));
        statistics.column_statistics[0].min_value = bound(0);
        statistics.column_statistics[0].max_value = bound(10_000);
        statistics
    }

    fn key() -> Expr {
        col("k", &schema()).unwrap()
    }

    fn compare(op: Operator, value: i64) -> Expr {
        binary(key(), op, lit(value), &schema()).unwrap()
    }

    fn listed(values: &[i64]) -> Expr {
        let values = values.iter().map(|value| lit(*value)).collect();
        in_list(key(), values, &false, &schema()).unwrap()
    }

    fn keys_of_partition(min: i64, max: i64, values: &[i64]) -> Expr {
        conjunction([
            compare(Operator::GtEq, min),
            compare(Operator::LtEq, max),
            listed(values),
        ])
    }

    /// As a hash join of two partitions writes it.
    fn by_partition(first: Expr, second: Expr) -> Expr {
        let partition = binary(key(), Operator::Modulo, lit(2_i64), &schema()).unwrap();
        let branches = vec![(lit(0_i64), first), (lit(1_i64), second)];
        case(Some(partition), branches, Some(lit(false))).unwrap()
    }

    fn complete(filter: Expr) -> Expr {
        let dynamic = DynamicFilterPhysicalExpr::new(vec![key()], lit(true));
        dynamic.update(filter).unwrap();
        dynamic.mark_complete();
        Arc::new(dynamic)
    }

    fn shown(filter: Expr) -> String {
        let narrowed = narrowed(&[complete(filter)], &schema(), &statistics(), 10).unwrap();
        narrowed.to_string()
    }

    #[test]
    fn the_lists_and_bounds_of_all_partitions_are_one() {
        let filter = by_partition(
            keys_of_partition(4, 900, &[4, 900, 4]),
            keys_of_partition(1, 77, &[1, 77]),
        );
        assert_eq!(
            shown(filter),
            "k@0 >= 1 AND k@0 <= 900 AND k@0 IN (4 values)"
        );
    }

    #[test]
    fn a_partition_without_rows_plays_no_part() {
        let filter = by_partition(lit(false), keys_of_partition(1, 77, &[1, 77]));
        assert_eq!(
            shown(filter),
            "k@0 >= 1 AND k@0 <= 77 AND k@0 IN (2 values)"
        );
        assert_eq!(shown(by_partition(lit(false), lit(false))), "no row");
    }

    #[test]
    fn partitions_of_one_key_each_have_a_list_together() {
        let filter = by_partition(
            keys_of_partition(7, 7, &[7]),
            keys_of_partition(900, 900, &[900]),
        );
        assert_eq!(
            shown(filter),
            "k@0 >= 7 AND k@0 <= 900 AND k@0 IN (2 values)"
        );
    }

    #[test]
    fn a_partition_that_says_nothing_keeps_all_rows() {
        let filter = by_partition(lit(true), keys_of_partition(1, 77, &[1, 77]));
        assert_eq!(shown(filter), "all rows");
    }

    #[test]
    fn a_list_that_one_partition_lacks_is_left_out() {
        let bounds = conjunction([compare(Operator::GtEq, 5), compare(Operator::LtEq, 2000)]);
        let filter = by_partition(bounds, keys_of_partition(1, 77, &[1, 77]));
        assert_eq!(shown(filter), "k@0 >= 1 AND k@0 <= 2000");
    }

    #[test]
    fn lists_that_are_long_or_say_no_more_than_their_bounds_are_left_out() {
        let long: Vec<_> = (0..11).map(|value| value * 100).collect();
        assert_eq!(
            shown(keys_of_partition(0, 1000, &long)),
            "k@0 >= 0 AND k@0 <= 1000"
        );
        let dense: Vec<_> = (0..9).collect();
        assert_eq!(
            shown(keys_of_partition(0, 8, &dense)),
            "k@0 >= 0 AND k@0 <= 8"
        );
    }

    #[test]
    fn bounds_that_keep_almost_all_rows_are_left_out() {
        assert_eq!(
            shown(keys_of_partition(20, 9_990, &[20, 500, 9_990])),
            "k@0 IN (3 values)"
        );
        let bounds = [compare(Operator::GtEq, 20), compare(Operator::LtEq, 9_990)];
        assert_eq!(shown(conjunction(bounds)), "all rows");
        assert_eq!(shown(compare(Operator::GtEq, 20)), "k@0 >= 20");
    }

    #[test]
    fn null_keys_that_may_match_are_kept() {
        let filter = binary(
            is_null(key()).unwrap(),
            Operator::Or,
            keys_of_partition(1, 77, &[1, 77]),
            &schema(),
        );
        assert_eq!(
            shown(filter.unwrap()),
            "k@0 IS NULL OR k@0 >= 1 AND k@0 <= 77 AND k@0 IN (SET) ([1, 77])"
        );
    }

    #[test]
    fn a_join_that_is_not_ready_keeps_all_rows() {
        let dynamic = DynamicFilterPhysicalExpr::new(vec![key()], lit(true));
        dynamic.update(listed(&[1])).unwrap();
        let filter: Expr = Arc::new(dynamic);
        let narrowed = narrowed(&[filter], &schema(), &statistics(), 10).unwrap();
        assert_eq!(narrowed.to_string(), "all rows");
    }
}
