use arrow::array::{
    BooleanArray, Decimal128Array, DurationMicrosecondArray, Int64Array, UInt64Array,
};
use datafusion::logical_expr::EmitTo;

use super::*;

const LARGE: i64 = i64::MAX;

fn row_sum(batches: &[Vec<Option<i64>>]) -> RowSum<Int64Type> {
    let mut sum = RowSum::new(&DataType::Int64);
    for batch in batches {
        let values: ArrayRef = Arc::new(Int64Array::from(batch.clone()));
        sum.update_batch(&[values]).unwrap();
    }
    sum
}

#[test]
fn a_sum_may_leave_its_range_and_come_back() {
    for (batches, expected) in [
        (vec![vec![Some(LARGE), Some(1), Some(-1)]], Some(LARGE)),
        (
            vec![vec![Some(LARGE), Some(LARGE)], vec![Some(-LARGE), None]],
            Some(LARGE),
        ),
        (
            vec![vec![Some(i64::MIN), Some(-5)], vec![Some(LARGE), Some(7)]],
            Some(1),
        ),
        (vec![vec![None], vec![]], None),
        (
            vec![vec![Some(-1), Some(0), Some(i64::MIN), Some(1)]],
            Some(i64::MIN),
        ),
    ] {
        let mut sum = row_sum(&batches);
        assert_eq!(
            sum.evaluate().unwrap(),
            ScalarValue::Int64(expected),
            "{batches:?}"
        );
        let state = sum.state().unwrap()[0].to_array().unwrap();
        let mut merged = row_sum(&[]);
        merged.merge_batch(&[state]).unwrap();
        assert_eq!(
            merged.evaluate().unwrap(),
            ScalarValue::Int64(expected),
            "{batches:?}"
        );
    }
}

#[test]
fn a_sum_out_of_range_is_an_error() {
    for batch in [
        vec![Some(LARGE), Some(1)],
        vec![Some(i64::MIN), None, Some(-1)],
        vec![Some(LARGE), Some(LARGE), Some(LARGE)],
    ] {
        let error = row_sum(&[batch]).evaluate().unwrap_err();
        assert!(error.to_string().contains("out of the range"), "{error}");
    }
    let mut unsigned = RowSum::<UInt64Type>::new(&DataType::UInt64);
    let values: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1]));
    unsigned.update_batch(&[values]).unwrap();
    assert!(unsigned.evaluate().is_err());
    let mut durations =
        RowSum::<DurationMicrosecondType>::new(&DataType::Duration(TimeUnit::Microsecond));
    let values: ArrayRef = Arc::new(DurationMicrosecondArray::from(vec![LARGE, 1]));
    durations.update_batch(&[values]).unwrap();
    assert!(durations.evaluate().is_err());
    let back: ArrayRef = Arc::new(DurationMicrosecondArray::from(vec![-2]));
    durations.update_batch(&[back]).unwrap();
    let expected = ScalarValue::DurationMicrosecond(Some(LARGE - 1));
    assert_eq!(durations.evaluate().unwrap(), expected);
    let data_type = DataType::Decimal128(38, 0);
    let mut decimal = RowSum::<Decimal128Type>::new(&data_type);
    let values = Decimal128Array::from(vec![10_i128.pow(38) - 1, 1]);
    let values: ArrayRef = Arc::new(values.with_data_type(data_type));
    decimal.update_batch(&[values]).unwrap();
    assert!(decimal.evaluate().is_err());
}

#[test]
fn rows_that_leave_a_window_are_taken_away() {
    let mut sum = row_sum(&[vec![Some(LARGE), Some(3), None]]);
    assert!(sum.evaluate().is_err());
    let first: ArrayRef = Arc::new(Int64Array::from(vec![Some(LARGE), None]));
    sum.retract_batch(&[first]).unwrap();
    assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(3)));
    let second: ArrayRef = Arc::new(Int64Array::from(vec![3]));
    sum.retract_batch(&[second]).unwrap();
    assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
}

#[test]
fn distinct_values_are_summed_once() {
    let mut sum = DistinctSum::<Int64Type>::new(&DataType::Int64);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(LARGE), Some(1), Some(1), None]));
    sum.update_batch(&[Arc::clone(&values)]).unwrap();
    assert!(sum.evaluate().is_err());
    let state = sum.state().unwrap()[0].to_array().unwrap();
    let mut merged = DistinctSum::<Int64Type>::new(&DataType::Int64);
    merged.merge_batch(&[Arc::clone(&state), state]).unwrap();
    assert!(merged.evaluate().is_err());
    sum.retract_batch(&[values.slice(0, 2)]).unwrap();
    assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(1)));
}

#[test]
fn groups_have_sums_of_their_own() {
    let mut sums = GroupSums::<Int64Type>::new(&DataType::Int64);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![LARGE, 2, 5, LARGE]));
    sums.update_batch(&[values], &[0, 1, 1, 0], None, 2)
        .unwrap();
    let more: ArrayRef = Arc::new(Int64Array::from(vec![Some(-LARGE), None, Some(4), Some(9)]));
    let filter = BooleanArray::from(vec![Some(true), Some(true), None, Some(true)]);
    sums.update_batch(&[more], &[0, 2, 2, 3], Some(&filter), 4)
        .unwrap();
    let first = sums.state(EmitTo::First(1)).unwrap();
    let rest = sums.state(EmitTo::All).unwrap();
    let mut merged = GroupSums::<Int64Type>::new(&DataType::Int64);
    merged.merge_batch(&first, &[0], 1).unwrap();
    merged.merge_batch(&rest, &[1, 2, 3], 4).unwrap();
    let merged = merged.evaluate(EmitTo::All).unwrap();
    let expected: ArrayRef = Arc::new(Int64Array::from(vec![Some(LARGE), Some(7), None, Some(9)]));
    assert_eq!(&merged, &expected);
}

#[test]
fn one_group_out_of_range_is_an_error_of_its_own() {
    let mut sums = GroupSums::<Int64Type>::new(&DataType::Int64);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, LARGE, LARGE, 3]));
    sums.update_batch(&[Arc::clone(&values)], &[0, 1, 1, 2], None, 3)
        .unwrap();
    let first = sums.evaluate(EmitTo::First(1)).unwrap();
    assert_eq!(first.as_primitive::<Int64Type>().value(0), 1);
    assert!(sums.evaluate(EmitTo::First(1)).is_err());
    let last = sums.evaluate(EmitTo::All).unwrap();
    assert_eq!(last.as_primitive::<Int64Type>().value(0), 3);
    let state = sums.convert_to_state(&[values], None).unwrap();
    assert_eq!(state[0].data_type(), &DataType::Decimal128(38, 0));
}
