//! Tests of parameters and their values.

use datafusion::arrow::array::{ArrayRef, Int64Array, StructArray};
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalDayTimeType, IntervalMonthDayNanoType, i256,
};
use datafusion::config::TableParquetOptions;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::expressions::Column;
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::{PhysicalColumn, PhysicalExtensionExprNode};
use tempfile::TempDir;
use volary_flight_proto::fragment::MAX_BATCH_ROWS;
use volary_flight_proto::snapshot::Snapshot;
use volary_node::disk::LocalDisk;

use super::*;
use crate::fragment::bind::TicketBindings;
use crate::memory_cache::DecodedMemory;
use crate::scan::decoded::DecodedSegments;
use crate::storage::Storage;

/// Builds a binder for a ticket with these values.
fn binder(values: Vec<Bytes>) -> (Binder, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let bindings = TicketBindings {
        as_of_us: 0,
        snapshot: Snapshot::default(),
        scans: Vec::new(),
        counted_writes: None,
        values,
    };
    let runtime_env = Arc::new(RuntimeEnv::default());
    let decoded = DecodedMemory::new(0, 0, &runtime_env.memory_pool);
    let binder = Binder::new(
        Storage::open(dir.path(), Arc::new(LocalDisk)).unwrap(),
        runtime_env,
        Arc::new(DecodedSegments::new(decoded)),
        TableParquetOptions::default(),
        bindings,
        1,
    );
    (binder, dir)
}

fn extension(expr: Vec<u8>, inputs: Vec<PhysicalExprNode>) -> PhysicalExprNode {
    PhysicalExprNode {
        expr_id: None,
        expr_type: Some(ExprType::Extension(PhysicalExtensionExprNode {
            expr,
            inputs,
        })),
    }
}

fn literal(ordinal: u32) -> PhysicalExprNode {
    let kind = Some(parameter::Kind::Literal(ordinal));
    extension(Parameter { kind }.encode_to_vec(), Vec::new())
}

fn key_set(ordinal: u32) -> PhysicalExprNode {
    let kind = Some(parameter::Kind::KeySet(ordinal));
    let key = PhysicalExprNode {
        expr_id: None,
        expr_type: Some(ExprType::Column(PhysicalColumn {
            name: "k".to_owned(),
            index: 0,
        })),
    };
    extension(Parameter { kind }.encode_to_vec(), vec![key])
}

fn decoded(values: Vec<Bytes>, node: &PhysicalExprNode) -> Result<Arc<dyn PhysicalExpr>> {
    let (binder, _dir) = binder(values);
    let task = TaskContext::default();
    let context = PhysicalPlanDecodeContext::new(&task, &binder);
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, true)]);
    Ok(AllowList.proto_to_physical_expr(node, &schema, &context)?)
}

fn encoded(value: &ScalarValue) -> Bytes {
    let value = protobuf::ScalarValue::try_from(value).unwrap();
    value.encode_to_vec().into()
}

/// Returns a value and a NULL of each type. (DataFusion decodes Float16 as Float32.)
fn values() -> Vec<ScalarValue> {
    let zone = || Some("Europe/Berlin".into());
    let list = ScalarValue::new_list_nullable(
        &[ScalarValue::from(1_i64), ScalarValue::Int64(None)],
        &DataType::Int64,
    );
    let list = ScalarValue::List(list);
    let lists = ScalarValue::new_list_nullable(std::slice::from_ref(&list), &list.data_type());
    let member = Arc::new(Field::new("a", DataType::Int64, true));
    let members: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let text = || Some("grün".to_owned());
    let bytes = || Some(vec![1, 0, 255]);
    let values = vec![
        ScalarValue::Null,
        ScalarValue::Boolean(Some(false)),
        ScalarValue::Int8(Some(-8)),
        ScalarValue::Int16(Some(-16)),
        ScalarValue::Int32(Some(-32)),
        ScalarValue::Int64(Some(i64::MIN)),
        ScalarValue::UInt8(Some(8)),
        ScalarValue::UInt16(Some(16)),
        ScalarValue::UInt32(Some(32)),
        ScalarValue::UInt64(Some(u64::MAX)),
        ScalarValue::Float32(Some(-0.5)),
        ScalarValue::Float64(Some(f64::INFINITY)),
        ScalarValue::Decimal32(Some(-1), 9, 2),
        ScalarValue::Decimal64(Some(-2), 18, 2),
        ScalarValue::Decimal128(Some(i128::MAX), 38, -3),
        ScalarValue::Decimal256(Some(i256::from_i128(-4)), 76, 10),
        ScalarValue::Utf8(text()),
        ScalarValue::Utf8(Some(String::new())),
        ScalarValue::LargeUtf8(text()),
        ScalarValue::Utf8View(text()),
        ScalarValue::Binary(bytes()),
        ScalarValue::LargeBinary(bytes()),
        ScalarValue::BinaryView(bytes()),
        ScalarValue::FixedSizeBinary(3, bytes()),
        ScalarValue::Date32(Some(-1)),
        ScalarValue::Date64(Some(86_400_000)),
        ScalarValue::Time32Second(Some(1)),
        ScalarValue::Time32Millisecond(Some(2)),
        ScalarValue::Time64Microsecond(Some(3)),
        ScalarValue::Time64Nanosecond(Some(4)),
        ScalarValue::TimestampSecond(Some(1), None),
        ScalarValue::TimestampMillisecond(Some(-2), zone()),
        ScalarValue::TimestampMicrosecond(Some(3), zone()),
        ScalarValue::TimestampNanosecond(Some(4), None),
        ScalarValue::IntervalYearMonth(Some(13)),
        ScalarValue::IntervalDayTime(Some(IntervalDayTimeType::make_value(-1, 2))),
        ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNanoType::make_value(1, -2, 3))),
        ScalarValue::DurationSecond(Some(1)),
        ScalarValue::DurationMillisecond(Some(2)),
        ScalarValue::DurationMicrosecond(Some(3)),
        ScalarValue::DurationNanosecond(Some(4)),
        list,
        ScalarValue::List(lists),
        ScalarValue::Struct(Arc::new(StructArray::from(vec![(member, members)]))),
        ScalarValue::Dictionary(
            Box::new(DataType::Int32),
            Box::new(ScalarValue::Utf8(text())),
        ),
    ];
    let types = values.iter().map(ScalarValue::data_type);
    let nulls: Vec<_> = types
        .map(|data_type| ScalarValue::try_from(&data_type).unwrap())
        .collect();
    values.into_iter().chain(nulls).collect()
}

