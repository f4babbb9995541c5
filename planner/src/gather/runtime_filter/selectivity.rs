use datafusion::common::{ScalarValue, Statistics};
use datafusion::physical_expr::expressions::Column;

use super::Expr;
use super::condition::{Condition, is_same_key};

/// Returns the conditions that leave out some of the rows that `statistics` describe. Drops a
/// condition if other conditions leave out the same rows.
pub(super) fn select_useful(conditions: &[Condition], statistics: &Statistics) -> Vec<Condition> {
    without_wide_bounds(&without_dense_lists(conditions), statistics)
}

/// Drops a list that has most of the integers between the bounds of its key. The bounds leave out
/// almost the same rows, and cost nothing.
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

/// Drops bounds that keep almost all rows. They would only cost a comparison for every row, and
/// with the statistics of every file.
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

/// Returns the smallest and largest integer that a key may have, if both bounds are known.
fn bounds(conditions: &[Condition], key: &Expr) -> Option<(i128, i128)> {
    let min = conditions.iter().find_map(|condition| match condition {
        Condition::AtLeast(of, value) if is_same_key(of, key) => integer(value),
        _ => None,
    });
    let max = conditions.iter().find_map(|condition| match condition {
        Condition::AtMost(of, value) if is_same_key(of, key) => integer(value),
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
