//! Who is asked, and for what.

use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::ids::WorkerId;

/// A worker, and what it reads of the fragment's scans: from its own shards, or, if it relays, from other workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The worker.
    pub worker: WorkerId,
    /// Others that can do the same, for when it cannot be had.
    pub others: Vec<WorkerId>,
    /// The shards that each scan of the fragment covers there, by the scan's ordinal.
    pub scans: Vec<ScanShards>,
    /// The workers whose rows it merges; none if it does not relay.
    pub members: Vec<Self>,
}

impl Target {
    /// The part of the workers that one of so many readers has.
    pub fn part_of(targets: &[Self], reader: usize, readers: usize) -> &[Self] {
        let start = reader * targets.len() / readers;
        let end = (reader + 1) * targets.len() / readers;
        &targets[start..end]
    }
}
