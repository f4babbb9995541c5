use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::common::stats::Precision;
use datafusion::logical_expr::Operator;
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
