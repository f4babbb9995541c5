//! Which workers have joined since the gateway started, and when each was last heard of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::membership::HeartbeatRequest;

/// Reports of all workers that a gateway takes in a second: each costs it about a tenth of a millisecond of a core.
const REPORTS_PER_SECOND: u32 = 500;

/// The workers that have joined since the gateway started.
#[derive(Debug)]
pub(super) struct Members {
    started: Instant,
    heartbeat_interval: Duration,
    lost_after: Duration,
    members: Mutex<BTreeMap<WorkerId, Member>>,
    count: AtomicU32,
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
    pub(super) fn new(heartbeat_interval: Duration, lost_after: Duration) -> Self {
        Self {
            started: Instant::now(),
            heartbeat_interval,
            lost_after,
            members: Mutex::default(),
            count: AtomicU32::new(0),
            changed: watch::Sender::new(0),
        }
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<Member> {
        self.members.lock().get(&worker).cloned()
    }

    /// How often each worker reports now: thousands of them less often than a few.
    pub(super) fn pace(&self) -> Duration {
        let count = self.count.load(Ordering::Relaxed);
        let of_many = Duration::from_secs(1) * count / REPORTS_PER_SECOND;
        self.heartbeat_interval.max(of_many)
    }

    /// Whether it was not heard of for too long.
    pub(super) fn is_lost(&self, member: &Member) -> bool {
        member.heard_at.elapsed() > self.patience()
    }

    fn patience(&self) -> Duration {
        self.lost_after + (self.pace() - self.heartbeat_interval)
    }

    /// Whether a worker that belongs to the cluster is not there. After a start, workers have some time to join.
    pub(super) fn is_missing(&self, worker: WorkerId) -> bool {
        match self.members.lock().get(&worker) {
            Some(member) => self.is_lost(member),
            None => self.started.elapsed() > self.patience(),
        }
    }

    pub(super) fn joined(&self, worker: WorkerId, address: &str, instance: &str) {
        let member = Member {
            address: address.to_owned(),
            instance: instance.to_owned(),
            heard_at: Instant::now(),
            report: None,
        };
        let mut members = self.members.lock();
        members.insert(worker, member);
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        self.count.store(count, Ordering::Relaxed);
        drop(members);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_workers_report_less_often_and_are_waited_for_longer() {
        let members = Members::new(Duration::from_secs(1), Duration::from_secs(5));
        members.joined(WorkerId(1), "127.0.0.1:1", "first");
        assert_eq!(members.pace(), Duration::from_secs(1));
        assert_eq!(members.patience(), Duration::from_secs(5));
        for worker in 2..=2_000 {
            members.joined(WorkerId(worker), "127.0.0.1:1", "first");
        }
        assert_eq!(members.pace(), Duration::from_secs(4));
        assert_eq!(members.patience(), Duration::from_secs(8));
    }
}
