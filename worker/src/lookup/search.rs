//! Values are compared as Arrow's comparison kernels compare them, which evaluate `=` and `IN` in
//! the ordinary way of running a fragment.

use std::cmp::Ordering;
use std::ops::Range;

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray, downcast_primitive,
};
use arrow::datatypes::{ArrowNativeTypeOp, DataType};

/// Number of keys that are searched for at once.
const LANES: usize = 8;
/// Number of rows for each key above which keys are searched for at once, each in all rows. With
/// fewer rows, the next key is near.
const ROWS_PER_KEY: usize = 32;

/// Returns whether keys of this type are searched for. Floating-point numbers are not among them:
/// they have several zeros and NaNs, which sorting and comparing need not treat alike.
pub(super) fn is_searchable(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
                | DataType::Duration(_)
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
}

/// Values that can be compared.
trait Values: Copy {
    type Value: Copy;

    fn at(self, position: usize) -> Self::Value;

    fn compare(left: Self::Value, right: Self::Value) -> Ordering;
}

impl<N: ArrowNativeTypeOp> Values for &[N] {
    type Value = N;

    fn at(self, position: usize) -> N {
        self[position]
    }

    fn compare(left: N, right: N) -> Ordering {
        left.compare(right)
    }
}

macro_rules! compare_as_bytes {
    ($($array:ty),+) => {$(
        impl<'a> Values for &'a $array {
            type Value = &'a [u8];

            fn at(self, position: usize) -> &'a [u8] {
                AsRef::<[u8]>::as_ref(self.value(position))
            }

            fn compare(left: &'a [u8], right: &'a [u8]) -> Ordering {
                left.cmp(right)
            }
        }
    )+};
}

compare_as_bytes!(
    StringArray,
    LargeStringArray,
    StringViewArray,
    BinaryArray,
    LargeBinaryArray,
    BinaryViewArray,
    FixedSizeBinaryArray
);

/// Work on two arrays of one type.
trait Operation {
    type Output;

    fn run<V: Values>(self, left: V, right: V) -> Self::Output;
}

/// Runs the operation on the values of the arrays. Returns `None` if the arrays have different
/// types, or a type that is not searched for.
fn run_typed<O: Operation>(left: &dyn Array, right: &dyn Array, operation: O) -> Option<O::Output> {
    let data_type = left.data_type();
    if data_type != right.data_type() || !is_searchable(data_type) {
        return None;
    }
    macro_rules! primitive {
        ($type:ty) => {{
            let left = left.as_primitive::<$type>().values();
            let right = right.as_primitive::<$type>().values();
            Some(operation.run(&left[..], &right[..]))
        }};
    }
    downcast_primitive! {
        data_type => (primitive),
        DataType::Utf8 => Some(operation.run(left.as_string::<i32>(), right.as_string::<i32>())),
        DataType::LargeUtf8 => Some(operation.run(left.as_string::<i64>(), right.as_string::<i64>())),
        DataType::Utf8View => Some(operation.run(left.as_string_view(), right.as_string_view())),
        DataType::Binary => Some(operation.run(left.as_binary::<i32>(), right.as_binary::<i32>())),
        DataType::LargeBinary => Some(operation.run(left.as_binary::<i64>(), right.as_binary::<i64>())),
        DataType::BinaryView => Some(operation.run(left.as_binary_view(), right.as_binary_view())),
        DataType::FixedSizeBinary(_) => {
            Some(operation.run(left.as_fixed_size_binary(), right.as_fixed_size_binary()))
        }
        _ => None,
    }
}

/// Returns whether each value is larger than the one before it. The array must have no NULLs.
pub(super) fn is_strictly_ascending(values: &dyn Array) -> Option<bool> {
    let ascending = Ascending {
        count: values.len(),
        allow_equal: false,
    };
    run_typed(values, values, ascending)
}

/// Returns whether the values are ascending, with NULLs at the end, as segments are sorted.
pub(super) fn is_sorted(column: &dyn Array) -> bool {
    let count = non_null_count(column);
    if column
        .nulls()
        .is_some_and(|nulls| nulls.slice(0, count).null_count() > 0)
    {
        return false;
    }
    let ascending = Ascending {
        count,
        allow_equal: true,
    };
    run_typed(column, column, ascending).unwrap_or(false)
}

fn non_null_count(column: &dyn Array) -> usize {
    column.len() - column.null_count()
}

struct Ascending {
    count: usize,
    allow_equal: bool,
}

impl Operation for Ascending {
    type Output = bool;

    fn run<V: Values>(self, left: V, _: V) -> bool {
        (1..self.count).all(
            |position| match V::compare(left.at(position - 1), left.at(position)) {
                Ordering::Less => true,
                Ordering::Equal => self.allow_equal,
                Ordering::Greater => false,
            },
        )
    }
}

