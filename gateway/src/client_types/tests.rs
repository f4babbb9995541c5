use std::collections::HashMap;

use arrow::array::{Array, AsArray};
use arrow::array::{
    ArrayRef, BinaryViewArray, Decimal32Array, Decimal128Array, Decimal256Array, DictionaryArray,
    FixedSizeBinaryArray, Float16Array, Float32Array, Int32Array, Int64Array, LargeListArray,
    LargeStringArray, ListArray, ListViewArray, MapBuilder, NullArray, RunArray, StringArray,
    StringBuilder, StringViewArray, StructArray, TimestampSecondArray, UInt8Array, UInt64Array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, i256};
use arrow::record_batch::RecordBatch;

use volary_exec::client_rows::convert_batch;

use super::*;

/// Returns the field and the column that a client is sent.
fn sent(profile: TypeProfile, field: Field, column: ArrayRef) -> (Field, ArrayRef) {
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
    let target = map_schema(profile, &schema);
    let mapped = convert_batch(&batch, &target).unwrap();
    assert_eq!(mapped.schema(), target);
    (target.field(0).clone(), mapped.column(0).clone())
}

fn classic(column: impl Array + 'static) -> ArrayRef {
    let field = Field::new("c", column.data_type().clone(), true);
    sent(TypeProfile::Classic, field, Arc::new(column)).1
}

fn native(column: impl Array + 'static) -> ArrayRef {
    let field = Field::new("c", column.data_type().clone(), true);
    sent(TypeProfile::Native, field, Arc::new(column)).1
}

fn texts() -> [Option<&'static str>; 3] {
    [
        Some("short"),
        None,
        Some("longer than the twelve bytes of a view"),
    ]
}

#[test]
fn views_and_large_texts_become_utf8() {
    let expected = StringArray::from_iter(texts());
    assert_eq!(
        classic(StringViewArray::from_iter(texts())).as_string::<i32>(),
        &expected
    );
    assert_eq!(
        classic(LargeStringArray::from_iter(texts())).as_string::<i32>(),
        &expected
    );
}

#[test]
fn binary_views_and_large_binary_become_binary() {
    let views = BinaryViewArray::from_iter([Some(b"a".as_slice()), None]);
    let large = cast(&views, &DataType::LargeBinary).unwrap();
    assert_eq!(classic(views).data_type(), &DataType::Binary);
    let field = Field::new("c", DataType::LargeBinary, true);
    assert_eq!(
        sent(TypeProfile::Classic, field, large).1.data_type(),
        &DataType::Binary
    );
}

#[test]
fn list_views_and_large_lists_become_lists_with_mapped_items() {
    let rows = || vec![Some(vec![Some(1), None]), None, Some(vec![])];
    let expected = ListArray::from_iter_primitive::<Int32Type, _, _>(rows());
    let view = ListViewArray::from_iter_primitive::<Int32Type, _, _>(rows());
    assert_eq!(classic(view).as_list::<i32>(), &expected);
    let large = LargeListArray::from_iter_primitive::<Int32Type, _, _>(rows());
    assert_eq!(classic(large).as_list::<i32>(), &expected);

    let item = Arc::new(Field::new("item", DataType::Utf8View, true));
    let values = Arc::new(StringViewArray::from_iter(texts()));
    let list = ListArray::new(item, OffsetBuffer::new(vec![0, 1, 3].into()), values, None);
    let list = classic(list);
    assert_eq!(list.as_list::<i32>().values().data_type(), &DataType::Utf8);
    assert_eq!(list.as_list::<i32>().value(1).len(), 2);
}

#[test]
fn run_ends_become_their_values_and_keep_their_nulls() {
    let ends = Int32Array::from(vec![2, 3, 5]);
    let values = StringViewArray::from_iter([Some("a"), None, Some("b")]);
    let runs = RunArray::<Int32Type>::try_new(&ends, &values).unwrap();
    // A plan may declare the column non-nullable although its values contain NULLs.
    let field = Field::new("c", runs.data_type().clone(), false);
    let (field, column) = sent(TypeProfile::Classic, field, Arc::new(runs));
    assert!(field.is_nullable());
    let expected = StringArray::from_iter([Some("a"), Some("a"), None, Some("b"), Some("b")]);
    assert_eq!(column.as_string::<i32>(), &expected);
}

