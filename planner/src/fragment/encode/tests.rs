//! Tests how plans and their values are encoded.

use std::collections::{BTreeMap, HashSet};

use arrow_flight::encode::FlightDataEncoderBuilder;
use datafusion::arrow::datatypes::{Field, Fields, SchemaRef, TimeUnit, UnionFields, UnionMode};
use datafusion::common::metadata::FieldMetadata;
use datafusion::functions_aggregate::min_max::min_udaf;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{binary, col, in_list, lit};
use datafusion::physical_expr::utils::conjunction;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use futures::stream;

use super::*;

type Plan = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ]))
}

fn input() -> Plan {
    Arc::new(EmptyExec::new(schema()))
}

fn key() -> Expr {
    col("k", &schema()).unwrap()
}

fn compared(op: Operator, value: Expr) -> Expr {
    binary(key(), op, value, &schema()).unwrap()
}

fn filtered(predicate: Expr) -> Plan {
    Arc::new(FilterExec::try_new(predicate, input()).unwrap())
}

/// Returns a filter `k > least AND name IN (names)`.
fn selected(least: i64, names: &[&str]) -> Plan {
    let names = names.iter().map(|name| lit(*name)).collect();
    let name = col("name", &schema()).unwrap();
    let listed = in_list(name, names, &false, &schema()).unwrap();
    let above = compared(Operator::Gt, lit(least));
    filtered(conjunction([above, listed]))
}

fn encoded(plan: &Plan) -> EncodedPlan {
    encode(plan, None).unwrap()
}

/// Checks that both plans have the same bytes, and that each has `values` values, which all differ
/// from those of the other plan.
fn assert_same_plan(left: &Plan, right: &Plan, values: usize) {
    let (left, right) = (encoded(left), encoded(right));
    assert_eq!(left.plan, right.plan);
    let of_left = left.parameters.values;
    assert_eq!(of_left.len(), values);
    assert_eq!(right.parameters.values.len(), values);
    let pairs = of_left.iter().zip(&right.parameters.values);
    assert_eq!(pairs.filter(|(left, right)| left != right).count(), values);
}

#[test]
fn plans_that_differ_in_literals_only_are_the_same_bytes() {
    assert_same_plan(
        &selected(1, &["a", "b"]),
        &selected(77, &["a longer name", "c"]),
        3,
    );
    let null = Arc::new(Literal::new(ScalarValue::Int64(None)));
    assert_same_plan(
        &filtered(compared(Operator::Eq, lit(1_i64))),
        &filtered(compared(Operator::Eq, null)),
        1,
    );
    let plans = [
        selected(1, &["a", "b"]),
        selected(1, &["a", "b", "c"]),
        filtered(compared(Operator::Gt, lit(1_i64))),
        filtered(compared(Operator::Lt, lit(1_i64))),
        input(),
    ];
    let different: HashSet<_> = plans.iter().map(|plan| encoded(plan).plan).collect();
    assert_eq!(different.len(), plans.len());
}

#[test]
fn values_of_subqueries_and_sets_of_keys_are_parameters_too() {
    let subquery = |value: i64| {
        let (index, results) = (SubqueryIndex::new(0), ScalarSubqueryResults::new(1));
        results.set(index, ScalarValue::from(value)).unwrap();
        let value = ScalarSubqueryExpr::new(DataType::Int64, true, index, results);
        filtered(compared(Operator::Eq, Arc::new(value)))
    };
    assert_same_plan(&subquery(1), &subquery(2), 1);
    let literal = filtered(compared(Operator::Eq, lit(1_i64)));
    assert_same_plan(&subquery(2), &literal, 1);

    let listed = |keys: &[i64]| {
        let keys = keys.iter().map(|key| ScalarValue::from(*key)).collect();
        filtered(Arc::new(KeySetExpr::from_scalars(key(), keys).unwrap()))
    };
    assert_same_plan(&listed(&[1, 2, 3]), &listed(&[4]), 1);
}

#[test]
fn a_subquery_needs_a_value_only_when_it_is_sent() {
    let (index, results) = (SubqueryIndex::new(0), ScalarSubqueryResults::new(1));
    let pending = ScalarSubqueryExpr::new(DataType::Int64, true, index, results);
    let plan = filtered(compared(Operator::Eq, Arc::new(pending)));
    assert!(can_encode_node(&plan));
    assert!(encode(&plan, None).is_err());
}

