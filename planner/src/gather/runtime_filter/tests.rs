use datafusion::arrow::array::{Array, ArrayRef, Int64Array, StringArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::common::stats::Precision;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{binary, case, col, in_list, is_null, lit};

use super::*;

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ])
}

/// Returns statistics with keys from 0 to 10,000.
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

/// Returns a filter as a hash join with two partitions writes it.
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
    let narrowed = narrow(&[complete(filter)], &schema(), &statistics(), 10).unwrap();
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
    let narrowed = narrow(&[filter], &schema(), &statistics(), 10).unwrap();
    assert_eq!(narrowed.to_string(), "all rows");
}

/// Returns a filter for rows of two keys, as a hash join on both keys writes it: its list has pairs
/// of `k` and `name`.
fn of_two_keys(rows: &[(i64, &str)]) -> Arc<DynamicFilterPhysicalExpr> {
    let schema = schema();
    let name = col("name", &schema).unwrap();
    let row = ScalarFunctionExpr::try_new(
        datafusion::functions::core::r#struct(),
        vec![key(), Arc::clone(&name)],
        &schema,
        Arc::default(),
    );
    let value = |(k, name): &(i64, &str)| {
        let k: ArrayRef = Arc::new(Int64Array::from(vec![*k]));
        let name: ArrayRef = Arc::new(StringArray::from(vec![*name]));
        let fields = [("c0", k), ("c1", name)].map(|(field, column)| {
            let field = Field::new(field, column.data_type().clone(), true);
            (Arc::new(field), column)
        });
        lit(ScalarValue::Struct(Arc::new(StructArray::from(
            fields.to_vec(),
        ))))
    };
    let rows_list = Arc::new(
        InListExpr::try_new(
            Arc::new(row.unwrap()),
            rows.iter().map(value).collect(),
            false,
            &schema,
        )
        .unwrap(),
    );
    let least = rows.iter().map(|(k, _)| *k).min().unwrap();
    let first = rows.iter().map(|(_, name)| *name).min().unwrap();
    let from_first = binary(Arc::clone(&name), Operator::GtEq, lit(first), &schema).unwrap();
    let filter = conjunction([compare(Operator::GtEq, least), from_first, rows_list]);
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![key(), name], lit(true)));
    dynamic.update(filter).unwrap();
    dynamic.mark_complete();
    dynamic
}

#[test]
fn a_filter_on_two_keys_says_something_of_each_alone() {
    let both = of_two_keys(&[(40, "a"), (70, "b"), (900, "b")]);
    let says = |filter: &Expr| {
        let narrowed = narrow(std::slice::from_ref(filter), &schema(), &statistics(), 10);
        narrowed.unwrap().to_string()
    };
    let whole: Expr = Arc::clone(&both) as _;
    assert_eq!(
        says(&whole),
        "k@0 >= 40 AND name@1 >= a AND k@0 IN (3 values) AND name@1 IN (2 values)"
    );
    let each = split_by_key(&both).unwrap();
    let said: Vec<_> = each.iter().map(says).collect();
    assert_eq!(
        said,
        [
            "k@0 >= 40 AND k@0 IN (3 values)",
            "name@1 >= a AND name@1 IN (2 values)"
        ]
    );
    let keys = each.iter().map(|filter| resolved_keys(filter).count());
    assert_eq!(keys.collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_key_that_is_not_there_keeps_the_rows_that_its_null_would() {
    let schema = schema();
    let name = col("name", &schema).unwrap();
    let nulls = binary(
        is_null(key()).unwrap(),
        Operator::Or,
        is_null(Arc::clone(&name)).unwrap(),
        &schema,
    );
    let filter = binary(
        nulls.unwrap(),
        Operator::Or,
        compare(Operator::GtEq, 40),
        &schema,
    );
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![key(), name], lit(true)));
    dynamic.update(filter.unwrap()).unwrap();
    dynamic.mark_complete();
    for filter in split_by_key(&dynamic).unwrap() {
        let narrowed = narrow(&[filter], &schema, &statistics(), 10).unwrap();
        assert_eq!(narrowed.to_string(), "all rows");
    }
}