/// Returns for each row group which of the sorted keys may be in it, by the bounds of its values. A
/// bound that is NULL excludes nothing. Returns `None` if the types differ.
pub(super) fn keys_within(
    keys: &dyn Array,
    mins: &dyn Array,
    maxes: &dyn Array,
) -> Option<Vec<Range<usize>>> {
    let count = keys.len();
    let starts = run_typed(
        keys,
        mins,
        KeysBelow {
            count,
            or_equal: false,
            bounds: mins,
        },
    )?;
    let ends = run_typed(
        keys,
        maxes,
        KeysBelow {
            count,
            or_equal: true,
            bounds: maxes,
        },
    )?;
    let ranges = starts.into_iter().zip(ends);
    let ranges = ranges.map(|(start, end)| {
        let (start, end) = (start.unwrap_or(0), end.unwrap_or(count));
        start..end.max(start)
    });
    Some(ranges.collect())
}

/// Counts for each bound the keys below it.
struct KeysBelow<'a> {
    count: usize,
    or_equal: bool,
    bounds: &'a dyn Array,
}

impl Operation for KeysBelow<'_> {
    type Output = Vec<Option<usize>>;

    fn run<V: Values>(self, keys: V, bounds: V) -> Self::Output {
        let below = |bound: usize| {
            if self.bounds.is_null(bound) {
                return None;
            }
            let bound = bounds.at(bound);
            Some(partition_point(0..self.count, |key| {
                let order = V::compare(keys.at(key), bound);
                order.is_lt() || self.or_equal && order.is_eq()
            }))
        };
        (0..self.bounds.len()).map(below).collect()
    }
}

/// Returns the rows of a sorted column that have one of the sorted keys in `range`, ascending. If
/// there are more than `most`, some more than that are returned, and not all. Returns `None` if the
/// types differ.
pub(super) fn find_in_sorted(
    keys: &dyn Array,
    range: Range<usize>,
    column: &dyn Array,
    most: usize,
) -> Option<Vec<u32>> {
    let rows = non_null_count(column);
    run_typed(keys, column, SortedSearch { range, rows, most })
}

struct SortedSearch {
    range: Range<usize>,
    rows: usize,
    most: usize,
}

impl Operation for SortedSearch {
    type Output = Vec<u32>;

    fn run<V: Values>(mut self, keys: V, column: V) -> Vec<u32> {
        let mut found = Vec::with_capacity(self.range.len());
        let mut row = 0;
        while row < self.rows && !self.range.is_empty() && found.len() <= self.most {
            let first = self.range.start;
            let rows = row..self.rows;
            let starts: &[usize] = if rows.len() / self.range.len() <= ROWS_PER_KEY {
                &[gallop(keys.at(first), column, rows)]
            } else if self.range.len() < LANES {
                &search_at_once::<V, 1>(keys, first, column, rows)
            } else {
                &search_at_once::<V, LANES>(keys, first, column, rows)
            };
            for (start, key) in starts.iter().zip(self.range.by_ref()) {
                let left = self.most.saturating_sub(found.len());
                let end = start.saturating_add(left).saturating_add(1);
                let rows = *start..end.min(self.rows);
                row = push_equal(keys.at(key), column, rows, &mut found);
            }
        }
        found
    }
}

/// Returns the first row in `rows` that is not below each of `N` keys, the first of which is at the
/// position `first`. The searches take their steps together, so that the processor waits for the
/// memory of all of them at the same time.
fn search_at_once<V: Values, const N: usize>(
    keys: V,
    first: usize,
    column: V,
    rows: Range<usize>,
) -> [usize; N] {
    let keys: [V::Value; N] = std::array::from_fn(|lane| keys.at(first + lane));
    let mut starts = [rows.start; N];
    let mut left = rows.len();
    while left > 0 {
        let half = left.div_ceil(2);
        for (start, key) in starts.iter_mut().zip(keys) {
            let is_below = V::compare(column.at(*start + half - 1), key).is_lt();
            *start += if is_below { half } else { 0 };
        }
        left -= half;
    }
    starts
}

/// Returns the first row that is not below the key, with steps that double. So many keys cost
/// little more than a merge.
fn gallop<V: Values>(key: V::Value, column: V, rows: Range<usize>) -> usize {
    let is_below = |row: usize| V::compare(column.at(row), key).is_lt();
    let (mut low, mut step) = (rows.start, 1);
    while low + step <= rows.end && is_below(low + step - 1) {
        low += step;
        step *= 2;
    }
    partition_point(low..rows.end.min(low + step), is_below)
}

/// Adds the rows that equal the key, which come first in `rows`. Returns the row after them.
fn push_equal<V: Values>(
    key: V::Value,
    column: V,
    rows: Range<usize>,
    found: &mut Vec<u32>,
) -> usize {
    let equal = rows.clone();
    let equal = equal.take_while(|row| V::compare(column.at(*row), key).is_eq());
    let before = found.len();
    found.extend(equal.map(|row| row as u32));
    rows.start + found.len() - before
}

