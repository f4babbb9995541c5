use arrow::array::{Array, AsArray, OffsetSizeTrait, make_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

/// Size of a value whose type says no width, in bytes. It is that of a view.
const DEFAULT_WIDTH: usize = 16;

/// Returns about the size of each value of an array, in bytes.
pub(super) fn value_sizes(array: &dyn Array) -> Vec<usize> {
    let data_type = array.data_type();
    match data_type {
        DataType::Utf8 => with_lengths(array.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => with_lengths(array.as_string::<i64>().offsets()),
        DataType::Binary => with_lengths(array.as_binary::<i32>().offsets()),
        DataType::LargeBinary => with_lengths(array.as_binary::<i64>().offsets()),
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            of_ranges(list.offsets(), list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            of_ranges(list.offsets(), list.values())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            of_ranges(map.offsets(), map.entries())
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or_default();
            let elements = value_sizes(array.as_fixed_size_list().values());
            let rows = (0..array.len()).map(|row| row * length..(row + 1) * length);
            rows.map(|row| elements.get(row).map_or(0, |row| row.iter().sum()))
                .collect()
        }
        DataType::Struct(_) => {
            let mut sizes = vec![0; array.len()];
            for column in array.as_struct().columns() {
                for (size, more) in sizes.iter_mut().zip(value_sizes(column)) {
                    *size += more;
                }
            }
            sizes
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let values = value_sizes(dictionary.values());
            let keys = dictionary.normalized_keys().into_iter();
            keys.map(|key| values.get(key).copied().unwrap_or(DEFAULT_WIDTH))
                .collect()
        }
        other => vec![other.primitive_width().unwrap_or(DEFAULT_WIDTH); array.len()],
    }
}

/// Returns about the size that an array takes when its values are written out one by one, in bytes.
/// A dictionary or runs of equal values can be much smaller.
pub(super) fn written_out_bytes(array: &dyn Array) -> usize {
    let largest = |values: &dyn Array| value_sizes(values).into_iter().max().unwrap_or(0);
    let of_each = match array.data_type() {
        DataType::Dictionary(_, _) => largest(array.as_any_dictionary().values()),
        DataType::RunEndEncoded(_, _) => {
            let data = array.to_data();
            let values = data.child_data().get(1).cloned().map(make_array);
            values.map_or(DEFAULT_WIDTH, |values| largest(&values))
        }
        _ => return 0,
    };
    array
        .len()
        .saturating_mul(of_each.saturating_add(DEFAULT_WIDTH))
}

fn with_lengths<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<usize> {
    offsets
        .lengths()
        .map(|length| length + size_of::<O>())
        .collect()
}

/// Returns the sizes of values that are stored as views. The lower half of a view's first half is
/// the length of its value.
fn of_views(views: &[u128]) -> Vec<usize> {
    let length = |view: &u128| usize::try_from(*view as u32).unwrap_or_default();
    let sizes = views.iter().map(|view| length(view) + DEFAULT_WIDTH);
    sizes.collect()
}

/// Returns the sizes of lists, which are ranges of `elements`.
fn of_ranges<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, elements: &dyn Array) -> Vec<usize> {
    let elements = value_sizes(elements);
    offsets
        .windows(2)
        .map(|range| {
            let range = range[0].as_usize()..range[1].as_usize();
            let sizes = elements.get(range).unwrap_or_default();
            sizes.iter().sum::<usize>() + size_of::<O>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, ListArray, RunArray,
        StringArray, StringViewArray, StructArray,
    };
    use arrow::datatypes::{Field, Int8Type, Int32Type, Int64Type};

    use super::*;

    #[test]
    fn sizes_are_those_of_each_value() {
        let texts = ["", "kea", "a text that is longer than twelve bytes"];
        assert_eq!(value_sizes(&Int64Array::from(vec![1, 2])), [8, 8]);
        assert_eq!(
            value_sizes(&StringArray::from_iter_values(texts)),
            [4, 7, 43]
        );
        let views = StringViewArray::from_iter_values(texts);
        assert_eq!(value_sizes(&views), [16, 19, 55]);
        assert_eq!(value_sizes(&views.slice(1, 1)), [19]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1); 10]),
            None,
            Some(vec![]),
        ]);
        assert_eq!(value_sizes(&lists), [84, 4, 4]);
        assert_eq!(value_sizes(&lists.slice(0, 1)), [84]);
        let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            [Some(vec![Some(1), Some(2)]), None],
            2,
        );
        assert_eq!(value_sizes(&pairs), [8, 8]);
        let field = |name, array: &ArrayRef| Field::new(name, array.data_type().clone(), true);
        let (numbers, views): (ArrayRef, ArrayRef) =
            (Arc::new(Int64Array::from(vec![1, 2, 3])), Arc::new(views));
        let fields = vec![field("n", &numbers), field("s", &views)];
        let structs = StructArray::new(fields.into(), vec![numbers, views], None);
        assert_eq!(value_sizes(&structs), [24, 27, 63]);
        let dictionary: DictionaryArray<Int8Type> = ["kea", "", "kea"].into_iter().collect();
        assert_eq!(value_sizes(&dictionary), [7, 4, 7]);
    }

    #[test]
    fn equal_values_that_are_stored_once_are_counted_one_by_one() {
        let text = "x".repeat(1_000);
        let dictionary: DictionaryArray<Int8Type> = vec![text.as_str(); 500].into_iter().collect();
        assert!(written_out_bytes(&dictionary) >= 500_000);
        let runs = RunArray::<Int32Type>::try_new(
            &Int32Array::from(vec![1_000_000]),
            &StringArray::from_iter_values([text]),
        );
        assert!(written_out_bytes(&runs.unwrap()) >= 1_000_000_000);
        assert_eq!(written_out_bytes(&Int64Array::from(vec![1])), 0);
    }
}