#[test]
fn dictionaries_become_their_values_in_both_profiles() {
    let dictionary: DictionaryArray<Int32Type> =
        vec![Some("a"), None, Some("a")].into_iter().collect();
    let expected = StringArray::from_iter([Some("a"), None, Some("a")]);
    assert_eq!(classic(dictionary.clone()).as_string::<i32>(), &expected);
    assert_eq!(native(dictionary).as_string::<i32>(), &expected);
    let views = DictionaryArray::<Int32Type>::new(
        Int32Array::from(vec![Some(0), None]),
        Arc::new(StringViewArray::from_iter([Some("a")])),
    );
    assert_eq!(
        classic(views).as_string::<i32>(),
        &StringArray::from_iter([Some("a"), None])
    );
}

#[test]
fn narrow_decimals_become_decimal128_and_wide_ones_where_they_fit() {
    let narrow = Decimal32Array::from(vec![Some(-1234), None])
        .with_precision_and_scale(9, 2)
        .unwrap();
    let expected = Decimal128Array::from(vec![Some(-1234), None])
        .with_precision_and_scale(9, 2)
        .unwrap();
    assert_eq!(classic(narrow).as_primitive(), &expected);
    let wide = |precision| {
        Decimal256Array::from(vec![i256::from_i128(5)])
            .with_precision_and_scale(precision, 1)
            .unwrap()
    };
    assert_eq!(classic(wide(38)).data_type(), &DataType::Decimal128(38, 1));
    assert_eq!(classic(wide(39)).data_type(), &DataType::Decimal256(39, 1));
}

#[test]
fn half_floats_become_single_ones() {
    let halves = cast(
        &Float32Array::from(vec![Some(1.5), None]),
        &DataType::Float16,
    )
    .unwrap();
    let halves: &Float16Array = halves.as_primitive();
    assert_eq!(
        classic(halves.clone()).as_primitive(),
        &Float32Array::from(vec![Some(1.5), None])
    );
}

#[test]
fn unsigned_integers_become_wider_signed_ones() {
    assert_eq!(
        classic(UInt8Array::from(vec![u8::MAX])).data_type(),
        &DataType::Int16
    );
    let field = |data_type| map_field(TypeProfile::Classic, &Field::new("c", data_type, true));
    assert_eq!(field(DataType::UInt16).data_type(), &DataType::Int32);
    assert_eq!(field(DataType::UInt32).data_type(), &DataType::Int64);
    let largest = classic(UInt64Array::from(vec![Some(u64::MAX), None]));
    let expected = Decimal128Array::from(vec![Some(i128::from(u64::MAX)), None])
        .with_precision_and_scale(20, 0)
        .unwrap();
    assert_eq!(largest.as_primitive(), &expected);
}

#[test]
fn nulls_without_a_type_become_text() {
    assert_eq!(
        classic(NullArray::new(2)).as_string::<i32>(),
        &StringArray::new_null(2)
    );
}

#[test]
fn map_entries_are_named_key_and_value() {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    builder.keys().append_value("k");
    builder.values().append_value("v");
    builder.append(true).unwrap();
    builder.append(false).unwrap();
    let map = classic(builder.finish());
    let (key, value) = map.as_map().entries_fields();
    assert_eq!(
        (key.name().as_str(), value.name().as_str()),
        ("key", "value")
    );
    assert!(map.is_null(1));
}

