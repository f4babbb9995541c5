//! Remembers which workers have joined or answered since the gateway started, and when the gateway
//! last heard from each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use volary_flight_proto::control::{ShardName, WorkerReport};
use volary_flight_proto::ids::WorkerId;

/// Maximum number of questions for reports that a gateway asks per second, over all workers. Each
/// question costs the gateway about a tenth of a millisecond of a core.
const QUESTIONS_PER_SECOND: u32 = 500;
/// Shortest time between two questions.
const SHORTEST_GAP: Duration = Duration::from_millis(1_000 / QUESTIONS_PER_SECOND as u64);
/// Number of questions that a worker must leave unanswered before it is lost. Their deadlines are
/// short enough that all of them end within the time after which a worker is lost. One unanswered
/// question proves nothing: this gateway itself may have stood still while the answer was waiting.
const UNANSWERED: u32 = 2;

/// The workers that have joined or answered since the gateway started.
#[derive(Debug)]
pub(super) struct Members {
    started: Instant,
    heartbeat_interval: Duration,
    lost_after: Duration,
    members: Mutex<BTreeMap<WorkerId, Member>>,
    /// Workers that are to be asked before their turn.
    asked_soon: Mutex<BTreeSet<WorkerId>>,
    /// Number of workers that are asked.
    count: AtomicU32,
    /// Counts the joins, and the answers after which more workers may be alive than before.
    changed: watch::Sender<u64>,
}

/// A worker that has joined or answered since the gateway started.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) address: String,
    /// Name of this start of the worker process.
    pub(super) instance: String,
    pub(super) heard_at: Instant,
    /// Last report of the worker. `None` between its join and its first report.
    pub(super) report: Option<WorkerReport>,
    is_draining: bool,
    silence: Option<Silence>,
}

/// The unanswered questions since the gateway last heard from a worker.
#[derive(Debug, Clone, Copy)]
struct Silence {
    /// Time at which the first of these questions was sent.
    since: Instant,
    /// Number of these questions that were given up.
    unanswered: u32,
}

/// Says which process has answered a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The known start of the worker.
    Expected,
    /// A start of the worker that was not known. It has replaced the known start, if there was one.
    OfAnotherStart,
    /// A process at an address that the worker has left.
    OfAStranger,
}

