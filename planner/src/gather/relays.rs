//! Workers that merge the rows of the others for the gateway.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use volary_flight_proto::ids::WorkerId;
use volary_gather::{Peers, Target};

/// Workers of a group that take turns as its relay. Each keeps connections to all others of the group.
const TURNS: usize = 4;

/// What relays do, and how many there are.
#[derive(Debug, Clone)]
pub struct Relays {
    /// What each runs, over a [`MembersExec`](volary_gather::members::MembersExec).
    pub plan: Arc<dyn ExecutionPlan>,
    /// How many.
    pub count: usize,
    /// Different fragments should have different relays: which of the workers that could be.
    pub turn: usize,
}

impl Relays {
    /// The relays that a reader of the gather has, of so many: each asks an equal part of the workers, one of which it is.
    pub fn of_reader(
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

/// A worker that has rows itself: if it cannot be had, the query cannot be answered anyway.
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
