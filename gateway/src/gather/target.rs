//! Who is asked, and for what.

use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::ids::WorkerId;

/// A worker and the shards that each scan of the fragment covers there.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The worker.
    pub worker: WorkerId,
    /// Others with the same rows, for when it cannot be had.
    pub others: Vec<WorkerId>,
    /// By the scan's ordinal.
    pub scans: Vec<ScanShards>,
}