#[test]
fn filters_that_operators_make_for_themselves_are_not_sent() {
    let top_k = || {
        let ordering = LexOrdering::new([PhysicalSortExpr::new_default(key())]).unwrap();
        let sort = SortExec::new(ordering, input()).with_fetch(Some(10));
        assert!(!sort.dynamic_expressions_produced().is_empty());
        Arc::new(sort) as Plan
    };
    assert_same_plan(&top_k(), &top_k(), 0);
    let least = || {
        let least = AggregateExprBuilder::new(min_udaf(), vec![key()])
            .schema(schema())
            .alias("least")
            .build()
            .unwrap();
        let aggregate = AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(Vec::new()),
            vec![Arc::new(least)],
            vec![None],
            input(),
            schema(),
        )
        .unwrap();
        assert!(!aggregate.dynamic_expressions_produced().is_empty());
        Arc::new(aggregate) as Plan
    };
    assert_same_plan(&least(), &least(), 0);
}

#[test]
fn a_literal_with_metadata_stays_in_the_plan() {
    let metadata = FieldMetadata::new(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    let literal = Literal::new_with_metadata(ScalarValue::from(1_i64), Some(metadata));
    let plan = filtered(compared(Operator::Eq, Arc::new(literal)));
    assert!(encoded(&plan).parameters.values.is_empty());
}

#[test]
fn a_value_keeps_its_type() {
    let zone = Some("Europe/Berlin".into());
    let values = [
        ScalarValue::Null,
        ScalarValue::Int64(None),
        ScalarValue::Int64(Some(-1)),
        ScalarValue::Utf8View(Some("ä".to_owned())),
        ScalarValue::Decimal128(Some(-12_345), 20, 3),
        ScalarValue::TimestampMicrosecond(Some(7), zone),
        ScalarValue::try_from(&DataType::Timestamp(TimeUnit::Second, None)).unwrap(),
    ];
    for value in values {
        let literal: Expr = Arc::new(Literal::new(value.clone()));
        let taken_out = Values::default();
        let converter = Converter::Fragment(&taken_out);
        converter
            .physical_expr_to_proto(&literal, &ScanCodec::default())
            .unwrap();
        let bytes = taken_out.into_inner().encoded.remove(0);
        let read = protobuf::ScalarValue::decode(bytes).unwrap();
        assert_eq!(ScalarValue::try_from(&read).unwrap(), value);
    }
}

/// Returns `item`, and the types that contain `item`.
fn types_of(item: &DataType) -> Vec<DataType> {
    let field = |name: &str| Arc::new(Field::new(name, item.clone(), true));
    let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
    let entries = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", item.clone(), true),
    ]);
    let entries = Field::new("entries", DataType::Struct(entries), false);
    let members = UnionFields::try_new([0], [Field::new("m", item.clone(), true)]).unwrap();
    vec![
        item.clone(),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(item.clone())),
        DataType::List(field("item")),
        DataType::LargeList(field("item")),
        DataType::ListView(field("item")),
        DataType::LargeListView(field("item")),
        DataType::FixedSizeList(field("item"), 2),
        DataType::Struct(vec![field("s")].into()),
        DataType::Map(Arc::new(entries), false),
        DataType::Union(members, UnionMode::Sparse),
        DataType::RunEndEncoded(ends, field("values")),
    ]
}

#[test]
fn what_can_travel_is_what_the_encoder_leaves_as_it_is() {
    let leaves = [DataType::Int64, DataType::Utf8View, DataType::LargeUtf8];
    let types = leaves.iter().flat_map(types_of);
    for data_type in types.flat_map(|item| types_of(&item)) {
        let schema = Arc::new(Schema::new(vec![Field::new("c", data_type.clone(), true)]));
        let encoder = FlightDataEncoderBuilder::new()
            .with_schema(Arc::clone(&schema))
            .build(stream::empty());
        let sent = encoder.known_schema().unwrap();
        let is_same = *sent.field(0).data_type() == data_type;
        assert_eq!(can_send_unchanged(&schema), is_same, "{data_type}");
    }
}