#[test]
fn uuids_become_text_or_get_their_extension() {
    let bytes = FixedSizeBinaryArray::try_from_iter([[0x11_u8; 16]].into_iter()).unwrap();
    let metadata = HashMap::from([
        ("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned()),
        ("ARROW:extension:metadata".to_owned(), String::new()),
        ("comment".to_owned(), "stays".to_owned()),
    ]);
    let field = Field::new("c", DataType::FixedSizeBinary(16), false).with_metadata(metadata);
    let (field, column) = sent(TypeProfile::Classic, field, Arc::new(bytes.clone()));
    assert_eq!(
        column.as_string::<i32>().value(0),
        "11111111-1111-1111-1111-111111111111"
    );
    let metadata = HashMap::from([
        ("ARROW:FLIGHT:SQL:TYPE_NAME".to_owned(), "UUID".to_owned()),
        ("comment".to_owned(), "stays".to_owned()),
    ]);
    assert_eq!(*field.metadata(), metadata);
    // A function may have lost the extension.
    assert_eq!(classic(bytes.clone()).data_type(), &DataType::Utf8);
    let field = Field::new("c", DataType::FixedSizeBinary(16), false);
    let (field, column) = sent(TypeProfile::Native, field, Arc::new(bytes));
    assert_eq!(column.data_type(), &DataType::FixedSizeBinary(16));
    let extension = ("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned());
    assert_eq!(*field.metadata(), HashMap::from([extension]));
    let md5 = FixedSizeBinaryArray::try_from_iter([[0x11_u8; 20]].into_iter()).unwrap();
    assert_eq!(classic(md5).data_type(), &DataType::FixedSizeBinary(20));
}

#[test]
fn time_zones_and_plain_types_stay() {
    let times = TimestampSecondArray::from(vec![0]).with_timezone("Europe/Berlin");
    assert_eq!(classic(times.clone()).data_type(), times.data_type());
    for data_type in [
        DataType::Boolean,
        DataType::Int64,
        DataType::Float64,
        DataType::Date32,
        DataType::Duration(arrow::datatypes::TimeUnit::Nanosecond),
        DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano),
    ] {
        let field = Field::new("c", data_type, true);
        assert_eq!(map_field(TypeProfile::Classic, &field), field);
    }
}

#[test]
fn mapping_goes_into_structs_at_any_depth() {
    let inner_fields = Fields::from(vec![Field::new("s", DataType::Utf8View, true)]);
    let inner = StructArray::new(
        inner_fields.clone(),
        vec![Arc::new(StringViewArray::from_iter(texts()))],
        Some(vec![true, true, false].into()),
    );
    let outer = StructArray::new(
        Fields::from(vec![Field::new(
            "inner",
            DataType::Struct(inner_fields),
            true,
        )]),
        vec![Arc::new(inner)],
        None,
    );
    let mapped = classic(outer.slice(1, 2));
    let inner = mapped.as_struct().column(0).as_struct();
    assert_eq!(inner.column(0).data_type(), &DataType::Utf8);
    assert_eq!((inner.len(), inner.is_null(1)), (2, true));
}

#[test]
fn native_keeps_views_and_large_texts() {
    for data_type in [
        DataType::Utf8View,
        DataType::LargeUtf8,
        DataType::UInt64,
        DataType::Null,
    ] {
        let field = Field::new("c", data_type, true);
        assert_eq!(map_field(TypeProfile::Native, &field), field);
    }
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)])]);
    assert!(matches!(native(large).data_type(), DataType::List(_)));
}

#[test]
fn batches_take_the_nullability_that_was_announced() {
    let announced = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    let planned = Arc::new(Schema::new(vec![Field::new(
        "count(*)",
        DataType::Int64,
        false,
    )]));
    let batch = RecordBatch::try_new(planned, vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
    let target = map_schema(TypeProfile::Classic, &announced);
    assert_eq!(convert_batch(&batch, &target).unwrap().schema(), target);
}

#[test]
fn a_batch_that_is_not_what_was_announced_is_an_error() {
    let announced = map_schema(
        TypeProfile::Classic,
        &Schema::new(vec![Field::new("n", DataType::Int64, false)]),
    );
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let nulls = Arc::new(Int64Array::new(
        ScalarBuffer::from(vec![1]),
        Some(vec![false].into()),
    ));
    assert!(
        convert_batch(
            &RecordBatch::try_new(schema, vec![nulls]).unwrap(),
            &announced
        )
        .is_err()
    );
    assert!(
        convert_batch(
            &RecordBatch::new_empty(Arc::new(Schema::empty())),
            &announced
        )
        .is_err()
    );
}