impl Member {
    fn new(address: &str, instance: &str) -> Self {
        Self {
            address: address.to_owned(),
            instance: instance.to_owned(),
            heard_at: Instant::now(),
            report: None,
            is_draining: false,
            silence: None,
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    fn hear(&mut self, report: WorkerReport) {
        self.heard_at = Instant::now();
        self.silence = None;
        // A worker that has said that it leaves stays draining. A report that it made before may
        // arrive afterwards.
        self.is_draining |= report.draining;
        self.report = Some(report);
    }
}

impl Members {
    pub(super) fn new(heartbeat_interval: Duration, lost_after: Duration) -> Self {
        Self {
            started: Instant::now(),
            heartbeat_interval,
            lost_after,
            members: Mutex::default(),
            asked_soon: Mutex::default(),
            count: AtomicU32::new(0),
            changed: watch::Sender::new(0),
        }
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<Member> {
        self.members.lock().get(&worker).cloned()
    }

    /// Returns the shards about which the worker has asked what they should hold.
    pub(super) fn unproven(&self, worker: WorkerId) -> Vec<ShardName> {
        let members = self.members.lock();
        let report = members
            .get(&worker)
            .and_then(|member| member.report.as_ref());
        report.map_or_else(Vec::new, |report| report.unproven.clone())
    }

    /// Returns how often each worker is currently asked. Each of thousands of workers is asked less
    /// often than each of a few.
    pub(super) fn pace(&self) -> Duration {
        let of_many = SHORTEST_GAP * self.count.load(Ordering::Relaxed);
        self.heartbeat_interval.max(of_many)
    }

    /// Returns the time between two questions, whichever workers they are for. The questions to all
    /// workers are spread evenly over time.
    pub(super) fn gap(&self) -> Duration {
        if !self.asked_soon.lock().is_empty() {
            return SHORTEST_GAP;
        }
        let gap = self.pace() / self.count.load(Ordering::Relaxed).max(1);
        gap.max(SHORTEST_GAP)
    }

    /// Returns the time after which a question is given up.
    pub(super) fn deadline(&self) -> Duration {
        self.patience() / UNANSWERED
    }

    /// Returns whether the worker was asked and has not answered for too long.
    pub(super) fn is_lost(&self, member: &Member) -> bool {
        member.silence.is_some_and(|silence| {
            silence.unanswered >= UNANSWERED && silence.since.elapsed() > self.patience()
        })
    }

    fn patience(&self) -> Duration {
        self.lost_after + (self.pace() - self.heartbeat_interval)
    }

    /// Returns whether a worker of the cluster is missing: it is lost, or it has neither joined nor
    /// answered since the gateway started. After a start of the gateway, workers have some time to
    /// join or answer.
    pub(super) fn is_missing(&self, worker: WorkerId) -> bool {
        match self.members.lock().get(&worker) {
            Some(member) => self.is_lost(member),
            None => self.started.elapsed() > self.patience(),
        }
    }

    /// Notes that a worker has joined. Returns false if this start of the worker was known already.
    /// Such a worker joins again because nobody has asked it. A lost worker stays lost until it
    /// answers, because its join does not show whether the gateway can reach it.
    pub(super) fn joined(&self, worker: WorkerId, address: &str, instance: &str) -> bool {
        let mut members = self.members.lock();
        let is_new = match members.get_mut(&worker) {
            Some(known) if known.instance == instance && known.address == address => {
                known.heard_at = Instant::now();
                false
            }
            _ => {
                self.put(&mut members, worker, Member::new(address, instance));
                true
            }
        };
        drop(members);
        self.ask_soon([worker]);
        self.announce();
        is_new
    }

    fn put(&self, members: &mut BTreeMap<WorkerId, Member>, worker: WorkerId, member: Member) {
        members.insert(worker, member);
        self.count
            .fetch_max(count(members.len()), Ordering::Relaxed);
    }

    /// Sets the number of workers that are asked.
    pub(super) fn set_count(&self, asked: usize) {
        self.count.store(count(asked), Ordering::Relaxed);
    }

    pub(super) fn ask_soon(&self, workers: impl IntoIterator<Item = WorkerId>) {
        self.asked_soon.lock().extend(workers);
    }

    /// Removes and returns one of the workers that are to be asked before their turn.
    pub(super) fn next_asked_soon(&self) -> Option<WorkerId> {
        self.asked_soon.lock().pop_first()
    }

    /// Notes that a question is sent to the worker.
    pub(super) fn asked(&self, worker: WorkerId) {
        if let Some(member) = self.members.lock().get_mut(&worker) {
            member.silence.get_or_insert_with(|| Silence {
                since: Instant::now(),
                unanswered: 0,
            });
        }
    }

    /// Notes that a question was given up. Returns how many questions were given up since the
    /// gateway last heard from the worker.
    pub(super) fn unanswered(&self, worker: WorkerId) -> u32 {
        let mut members = self.members.lock();
        let Some(silence) = members
            .get_mut(&worker)
            .and_then(|member| member.silence.as_mut())
        else {
            return 0;
        };
        silence.unanswered = silence.unanswered.saturating_add(1);
        silence.unanswered
    }

    /// Notes that the process at `address` has answered a question. An unknown start of the worker
    /// at the address of the known start is treated as if it had joined: it must have replaced the
    /// known start. An unknown start at another address is not believed. If no start is known, the
    /// first one that answers is believed.
    pub(super) fn answered(&self, address: &str, report: WorkerReport) -> Answer {
        let worker = WorkerId(report.worker_id);
        let mut members = self.members.lock();
        if let Some(member) = members.get_mut(&worker) {
            if member.instance == report.instance {
                let was_live = self.is_live(member);
                member.hear(report);
                drop(members);
                if !was_live {
                    self.announce();
                }
                return Answer::Expected;
            }
            if member.address != address {
                return Answer::OfAStranger;
            }
        }
        let mut member = Member::new(address, &report.instance);
        member.hear(report);
        self.put(&mut members, worker, member);
        drop(members);
        self.announce();
        Answer::OfAnotherStart
    }

    /// Notes that a start of a worker is going to stop.
    pub(super) fn leaves(&self, worker: WorkerId, instance: &str) {
        if let Some(member) = self.members.lock().get_mut(&worker)
            && member.instance == instance
        {
            member.is_draining = true;
        }
    }

    pub(super) fn is_draining(&self, worker: WorkerId) -> bool {
        let members = self.members.lock();
        members.get(&worker).is_some_and(Member::is_draining)
    }

    /// Returns whether the worker is not lost and does not drain.
    fn is_live(&self, member: &Member) -> bool {
        !self.is_lost(member) && !member.is_draining()
    }

    /// Returns the workers that are alive and do not drain, in ascending order.
    pub(super) fn live(&self) -> Vec<WorkerId> {
        self.members
            .lock()
            .iter()
            .filter(|(_, member)| self.is_live(member))
            .map(|(worker, _)| *worker)
            .collect()
    }

    /// Sorts the workers that are alive and do not drain before the others.
    pub(super) fn sort_live_first(&self, workers: &mut [WorkerId]) {
        if workers.len() < 2 {
            return; // most shards have one replica, and every stream calls this
        }
        let members = self.members.lock();
        workers.sort_by_key(|worker| {
            let member = members.get(worker);
            !member.is_some_and(|member| self.is_live(member))
        });
    }

    /// Returns a receiver that is woken by joins, and by answers after which more workers may be
    /// alive than before.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) async fn until_live(&self, wanted: usize) {
        let mut changed = self.changes();
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

fn count(workers: usize) -> u32 {
    u32::try_from(workers).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(1);
    const ADDRESS: &str = "127.0.0.1:1";

    fn report(instance: &str) -> WorkerReport {
        WorkerReport {
            worker_id: WORKER.0,
            instance: instance.to_owned(),
            ..WorkerReport::default()
        }
    }

    /// Returns the members of a cluster with one worker, which counts as lost as early as the rules
    /// allow.
    fn impatient() -> Members {
        let members = Members::new(SHORTEST_GAP, Duration::ZERO);
        members.joined(WORKER, ADDRESS, "first");
        members
    }

    fn is_live(members: &Members) -> bool {
        members.live() == [WORKER]
    }

    #[test]
    fn thousands_of_workers_are_asked_less_often_and_waited_for_longer() {
        let members = Members::new(Duration::from_secs(1), Duration::from_secs(5));
        members.joined(WORKER, ADDRESS, "first");
        while members.next_asked_soon().is_some() {}
        assert_eq!(members.pace(), Duration::from_secs(1));
        assert_eq!(members.gap(), Duration::from_secs(1));
        assert_eq!(members.patience(), Duration::from_secs(5));
        for worker in 2..=2_000 {
            members.joined(WorkerId(worker), ADDRESS, "first");
        }
        while members.next_asked_soon().is_some() {}
        assert_eq!(members.pace(), Duration::from_secs(4));
        assert_eq!(members.gap(), Duration::from_millis(2));
        assert_eq!(members.patience(), Duration::from_secs(8));
        assert_eq!(members.deadline(), Duration::from_secs(4));
    }

    #[test]
    fn one_that_joins_is_asked_before_it_is_its_turn() {
        let members = Members::new(Duration::from_secs(10), Duration::from_secs(20));
        assert_eq!(members.next_asked_soon(), None);
        assert_eq!(members.gap(), Duration::from_secs(10));
        members.joined(WORKER, ADDRESS, "first");
        assert_eq!(members.gap(), SHORTEST_GAP);
        assert_eq!(members.next_asked_soon(), Some(WORKER));
        assert_eq!(members.next_asked_soon(), None);
    }

    #[test]
    fn a_worker_is_lost_when_it_was_asked_twice_and_not_before() {
        let members = impatient();
        assert!(is_live(&members), "nobody has asked it");
        members.asked(WORKER);
        assert!(is_live(&members), "it may still answer");
        members.unanswered(WORKER);
        members.asked(WORKER);
        assert!(is_live(&members), "the gateway may have stood still");
        members.unanswered(WORKER);
        assert!(!is_live(&members));
        assert!(members.is_missing(WORKER));
        // The worker is alive again when it answers, and also when a new start of it joins.
        assert_eq!(members.answered(ADDRESS, report("first")), Answer::Expected);
        assert!(is_live(&members));
        for _ in 0..2 {
            members.asked(WORKER);
            members.unanswered(WORKER);
        }
        assert!(!is_live(&members));
        members.joined(WORKER, ADDRESS, "second");
        assert!(is_live(&members));
    }

    #[test]
    fn a_worker_that_does_not_answer_is_waited_for() {
        let members = Members::new(Duration::from_secs(1), Duration::from_secs(3600));
        members.joined(WORKER, ADDRESS, "first");
        for _ in 0..10 {
            members.asked(WORKER);
            members.unanswered(WORKER);
        }
        assert!(is_live(&members));
    }

    #[test]
    fn another_start_is_believed_at_the_known_address_and_at_no_other() {
        let members = impatient();
        let instance = || members.get(WORKER).map(|member| member.instance);
        assert_eq!(
            members.answered("127.0.0.1:2", report("second")),
            Answer::OfAStranger
        );
        assert_eq!(instance().as_deref(), Some("first"));
        assert_eq!(
            members.answered(ADDRESS, report("second")),
            Answer::OfAnotherStart
        );
        assert_eq!(instance().as_deref(), Some("second"));
    }

    #[test]
    fn the_first_start_that_answers_after_a_start_of_the_gateway_is_believed() {
        let members = Members::new(Duration::from_secs(1), Duration::from_secs(5));
        assert!(!is_live(&members));
        assert_eq!(
            members.answered(ADDRESS, report("first")),
            Answer::OfAnotherStart
        );
        assert!(is_live(&members));
        assert_eq!(
            members.answered("127.0.0.1:2", report("second")),
            Answer::OfAStranger
        );
    }

    #[test]
    fn one_that_leaves_drains_whatever_it_answered_before_until_it_starts_again() {
        let members = impatient();
        members.leaves(WORKER, "another");
        assert!(!members.is_draining(WORKER));
        members.leaves(WORKER, "first");
        members.answered(ADDRESS, report("first"));
        assert!(members.is_draining(WORKER));
        assert!(!is_live(&members));
        members.joined(WORKER, ADDRESS, "second");
        assert!(is_live(&members));
        let draining = WorkerReport {
            draining: true,
            ..report("second")
        };
        members.answered(ADDRESS, draining);
        assert!(members.is_draining(WORKER));
    }

    #[test]
    fn one_that_joins_again_is_what_it_was_until_it_answers() {
        let members = impatient();
        let has_report = || {
            members
                .get(WORKER)
                .is_some_and(|member| member.report.is_some())
        };
        members.answered(ADDRESS, report("first"));
        for _ in 0..2 {
            members.asked(WORKER);
            members.unanswered(WORKER);
        }
        assert!(!members.joined(WORKER, ADDRESS, "first"));
        assert!(has_report());
        assert!(!is_live(&members), "it may be that it cannot be reached");
        members.answered(ADDRESS, report("first"));
        assert!(is_live(&members));
        assert!(members.joined(WORKER, ADDRESS, "second"));
        assert!(!has_report());
    }
}
