use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use volary_catalog::Table;
use volary_exec::shard_key::shards_of;
use volary_flight_proto::{Error, Result};
use volary_planner::gather::WorkerKeys;

const NOT_ASKED: u32 = u32::MAX;

/// Divides keys among the workers that hold their shards. A worker without a key is not asked.
///
/// # Errors
/// An error if the type of the keys cannot be that of a shard key.
pub(crate) fn divide(keys: &ArrayRef, table: &Table) -> Result<Vec<WorkerKeys>> {
    let shards = shards_of(keys, table.shards())?;
    // The number of the worker of each shard that has keys.
    let mut worker_of_shard = vec![NOT_ASKED; table.shards() as usize];
    let mut number_of_worker = HashMap::new();
    let mut divided: Vec<WorkerKeys> = Vec::new();
    let mut positions: Vec<Vec<u32>> = Vec::new();
    for (position, shard) in (0_u32..).zip(&shards) {
        let known = worker_of_shard
            .get_mut(*shard as usize)
            .ok_or_else(|| Error::internal("a key is in a shard that its table does not have"))?;
        if *known == NOT_ASKED {
            let worker = table.worker_of(*shard).ok_or_else(|| {
                Error::internal(format!("shard {shard} of {} has no worker", table.name()))
            })?;
            let next = u32::try_from(divided.len()).unwrap_or(NOT_ASKED);
            *known = *number_of_worker.entry(worker).or_insert(next);
            if *known == next {
                divided.push(WorkerKeys {
                    worker,
                    shards: Vec::new(),
                    keys: Arc::clone(keys),
                });
                positions.push(Vec::new());
            }
            divided[*known as usize].shards.push(*shard);
        }
        positions[*known as usize].push(position);
    }
    let is_one = divided.len() == 1;
    for (asked, positions) in divided.iter_mut().zip(positions) {
        asked.shards.sort_unstable();
        if !is_one {
            let taken = take(keys, &UInt32Array::from(positions), None);
            asked.keys = without_others(taken.map_err(DataFusionError::from)?);
        }
    }
    Ok(divided)
}

/// Copies the texts of a view array. Otherwise those of all other workers would be sent, too.
fn without_others(keys: ArrayRef) -> ArrayRef {
    match keys.data_type() {
        DataType::Utf8View => Arc::new(keys.as_string_view().gc()),
        DataType::BinaryView => Arc::new(keys.as_binary_view().gc()),
        _ => keys,
    }
}
