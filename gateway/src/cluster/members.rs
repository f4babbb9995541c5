//! Which workers have joined since the gateway started, and when each was last heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::membership::HeartbeatRequest;

/// The workers that have joined since the gateway started.
#[derive(Debug)]
pub(super) struct Members {
    started: Instant,
    lost_after: Duration,
    members: Mutex<BTreeMap<WorkerId, Member>>,
    /// Counts joins and reports after which more workers may live than before.
    changed: watch::Sender<u64>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) address: String,
    /// Which start of the worker it is.
    pub(super) instance: String,
    pub(super) heard_at: Instant,
    /// Its last report; none between its join and its first one.
    pub(super) report: Option<HeartbeatRequest>,
}

impl Member {
    pub(super) fn is_draining(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.draining)
    }
}

impl Members {
    pub(super) fn new(lost_after: Duration) -> Self {
        Self {
            started: Instant::now(),
            lost_after,
            members: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<Member> {
        self.members.lock().get(&worker).cloned()
    }

    /// Whether it was not heard of for too long.
    pub(super) fn is_lost(&self, member: &Member) -> bool {
        member.heard_at.elapsed() > self.lost_after
    }

    /// Whether a worker that belongs to the cluster is not there. After a start, workers have some time to join.
    pub(super) fn is_missing(&self, worker: WorkerId) -> bool {
        match self.members.lock().get(&worker) {
            Some(member) => self.is_lost(member),
            None => self.started.elapsed() > self.lost_after,
        }
    }

    pub(super) fn joined(&self, worker: WorkerId, address: &str, instance: &str) {
        let member = Member {
            address: address.to_owned(),
            instance: instance.to_owned(),
            heard_at: Instant::now(),
            report: None,
        };
        self.members.lock().insert(worker, member);
        self.announce();
    }

    /// Returns false if this start of the worker has not joined.
    pub(super) fn reported(&self, report: HeartbeatRequest) -> bool {
        let mut members = self.members.lock();
        let Some(member) = members
            .get_mut(&WorkerId(report.worker_id))
            .filter(|member| member.instance == report.instance)
        else {
            return false;
        };
        let was_live = self.is_live(member);
        member.heard_at = Instant::now();
        member.report = Some(report);
        drop(members);
        if !was_live {
            self.announce();
        }
        true
    }

    /// Whether it reports and does not drain.
    fn is_live(&self, member: &Member) -> bool {
        !self.is_lost(member) && !member.is_draining()
    }

    /// Those that do, ascending.
    pub(super) fn live(&self) -> Vec<WorkerId> {
        self.members
            .lock()
            .iter()
            .filter(|(_, member)| self.is_live(member))
            .map(|(worker, _)| *worker)
            .collect()
    }

    /// Those that live come first.
    pub(super) fn sort_live_first(&self, workers: &mut [WorkerId]) {
        if workers.len() < 2 {
            return; // most rows have one place, and every stream asks
        }
        let members = self.members.lock();
        workers.sort_by_key(|worker| {
            let member = members.get(worker);
            !member.is_some_and(|member| self.is_live(member))
        });
    }

    pub(super) async fn until_live(&self, wanted: usize) {
        let mut changed = self.changed.subscribe();
        while self.live().len() < wanted {
            if changed.changed().await.is_err() {
                return; // the sender is a field of self: it cannot be gone
            }
        }
    }

    fn announce(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}
