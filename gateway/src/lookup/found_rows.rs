use std::hash::Hash;
use std::slice;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::HashMap;
use datafusion::error::Result;
use volary_exec::batches::used_bytes;

use super::keys::Keys;
use super::row_sizes::value_sizes;

/// The number of a key that nobody has asked for.
const UNKNOWN: u32 = u32::MAX;
/// Size of what is kept of each row until the rows are in order, in bytes.
const BYTES_PER_ROW: usize = size_of::<(usize, usize)>() + size_of::<u32>();

/// The rows that workers have found, matched with the keys.
pub(crate) struct FoundRows<'a> {
    keys: &'a Keys,
    batches: Vec<RecordBatch>,
    /// The number of each key among the different ones.
    numbers: Vec<u32>,
    /// The first row of each different key in `rows`, and the end of the last one.
    starts: Vec<usize>,
    /// The batch and the row in it, by key.
    rows: Vec<(usize, usize)>,
}

/// Rows in the order of their keys.
#[derive(Debug)]
pub(crate) struct OrderedRows {
    /// The rows.
    pub(crate) rows: RecordBatch,
    /// The position of the key of each row, ascending. A key that was asked for several times has
    /// its rows as often.
    pub(crate) positions: Vec<u32>,
}

impl<'a> FoundRows<'a> {
    /// Finds the rows of each key. `key` is the position of the shard key's column in the batches.
    ///
    /// # Errors
    /// An error if the keys cannot be compared.
    pub(crate) fn new(keys: &'a Keys, batches: Vec<RecordBatch>, key: usize) -> Result<Self> {
        let columns: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(key)).collect();
        let (numbers, found) = match keys.values().data_type() {
            DataType::Int64 => {
                let values = |array: &ArrayRef| array.as_primitive::<Int64Type>().values().clone();
                let columns: Vec<_> = columns.into_iter().map(values).collect();
                let columns = columns.iter().map(|values| values.iter().copied());
                number(values(keys.values()).iter().copied(), columns)
            }
            data_type => {
                let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
                let convert = |array: &ArrayRef| converter.convert_columns(slice::from_ref(array));
                let asked = convert(keys.values())?;
                let columns = columns.into_iter().map(convert);
                let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
                number(asked.iter(), columns.iter().map(|rows| rows.iter()))
            }
        };
        let different = numbers.iter().max().map_or(0, |last| *last as usize + 1);
        let (starts, rows) = sort_by_number(different, &found);
        Ok(Self {
            keys,
            batches,
            numbers,
            starts,
            rows,
        })
    }

    /// Returns about the size of the rows when they are in order, in bytes. A few rows may be much
    /// larger than the others and asked for much more often, so each row is counted by itself.
    pub(crate) fn ordered_bytes(&self) -> usize {
        let is_each_once = self.numbers.len() + 1 == self.starts.len();
        let bytes: usize = if is_each_once {
            self.batches.iter().map(used_bytes).sum()
        } else {
            let sizes: Vec<_> = self.batches.iter().map(row_sizes).collect();
            let size = |(batch, row): &(usize, usize)| sizes[*batch][*row];
            let sizes = self.each_row().map(size);
            sizes.fold(0, usize::saturating_add)
        };
        let count = self.each_row().count();
        bytes.saturating_add(count.saturating_mul(BYTES_PER_ROW))
    }

    /// Returns the rows of all keys, as often as these were asked for.
    fn each_row(&self) -> impl Iterator<Item = &(usize, usize)> {
        self.numbers.iter().flat_map(|key| self.rows_of(*key))
    }

    /// Puts the rows into the order of their keys. `schema` has the columns that are kept, which
    /// are the first ones of the batches.
    ///
    /// # Errors
    /// An error if there is more text than a column can hold.
    pub(crate) fn into_order(self, schema: &SchemaRef) -> Result<OrderedRows> {
        let mut order = Vec::with_capacity(self.rows.len());
        let mut positions = Vec::with_capacity(self.rows.len());
        for (key, position) in self.numbers.iter().zip(self.keys.positions()) {
            let rows = self.rows_of(*key);
            order.extend_from_slice(rows);
            positions.resize(order.len(), *position);
        }
        let columns = (0..schema.fields().len()).map(|column| {
            let parts = self.batches.iter().map(|batch| batch.column(column));
            let parts: Vec<&dyn Array> = parts.map(|part| part.as_ref()).collect();
            match &parts[..] {
                [] => Ok(arrow::array::new_empty_array(
                    schema.field(column).data_type(),
                )),
                parts => interleave(parts, &order),
            }
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(order.len()));
        let rows = RecordBatch::try_new_with_options(SchemaRef::clone(schema), columns, &options)?;
        Ok(OrderedRows { rows, positions })
    }

    fn rows_of(&self, key: u32) -> &[(usize, usize)] {
        let key = key as usize;
        &self.rows[self.starts[key]..self.starts[key + 1]]
    }
}

/// Returns about the size of each row of a batch, in bytes.
fn row_sizes(batch: &RecordBatch) -> Vec<usize> {
    let mut sizes = vec![0_usize; batch.num_rows()];
    for column in batch.columns() {
        for (size, more) in sizes.iter_mut().zip(value_sizes(column)) {
            *size = size.saturating_add(more);
        }
    }
    sizes
}

