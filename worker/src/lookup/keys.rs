use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{SortOptions, concat, partition, sort, take};
use arrow::datatypes::DataType;
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion_proto::protobuf;
use prost::Message;
use volary_flight_proto::ipc;

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
