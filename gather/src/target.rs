use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::ids::WorkerId;

/// A worker, and what it reads for the scans of a fragment. It reads its own shards or, if it
/// relays, the rows of other workers.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerTarget {
    /// Id of the worker.
    pub worker: WorkerId,
    /// The other workers with the same rows. They are asked if the worker does not answer.
    pub replicas: Vec<WorkerId>,
    /// The shards that each scan of the fragment covers on the worker, by the scan's ordinal.
    pub scans: Vec<ScanShards>,
    /// The workers whose rows the worker merges. Empty if it does not relay.
    pub members: Vec<Self>,
}

impl WorkerTarget {
    /// Returns the targets of one of `readers` readers. `reader` is its number, from 0.
    pub fn part_for_reader(targets: &[Self], reader: usize, readers: usize) -> &[Self] {
        let start = reader * targets.len() / readers;
        let end = (reader + 1) * targets.len() / readers;
        &targets[start..end]
    }
}
