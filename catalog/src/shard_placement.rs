use std::collections::HashMap;

use volary_flight_proto::ids::WorkerId;

use super::state::CatalogState;

/// Distributes `shards` shards over the workers in turn. If the number of shards is no multiple of
/// the number of workers, the workers that hold the least now get one shard more.
pub(super) fn spread_shards(state: &CatalogState, shards: u32, live: &[WorkerId]) -> Vec<WorkerId> {
    let mut workers = live.to_vec();
    workers.sort_unstable();
    workers.dedup();
    let loads = worker_loads(state);
    workers.sort_by_key(|worker| loads.get(worker).copied().unwrap_or_default());
    (0..shards)
        .zip(workers.iter().cycle())
        .map(|(_, worker)| *worker)
        .collect()
}

/// Returns the bytes and the number of shards that each worker holds.
fn worker_loads(state: &CatalogState) -> HashMap<WorkerId, (u64, usize)> {
    let mut loads: HashMap<WorkerId, (u64, usize)> = HashMap::new();
    for table in state.all_tables() {
        for (shard, statistics) in (0..).zip(&table.statistics().shards) {
            if let Some(worker) = table.worker_of(shard) {
                let (bytes, _) = loads.entry(worker).or_default();
                *bytes = bytes.saturating_add(statistics.bytes);
            }
        }
    }
    for placement in state.placements() {
        for worker in &placement.workers {
            loads.entry(*worker).or_default().1 += 1;
        }
    }
    loads
}