/// Returns the rows of a column in any order that have one of the sorted keys. Returns `None` if
/// the types differ.
pub(super) fn find_in_unsorted(keys: &dyn Array, column: &dyn Array) -> Option<Vec<u32>> {
    let count = keys.len();
    run_typed(keys, column, Match { count, column })
}

struct Match<'a> {
    count: usize,
    column: &'a dyn Array,
}

impl Operation for Match<'_> {
    type Output = Vec<u32>;

    fn run<V: Values>(self, keys: V, column: V) -> Vec<u32> {
        let is_key = |row: usize| {
            let value = column.at(row);
            let key = partition_point(0..self.count, |key| V::compare(keys.at(key), value).is_lt());
            key < self.count && V::compare(keys.at(key), value).is_eq()
        };
        let rows = 0..self.column.len();
        let rows = rows.filter(|row| is_key(*row) && !self.column.is_null(*row));
        rows.map(|row| row as u32).collect()
    }
}

/// Returns the first position that is not `before`, in a range that begins with those that are.
fn partition_point(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, Decimal128Array, Float64Array, Int64Array};

    use super::*;

    /// Returns the same numbers as an array of each of several types, in the same order.
    fn arrays(numbers: &[Option<i64>]) -> Vec<ArrayRef> {
        let all = || numbers.iter().copied();
        let text = |number: i64| format!("a text with the number {number:05}");
        vec![
            Arc::new(Int64Array::from_iter(all())),
            Arc::new(Decimal128Array::from_iter(
                all().map(|it| it.map(i128::from)),
            )),
            Arc::new(StringViewArray::from_iter(all().map(|it| it.map(text)))),
            Arc::new(BinaryArray::from_iter(all().map(|it| it.map(text)))),
        ]
    }

    #[test]
    fn searching_finds_what_a_look_at_each_row_finds() {
        let column: Vec<_> = (0..600).map(|row| Some(row / 3 * 2)).collect();
        let with_nulls: Vec<_> = column.iter().copied().chain([None; 5]).collect();
        let some_keys: [&[i64]; 7] = [
            &[],
            &[0],
            &[398],
            &[399, 400],
            &[1, 3, 5],
            &[0, 2, 4, 5, 6, 100, 101, 397, 398],
            &[20, 398, 9_000],
        ];
        let all_keys: Vec<i64> = (0..420).collect();
        for wanted in some_keys.into_iter().chain([&all_keys[..]]) {
            let keys: Vec<_> = wanted.iter().copied().map(Some).collect();
            for rows in [&column, &with_nulls] {
                let expected: Vec<u32> = (0..600)
                    .filter(|row| wanted.contains(&rows[*row as usize].unwrap()))
                    .collect();
                for (keys, column) in arrays(&keys).iter().zip(arrays(rows)) {
                    assert!(is_sorted(&column));
                    let found = find_in_sorted(keys, 0..keys.len(), &column, usize::MAX);
                    assert_eq!(found.as_ref(), Some(&expected), "{wanted:?}");
                    assert_eq!(find_in_unsorted(keys, &column), found, "{wanted:?}");
                    let few = find_in_sorted(keys, 0..keys.len(), &column, 3).unwrap();
                    assert!(few.iter().all(|row| expected.contains(row)), "{wanted:?}");
                    assert!(few.len() > 3 || few == expected, "{wanted:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_sorted_with_nulls_at_the_end_is_noticed() {
        let unsorted: [&[Option<i64>]; 3] = [
            &[Some(2), Some(1)],
            &[None, Some(1)],
            &[Some(1), None, Some(2)],
        ];
        for numbers in unsorted {
            for column in arrays(numbers) {
                assert!(!is_sorted(&column), "{numbers:?}");
            }
        }
        let equal = Int64Array::from(vec![1, 2, 2]);
        assert!(is_sorted(&equal));
        assert_eq!(is_strictly_ascending(&equal), Some(false));
        let numbers = Float64Array::from(vec![1.0, 2.0]);
        assert!(!is_sorted(&numbers));
        assert_eq!(find_in_sorted(&numbers, 0..2, &numbers, 9), None);
        assert_eq!(find_in_sorted(&equal, 0..1, &numbers, 9), None);
    }

    #[test]
    fn bounds_tell_which_keys_may_be_in_a_row_group() {
        let keys = arrays(&[Some(1), Some(5), Some(9), Some(12)]);
        let mins = arrays(&[Some(2), Some(5), None, Some(13), Some(9)]);
        let maxes = arrays(&[Some(4), Some(9), None, Some(20), None]);
        for ((keys, mins), maxes) in keys.iter().zip(mins).zip(maxes) {
            let ranges = keys_within(keys, &mins, &maxes).unwrap();
            assert_eq!(ranges, [1..1, 1..3, 0..4, 4..4, 2..4]);
        }
    }
}