/// Numbers the different keys in the order in which they are asked for. Returns the number of each
/// key, and that of each row in each batch.
fn number<K, R>(
    keys: impl ExactSizeIterator<Item = K>,
    batches: impl Iterator<Item = R>,
) -> (Vec<u32>, Vec<Vec<u32>>)
where
    K: Hash + Eq,
    R: Iterator<Item = K>,
{
    let mut known = HashMap::with_capacity(keys.len());
    let mut numbers = Vec::with_capacity(keys.len());
    for key in keys {
        let next = u32::try_from(known.len()).unwrap_or(UNKNOWN);
        numbers.push(*known.entry(key).or_insert(next));
    }
    let number = |key: K| known.get(&key).copied().unwrap_or(UNKNOWN);
    let found = batches.map(|rows| rows.map(number).collect());
    (numbers, found.collect())
}

/// Sorts rows by the number of their key. Returns where the rows of each key begin, and the rows.
fn sort_by_number(different: usize, found: &[Vec<u32>]) -> (Vec<usize>, Vec<(usize, usize)>) {
    let mut starts = vec![0; different + 1];
    let asked = |key: &u32| *key != UNKNOWN;
    for key in found.iter().flatten().copied().filter(asked) {
        starts[key as usize + 1] += 1;
    }
    for key in 0..different {
        starts[key + 1] += starts[key];
    }
    let mut next = starts.clone();
    let mut rows = vec![(0, 0); starts[different]];
    for (batch, keys) in found.iter().enumerate() {
        for (row, key) in keys.iter().enumerate().filter(|(_, key)| asked(key)) {
            let place = &mut next[*key as usize];
            rows[*place] = (batch, row);
            *place += 1;
        }
    }
    (starts, rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray, StringViewArray};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::lookup::keys::KeyColumn;

    fn keys(values: ArrayRef, data_type: DataType) -> Keys {
        let column = KeyColumn {
            table: "t".to_owned(),
            name: "k".to_owned(),
            data_type,
            zone: "UTC".into(),
        };
        let batch = RecordBatch::try_from_iter([("k", values)]).unwrap();
        column.read(&batch, 100).unwrap()
    }

    fn rows(keys: &[i64], key_type: &DataType) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let names = keys.iter().map(|key| format!("bird {key}"));
        let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
        let keys = cast(&numbers, key_type).unwrap();
        RecordBatch::try_from_iter([("name", names), ("k", keys)]).unwrap()
    }

    fn ordered(asked: ArrayRef, key_type: &DataType, found: &[&[i64]]) -> (Vec<String>, Vec<u32>) {
        let keys = keys(asked, key_type.clone());
        let batches: Vec<_> = found.iter().map(|found| rows(found, key_type)).collect();
        let found = FoundRows::new(&keys, batches, 1).unwrap();
        let field = Field::new("name", DataType::Utf8View, true);
        let schema = Arc::new(Schema::new(vec![field]));
        let ordered = found.into_order(&schema).unwrap();
        let names = ordered.rows.column(0).as_string_view().iter();
        let names = names.map(|name| name.unwrap().to_owned()).collect();
        (names, ordered.positions)
    }

    #[test]
    fn rows_come_in_the_order_of_their_keys_as_often_as_these_are_asked_for() {
        let found: &[&[i64]] = &[&[3, 1, 3], &[], &[7, 99]];
        for key_type in [DataType::Int64, DataType::Utf8View, DataType::Int32] {
            let asked: ArrayRef = Arc::new(Int64Array::from(vec![7, 2, 3, 1, 7]));
            let (names, positions) = ordered(asked, &key_type, found);
            assert_eq!(names, ["bird 7", "bird 3", "bird 3", "bird 1", "bird 7"]);
            assert_eq!(positions, [0, 2, 2, 3, 4]);
        }
    }

    #[test]
    fn without_rows_or_keys_nothing_is_found() {
        let none: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        let two: ArrayRef = Arc::new(StringArray::from(vec!["1", "2"]));
        for asked in [none, two] {
            let found = ordered(asked, &DataType::Int64, &[]);
            assert_eq!(found, (vec![], vec![]));
        }
    }

    #[test]
    fn the_size_is_that_of_all_copies() {
        let asked = keys(Arc::new(Int64Array::from(vec![1; 50])), DataType::Int64);
        let found = vec![rows(&[1, 1], &DataType::Int64)];
        let bytes = used_bytes(&found[0]);
        let found = FoundRows::new(&asked, found, 1).unwrap();
        assert!(found.ordered_bytes() >= 50 * bytes);
    }

    #[test]
    fn a_large_row_counts_as_often_as_it_is_asked_for() {
        const LARGE: usize = 100_000;
        let found = |asked: Vec<i64>| {
            let asked = keys(Arc::new(Int64Array::from(asked)), DataType::Int64);
            let names = (0..50).map(|key| "x".repeat(if key == 7 { LARGE } else { 1 }));
            let names: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50));
            let batch = RecordBatch::try_from_iter([("name", names), ("k", ids)]).unwrap();
            let found = FoundRows::new(&asked, vec![batch], 1).unwrap();
            found.ordered_bytes()
        };
        let once = (0..50).collect::<Vec<_>>();
        assert!((LARGE..LARGE * 2).contains(&found(once.clone())));
        let often = once.iter().copied().chain([7; 40]).collect();
        assert!((41 * LARGE..42 * LARGE).contains(&found(often)));
        let others_often = once.iter().copied().chain([8; 40]).collect();
        assert!((LARGE..LARGE * 2).contains(&found(others_often)));
    }
}
