//! Chooses the workers that merge the rows of the others for the gateway.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use volary_flight_proto::ids::WorkerId;
use volary_gather::{Peers, Target};

/// Number of workers of a group that take turns as its relay. Each of them keeps connections to all
/// others of the group.
const TURNS: usize = 4;

/// The plan of the relays, and their number.
#[derive(Debug, Clone)]
pub struct Relays {
    /// The plan that each relay runs, over a [`MembersExec`](volary_gather::members::MembersExec).
    pub plan: Arc<dyn ExecutionPlan>,
    /// Number of relays.
    pub count: usize,
    /// Rotates the choice of relays, so that different fragments use different workers.
    pub turn: usize,
}

impl Relays {
    /// Returns the relays that one of `readers` readers of the gather asks. Each relay reads an
    /// equal part of the workers, and is one of them.
    pub(crate) fn of_reader(
        &self,
        targets: &[Target],
        reader: usize,
        readers: usize,
        peers: &dyn Peers,
    ) -> Vec<Target> {
        let count = self.count.min(targets.len());
        let relays = reader * count / readers..(reader + 1) * count / readers;
        let groups = relays.map(|relay| Target::part_of(targets, relay, count));
        groups
            .map(|group| relay_of(group, self.turn, peers))
            .collect()
    }
}

/// Chooses a worker of the group that holds rows of the query itself. The query needs that worker
/// anyway, so a relay adds no new point of failure.
fn relay_of(group: &[Target], turn: usize, peers: &dyn Peers) -> Target {
    let mut workers: Vec<_> = group.iter().map(|target| target.worker).collect();
    workers.truncate(TURNS);
    let first = turn % workers.len().max(1);
    workers.rotate_left(first);
    peers.sort_live_first(&mut workers);
    Target {
        worker: workers.first().copied().unwrap_or(WorkerId(0)),
        others: Vec::new(),
        scans: Vec::new(),
        members: group.to_vec(),
    }
}