#[test]
fn a_value_of_any_type_is_the_literal_that_it_was() {
    let all = values();
    let bytes: Vec<_> = all.iter().map(encoded).collect();
    for (ordinal, value) in (0..).zip(&all) {
        let decoded = decoded(bytes.clone(), &literal(ordinal)).unwrap();
        let found = decoded.downcast_ref::<Literal>().unwrap().value();
        assert_eq!(found, value);
        assert_eq!(found.data_type(), value.data_type());
    }
}

#[test]
fn a_set_of_keys_has_the_key_that_stands_below_it() {
    let keys = Arc::new(Int64Array::from(vec![3, 5]));
    let made = KeySetExpr::try_new(Arc::new(Column::new("k", 0)), keys).unwrap();
    let values = vec![Bytes::new(), made.values_to_bytes().unwrap().into()];
    let decoded = decoded(values, &key_set(1)).unwrap();
    assert_eq!(decoded.to_string(), "k@0 IN (2 values)");
}

#[test]
fn what_is_no_parameter_and_no_value_is_refused() {
    let nested = (0..60).fold(DataType::Int64, |item, _| {
        DataType::List(Arc::new(Field::new("item", item, true)))
    });
    let one = || encoded(&ScalarValue::from(1_i64));
    for (values, node) in [
        (vec![], literal(0)),
        (vec![one()], literal(1)),
        (vec![one()], literal(u32::MAX)),
        (vec![one()], key_set(1)),
        (vec![one()], key_set(0)),
        (vec![Bytes::new()], literal(0)),
        (vec![Bytes::from_static(b"\xff\xff\xff")], literal(0)),
        (
            vec![encoded(&ScalarValue::try_from(&nested).unwrap())],
            literal(0),
        ),
        (vec![one()], extension(Vec::new(), Vec::new())),
        (vec![one()], extension(vec![0xff; 3], Vec::new())),
        (
            vec![one()],
            extension(
                Parameter {
                    kind: Some(parameter::Kind::Literal(0)),
                }
                .encode_to_vec(),
                vec![literal(0)],
            ),
        ),
    ] {
        let error = decoded(values, &node).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
}

#[test]
fn operators_with_batches_that_are_too_large_are_refused() {
    let of = |kind| {
        let (binder, _dir) = binder(Vec::new());
        let plan = PhysicalPlanNode {
            physical_plan_type: Some(kind),
        };
        let error = decode(&plan, &binder, &TaskContext::default()).unwrap_err();
        error.code() == ErrorCode::InvalidArgument && error.message().contains("the maximum is")
    };
    for rows in [MAX_BATCH_ROWS, MAX_BATCH_ROWS + 1, u32::MAX] {
        let filter = protobuf::FilterExecNode {
            batch_size: rows,
            ..Default::default()
        };
        let coalesce = protobuf::CoalesceBatchesExecNode {
            target_batch_size: rows,
            ..Default::default()
        };
        let too_large = rows > MAX_BATCH_ROWS;
        // With allowed sizes, the operators are refused as well, but because they lack the input
        // that they need.
        assert_eq!(of(PhysicalPlanType::Filter(Box::new(filter))), too_large);
        assert_eq!(
            of(PhysicalPlanType::CoalesceBatches(Box::new(coalesce))),
            too_large
        );
    }
}
