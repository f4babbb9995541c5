//! A copy of a fixed-width value or a view takes few bytes, however long the text of the view is.
//! Other texts and nested values are copied whole.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::DataType;

/// Size of a view in bytes. It is also the estimate of what a variable-width value takes in
/// addition to its content.
const HEAD_BYTES: usize = 16;

/// Returns whether copying one value of the type may take many bytes.
pub(crate) fn can_be_wide(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::FixedSizeList(_, _)
        | DataType::Map(_, _)
        | DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _) => true,
        DataType::Struct(fields) => fields.iter().any(|field| can_be_wide(field.data_type())),
        _ => false,
    }
}

/// Returns an upper bound of the bytes of the widest row, without its fixed-width part.
pub(crate) fn widest_row(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns.map(widest_value).fold(0, usize::saturating_add)
}

/// Returns the bytes that each row takes for its fixed-width part, including views.
pub(crate) fn fixed_width(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let widths = columns.map(|column| column.data_type().primitive_width().unwrap_or(HEAD_BYTES));
    widths.sum()
}

/// Returns the number of elements of the longest list of the column, or 0 if it has no lists.
pub(crate) fn longest_list(column: &ArrayRef) -> usize {
    match column.data_type() {
        DataType::List(_) => longest(column.as_list::<i32>().value_offsets()),
        DataType::LargeList(_) => longest(column.as_list::<i64>().value_offsets()),
        DataType::Map(_, _) => longest(column.as_map().value_offsets()),
        DataType::FixedSizeList(_, length) => usize::try_from(*length).unwrap_or_default(),
        DataType::ListView(_) => largest(column.as_list_view::<i32>().value_sizes()),
        DataType::LargeListView(_) => largest(column.as_list_view::<i64>().value_sizes()),
        _ => 0,
    }
}

/// Returns an upper bound of the bytes of the widest value of the column.
fn widest_value(column: &ArrayRef) -> usize {
    match column.data_type() {
        DataType::Utf8 => longest(column.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => longest(column.as_string::<i64>().value_offsets()),
        DataType::Binary => longest(column.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => longest(column.as_binary::<i64>().value_offsets()),
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter();
            fields.map(widest_value).fold(0, usize::saturating_add)
        }
        DataType::List(_) => widest_list(column, column.as_list::<i32>().values()),
        DataType::LargeList(_) => widest_list(column, column.as_list::<i64>().values()),
        DataType::Map(_, _) => widest_list(column, column.as_map().keys())
            .saturating_add(widest_list(column, column.as_map().values())),
        DataType::FixedSizeList(_, _) => widest_list(column, column.as_fixed_size_list().values()),
        // The remaining types are small, or so rare that the memory of all rows is a good enough
        // bound for the widest row.
        other if can_be_wide(other) => column.get_array_memory_size(),
        _ => 0,
    }
}

/// Returns an upper bound of the bytes of the widest list of the column. The bound is the size of
/// the widest element times the length of the longest list, but no more than all lists have
/// together.
fn widest_list(column: &ArrayRef, elements: &ArrayRef) -> usize {
    let fixed = elements.data_type().primitive_width().unwrap_or(HEAD_BYTES);
    let widest = widest_value(elements).saturating_add(fixed);
    let of_longest = longest_list(column).saturating_mul(widest);
    of_longest.min(elements.get_array_memory_size())
}

fn longest<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    let lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]);
    lengths.max().map_or(0, O::as_usize)
}

fn largest<O: OffsetSizeTrait>(sizes: &[O]) -> usize {
    sizes.iter().max().map_or(0, |size| size.as_usize())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn the_widest_row_has_the_longest_values_and_no_views() {
        let long = "x".repeat(1000);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", &long, "bc"]));
        let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a", &long, "bc"]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let lists = [vec![Some(1)], vec![Some(1); 50], vec![]].map(Some);
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        assert_eq!(longest_list(&lists), 50);
        let columns = [("t", texts), ("v", views), ("n", numbers), ("l", lists)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        assert_eq!(widest_row(&batch), 1000 + 50 * 8);
        assert_eq!(widest_row(&batch.slice(0, 1)), 1 + 8);
        assert_eq!(
            fixed_width(&batch),
            HEAD_BYTES + HEAD_BYTES + 8 + HEAD_BYTES
        );
    }
}
