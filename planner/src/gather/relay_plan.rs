use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use volary_flight_proto::ids::WorkerId;
use volary_gather::{Peers, WorkerTarget};

/// Number of workers of a group that take turns as its relay. Each of them keeps connections to all
/// others of the group.
const RELAY_CANDIDATES: usize = 4;

/// The plan of the relays, and their number.
#[derive(Debug, Clone)]
pub struct RelayPlan {
    /// The plan that each relay runs, over a [`MembersExec`](volary_gather::members::MembersExec).
    pub plan: Arc<dyn ExecutionPlan>,
    /// Number of relays.
    pub count: usize,
    /// Rotates the choice of relays, so that different fragments use different workers.
    pub rotation: usize,
}

impl RelayPlan {
    /// Returns the relays that one of `readers` readers of the gather asks. Each relay reads an
    /// equal part of the workers, and is one of them.
    pub(crate) fn targets_of_reader(
        &self,
        targets: &[WorkerTarget],
        reader: usize,
        readers: usize,
        peers: &dyn Peers,
    ) -> Vec<WorkerTarget> {
        let count = self.count.min(targets.len());
        let relays = reader * count / readers..(reader + 1) * count / readers;
        let groups = relays.map(|relay| WorkerTarget::part_for_reader(targets, relay, count));
        groups
            .map(|group| relay_target(group, self.rotation, peers))
            .collect()
    }
}

/// Chooses one of the group's own workers as its relay. The query needs that worker anyway, so a
/// relay adds no new point of failure.
fn relay_target(group: &[WorkerTarget], turn: usize, peers: &dyn Peers) -> WorkerTarget {
    let mut workers: Vec<_> = group.iter().map(|target| target.worker).collect();
    workers.truncate(RELAY_CANDIDATES);
    let first = turn % workers.len().max(1);
    workers.rotate_left(first);
    peers.sort_live_first(&mut workers);
    WorkerTarget {
        worker: workers.first().copied().unwrap_or(WorkerId(0)),
        replicas: Vec::new(),
        scans: Vec::new(),
        members: group.to_vec(),
    }
}
