use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array};
use arrow::compute::{SortOptions, concat, partition, sort, take};
use arrow::datatypes::DataType;
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion_proto::protobuf;
use prost::Message;
use volary_exec::shard_key::shards_of;
use volary_flight_proto::{Result, ipc};

use super::search::is_strictly_ascending;

/// The parameter that has the values that a column is compared with, by its ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySource {
    /// One value.
    Literal(u32),
    /// A set of values.
    Set(u32),
}

/// Returns the values that a ticket has for a column of this type: sorted, without NULLs, which
/// equal nothing, and each of them once. Returns `None` if the values have another type, or cannot
/// be read.
pub(super) fn keys_of_ticket(
    sources: &[KeySource],
    values: &[Bytes],
    data_type: &DataType,
) -> Option<ArrayRef> {
    let arrays = sources.iter().map(|source| read(*source, values));
    let arrays = arrays.collect::<Option<Vec<_>>>()?;
    if arrays.iter().any(|array| array.data_type() != data_type) {
        return None;
    }
    let all = match &arrays[..] {
        [only] => ArrayRef::clone(only),
        several => {
            let several: Vec<&dyn Array> = several.iter().map(AsRef::as_ref).collect();
            concat(&several).ok()?
        }
    };
    sorted_and_distinct(&all)
}

fn read(source: KeySource, values: &[Bytes]) -> Option<ArrayRef> {
    match source {
        KeySource::Literal(ordinal) => {
            let encoded = values.get(ordinal as usize)?;
            let value = protobuf::ScalarValue::decode(encoded.clone()).ok()?;
            ScalarValue::try_from(&value).ok()?.to_array().ok()
        }
        KeySource::Set(ordinal) => {
            let (_, batches) = ipc::batches_from_bytes(values.get(ordinal as usize)?).ok()?;
            match &batches[..] {
                [batch] if batch.num_columns() == 1 => Some(ArrayRef::clone(batch.column(0))),
                _ => None,
            }
        }
    }
}

fn sorted_and_distinct(values: &ArrayRef) -> Option<ArrayRef> {
    // Gateways send sorted sets.
    if values.null_count() == 0 && is_strictly_ascending(values)? {
        return Some(ArrayRef::clone(values));
    }
    let nulls_last = SortOptions {
        descending: false,
        nulls_first: false,
    };
    let sorted = sort(values, Some(nulls_last)).ok()?;
    let sorted = sorted.slice(0, values.len() - values.null_count());
    if is_strictly_ascending(&sorted)? {
        return Some(sorted);
    }
    let equal = partition(std::slice::from_ref(&sorted)).ok()?.ranges();
    let first = equal.into_iter().map(|range| range.start as u32);
    take(&sorted, &UInt32Array::from_iter_values(first), None).ok()
}

/// Divides keys among the shards of a ticket, which are ascending. `table_shards` is the number of
/// shards of the table. Keys of other shards are left out: they have no row here.
///
/// # Errors
/// `INVALID_ARGUMENT` if the type of the keys cannot be that of a shard key.
pub(super) fn divide(keys: &ArrayRef, shards: &[u32], table_shards: u32) -> Result<Vec<ArrayRef>> {
    let mut positions = vec![Vec::new(); shards.len()];
    for (position, shard) in (0_u32..).zip(shards_of(keys, table_shards)?) {
        if let Ok(place) = shards.binary_search(&shard) {
            positions[place].push(position);
        }
    }
    let divided = positions.into_iter().map(|positions| {
        if positions.is_empty() {
            return Ok(new_empty_array(keys.data_type()));
        }
        if positions.len() == keys.len() {
            return Ok(ArrayRef::clone(keys));
        }
        take(keys, &UInt32Array::from(positions), None).map_err(DataFusionError::from)
    });
    Ok(divided.collect::<std::result::Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::compute::cast;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn each_key_is_looked_for_in_its_shard_only() {
        const TABLE_SHARDS: u32 = 8;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(-50..50));
        for data_type in [DataType::Int64, DataType::Utf8View] {
            let keys = cast(&numbers, &data_type).unwrap();
            let shards = [1, 4, 7];
            let divided = divide(&keys, &shards, TABLE_SHARDS).unwrap();
            let own = shards_of(&keys, TABLE_SHARDS).unwrap();
            assert_eq!(divided.len(), shards.len());
            for (shard, keys) in shards.iter().zip(&divided) {
                let expected = numbers.as_primitive::<Int64Type>().values().iter();
                let expected = expected.zip(&own).filter(|(_, own)| *own == shard);
                let expected = Int64Array::from_iter_values(expected.map(|(number, _)| *number));
                assert!(!expected.is_empty());
                let found = cast(keys, &DataType::Int64).unwrap();
                assert_eq!(found.as_primitive::<Int64Type>(), &expected);
            }
        }
    }

    #[test]
    fn keys_of_other_shards_are_left_out() {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![34]));
        let own = shards_of(&keys, 16).unwrap()[0];
        let divided = divide(&keys, &[own, own + 1], 16).unwrap();
        assert_eq!(divided[0].len(), 1);
        assert!(divided[1].is_empty());
    }
}
