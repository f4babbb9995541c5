use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use volary_flight_proto::control::{ShardName, WorkerReport};
use volary_flight_proto::ids::WorkerId;

/// Maximum number of questions that a gateway asks per second, over all workers. A question is a
/// request for a worker's report. It costs the gateway about 0.1 ms of CPU time.
const MAX_QUESTIONS_PER_SECOND: u32 = 500;
/// Shortest time between two questions.
const MIN_QUESTION_GAP: Duration = Duration::from_millis(1_000 / MAX_QUESTIONS_PER_SECOND as u64);
/// Number of questions that a worker must leave unanswered before it is lost. Their deadlines are
/// short enough that all of them end within the time after which a worker is lost. One unanswered
/// question proves nothing: this gateway itself may have stood still while the answer was waiting.
const LOST_AFTER_UNANSWERED: u32 = 2;

/// The workers that have joined or answered since the gateway started.
#[derive(Debug)]
pub(super) struct KnownWorkers {
    started: Instant,
    heartbeat_interval: Duration,
    lost_after: Duration,
    by_id: Mutex<BTreeMap<WorkerId, KnownWorker>>,
    /// Workers that are asked next, before their turn.
    to_ask_soon: Mutex<BTreeSet<WorkerId>>,
    /// Number of workers among which the questions are spread.
    asked_workers: AtomicU32,
    /// Counts the joins, and the answers that may have raised the number of live workers.
    change_count: watch::Sender<u64>,
}

/// A worker that has joined or answered since the gateway started.
#[derive(Debug, Clone)]
pub(super) struct KnownWorker {
    pub(super) address: String,
    /// Id of the worker process. A restarted worker has a new id.
    pub(super) instance: String,
    pub(super) heard_at: Instant,
    /// Last report of the worker. `None` between its join and its first report.
    pub(super) report: Option<WorkerReport>,
    is_draining: bool,
    silence: Option<Silence>,
}

/// The questions to a worker since its last answer.
#[derive(Debug, Clone, Copy)]
struct Silence {
    /// Time at which the first question was sent.
    since: Instant,
    /// Number of questions that have failed.
    failed_questions: u32,
}

/// Says which process has answered a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Responder {
    /// The known instance of the worker.
    KnownInstance,
    /// An unknown instance of the worker. It has replaced the known instance, if there was one.
    NewInstance,
    /// An unknown instance at another address than the known instance.
    Stranger,
}

impl KnownWorker {
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

    fn note_report(&mut self, report: WorkerReport) {
        self.heard_at = Instant::now();
        self.silence = None;
        // A worker that has left stays draining, because a report from before may arrive later.
        self.is_draining |= report.draining;
        self.report = Some(report);
    }
}

impl KnownWorkers {
    pub(super) fn new(heartbeat_interval: Duration, lost_after: Duration) -> Self {
        Self {
            started: Instant::now(),
            heartbeat_interval,
            lost_after,
            by_id: Mutex::default(),
            to_ask_soon: Mutex::default(),
            asked_workers: AtomicU32::new(0),
            change_count: watch::Sender::new(0),
        }
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<KnownWorker> {
        self.by_id.lock().get(&worker).cloned()
    }

    /// Returns the shards whose expected content the worker has asked for.
    pub(super) fn unproven_shards(&self, worker: WorkerId) -> Vec<ShardName> {
        let members = self.by_id.lock();
        let report = members
            .get(&worker)
            .and_then(|member| member.report.as_ref());
        report.map_or_else(Vec::new, |report| report.unproven.clone())
    }

    /// Returns the interval at which each worker is currently asked. It is longer if there are
    /// thousands of workers.
    pub(super) fn ask_interval(&self) -> Duration {
        let shortest = MIN_QUESTION_GAP * self.asked_workers.load(Ordering::Relaxed);
        self.heartbeat_interval.max(shortest)
    }

    /// Returns the time between two consecutive questions, which usually go to different workers.
    /// The questions are spread evenly over time.
    pub(super) fn question_gap(&self) -> Duration {
        if !self.to_ask_soon.lock().is_empty() {
            return MIN_QUESTION_GAP;
        }
        let gap = self.ask_interval() / self.asked_workers.load(Ordering::Relaxed).max(1);
        gap.max(MIN_QUESTION_GAP)
    }

    /// Returns the deadline of a question.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.lost_timeout() / LOST_AFTER_UNANSWERED
    }

    /// Returns whether the worker was asked and has not answered for too long.
    pub(super) fn is_lost(&self, member: &KnownWorker) -> bool {
        member.silence.is_some_and(|silence| {
            silence.failed_questions >= LOST_AFTER_UNANSWERED
                && silence.since.elapsed() > self.lost_timeout()
        })
    }

    fn lost_timeout(&self) -> Duration {
        self.lost_after + (self.ask_interval() - self.heartbeat_interval)
    }

    /// Returns whether a worker of the cluster is missing: it is lost, or it has neither joined nor
    /// answered since the gateway started, although it has had the time after which a worker is
    /// lost.
    pub(super) fn is_missing(&self, worker: WorkerId) -> bool {
        match self.by_id.lock().get(&worker) {
            Some(member) => self.is_lost(member),
            None => self.started.elapsed() > self.lost_timeout(),
        }
    }

    /// Notes that a worker has joined. Returns false if this instance was known already at this
    /// address. Such a worker joins again because nobody has asked it. If it is lost, it stays lost
    /// until it answers, because its join does not show whether the gateway can reach it.
    pub(super) fn note_join(&self, worker: WorkerId, address: &str, instance: &str) -> bool {
        let mut members = self.by_id.lock();
        let is_new = match members.get_mut(&worker) {
            Some(known) if known.instance == instance && known.address == address => {
                known.heard_at = Instant::now();
                false
            }
            _ => {
                self.insert(&mut members, worker, KnownWorker::new(address, instance));
                true
            }
        };
        drop(members);
        self.ask_soon([worker]);
        self.announce_change();
        is_new
    }

    fn insert(
        &self,
        members: &mut BTreeMap<WorkerId, KnownWorker>,
        worker: WorkerId,
        member: KnownWorker,
    ) {
        members.insert(worker, member);
        self.asked_workers
            .fetch_max(count(members.len()), Ordering::Relaxed);
    }

    /// Sets the number of workers among which the questions are spread.
    pub(super) fn set_asked_workers(&self, asked: usize) {
        self.asked_workers.store(count(asked), Ordering::Relaxed);
    }

    pub(super) fn ask_soon(&self, workers: impl IntoIterator<Item = WorkerId>) {
        self.to_ask_soon.lock().extend(workers);
    }

    /// Removes and returns one of the workers that are asked before their turn.
    pub(super) fn next_to_ask_soon(&self) -> Option<WorkerId> {
        self.to_ask_soon.lock().pop_first()
    }

    /// Notes that a question is sent to the worker.
    pub(super) fn note_question(&self, worker: WorkerId) {
        if let Some(member) = self.by_id.lock().get_mut(&worker) {
            member.silence.get_or_insert_with(|| Silence {
                since: Instant::now(),
                failed_questions: 0,
            });
        }
    }

    /// Notes that a question has failed. Returns how many questions have failed since the last
    /// answer of the worker.
    pub(super) fn note_failed_question(&self, worker: WorkerId) -> u32 {
        let mut members = self.by_id.lock();
        let Some(silence) = members
            .get_mut(&worker)
            .and_then(|member| member.silence.as_mut())
        else {
            return 0;
        };
        silence.failed_questions = silence.failed_questions.saturating_add(1);
        silence.failed_questions
    }

    /// Notes that the process at `address` has answered a question. An unknown instance at the
    /// address of the known instance must have replaced it, and is treated as if it had joined. An
    /// unknown instance at another address is ignored. If no instance is known, the first one that
    /// answers is accepted.
    pub(super) fn note_answer(&self, address: &str, report: WorkerReport) -> Responder {
        let worker = WorkerId(report.worker_id);
        let mut members = self.by_id.lock();
        if let Some(member) = members.get_mut(&worker) {
            if member.instance == report.instance {
                let was_live = self.is_live(member);
                member.note_report(report);
                drop(members);
                if !was_live {
                    self.announce_change();
                }
                return Responder::KnownInstance;
            }
            if member.address != address {
                return Responder::Stranger;
            }
        }
        let mut member = KnownWorker::new(address, &report.instance);
        member.note_report(report);
        self.insert(&mut members, worker, member);
        drop(members);
        self.announce_change();
        Responder::NewInstance
    }

    /// Notes that an instance of a worker is going to stop.
    pub(super) fn note_leave(&self, worker: WorkerId, instance: &str) {
        if let Some(member) = self.by_id.lock().get_mut(&worker)
            && member.instance == instance
        {
            member.is_draining = true;
        }
    }

    pub(super) fn is_draining(&self, worker: WorkerId) -> bool {
        let members = self.by_id.lock();
        members.get(&worker).is_some_and(KnownWorker::is_draining)
    }

    /// Returns whether the worker is not lost and does not drain.
    fn is_live(&self, member: &KnownWorker) -> bool {
        !self.is_lost(member) && !member.is_draining()
    }

    /// Returns the workers that are alive and do not drain, in ascending order.
    pub(super) fn live_workers(&self) -> Vec<WorkerId> {
        self.by_id
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
        let members = self.by_id.lock();
        workers.sort_by_key(|worker| {
            let member = members.get(worker);
            !member.is_some_and(|member| self.is_live(member))
        });
    }

    /// Returns a receiver that is woken by joins, and by answers that may have raised the number of
    /// live workers.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.change_count.subscribe()
    }

    pub(super) async fn wait_for_live(&self, wanted: usize) {
        let mut changed = self.changes();
        while self.live_workers().len() < wanted {
            if changed.changed().await.is_err() {
                return; // the sender is a field of self: it cannot be gone
            }
        }
    }

    fn announce_change(&self) {
        self.change_count
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

    /// Returns the list of a single worker, which counts as lost as early as possible.
    fn impatient() -> KnownWorkers {
        let members = KnownWorkers::new(MIN_QUESTION_GAP, Duration::ZERO);
        members.note_join(WORKER, ADDRESS, "first");
        members
    }

    fn is_live(members: &KnownWorkers) -> bool {
        members.live_workers() == [WORKER]
    }

    #[test]
    fn thousands_of_workers_are_asked_less_often_and_waited_for_longer() {
        let members = KnownWorkers::new(Duration::from_secs(1), Duration::from_secs(5));
        members.note_join(WORKER, ADDRESS, "first");
        while members.next_to_ask_soon().is_some() {}
        assert_eq!(members.ask_interval(), Duration::from_secs(1));
        assert_eq!(members.question_gap(), Duration::from_secs(1));
        assert_eq!(members.lost_timeout(), Duration::from_secs(5));
        for worker in 2..=2_000 {
            members.note_join(WorkerId(worker), ADDRESS, "first");
        }
        while members.next_to_ask_soon().is_some() {}
        assert_eq!(members.ask_interval(), Duration::from_secs(4));
        assert_eq!(members.question_gap(), Duration::from_millis(2));
        assert_eq!(members.lost_timeout(), Duration::from_secs(8));
        assert_eq!(members.answer_timeout(), Duration::from_secs(4));
    }

    #[test]
    fn one_that_joins_is_asked_before_it_is_its_turn() {
        let members = KnownWorkers::new(Duration::from_secs(10), Duration::from_secs(20));
        assert_eq!(members.next_to_ask_soon(), None);
        assert_eq!(members.question_gap(), Duration::from_secs(10));
        members.note_join(WORKER, ADDRESS, "first");
        assert_eq!(members.question_gap(), MIN_QUESTION_GAP);
        assert_eq!(members.next_to_ask_soon(), Some(WORKER));
        assert_eq!(members.next_to_ask_soon(), None);
    }

    #[test]
    fn a_worker_is_lost_when_it_was_asked_twice_and_not_before() {
        let members = impatient();
        assert!(is_live(&members), "nobody has asked it");
        members.note_question(WORKER);
        assert!(is_live(&members), "it may still answer");
        members.note_failed_question(WORKER);
        members.note_question(WORKER);
        assert!(is_live(&members), "the gateway may have stood still");
        members.note_failed_question(WORKER);
        assert!(!is_live(&members));
        assert!(members.is_missing(WORKER));
        // The worker is alive again when it answers, and also when a new instance of it joins.
        assert_eq!(
            members.note_answer(ADDRESS, report("first")),
            Responder::KnownInstance
        );
        assert!(is_live(&members));
        for _ in 0..2 {
            members.note_question(WORKER);
            members.note_failed_question(WORKER);
        }
        assert!(!is_live(&members));
        members.note_join(WORKER, ADDRESS, "second");
        assert!(is_live(&members));
    }

    #[test]
    fn a_worker_that_does_not_answer_is_waited_for() {
        let members = KnownWorkers::new(Duration::from_secs(1), Duration::from_secs(3600));
        members.note_join(WORKER, ADDRESS, "first");
        for _ in 0..10 {
            members.note_question(WORKER);
            members.note_failed_question(WORKER);
        }
        assert!(is_live(&members));
    }

    #[test]
    fn another_start_is_believed_at_the_known_address_and_at_no_other() {
        let members = impatient();
        let instance = || members.get(WORKER).map(|member| member.instance);
        assert_eq!(
            members.note_answer("127.0.0.1:2", report("second")),
            Responder::Stranger
        );
        assert_eq!(instance().as_deref(), Some("first"));
        assert_eq!(
            members.note_answer(ADDRESS, report("second")),
            Responder::NewInstance
        );
        assert_eq!(instance().as_deref(), Some("second"));
    }

    #[test]
    fn the_first_start_that_answers_after_a_start_of_the_gateway_is_believed() {
        let members = KnownWorkers::new(Duration::from_secs(1), Duration::from_secs(5));
        assert!(!is_live(&members));
        assert_eq!(
            members.note_answer(ADDRESS, report("first")),
            Responder::NewInstance
        );
        assert!(is_live(&members));
        assert_eq!(
            members.note_answer("127.0.0.1:2", report("second")),
            Responder::Stranger
        );
    }

    #[test]
    fn one_that_leaves_drains_whatever_it_answered_before_until_it_starts_again() {
        let members = impatient();
        members.note_leave(WORKER, "another");
        assert!(!members.is_draining(WORKER));
        members.note_leave(WORKER, "first");
        members.note_answer(ADDRESS, report("first"));
        assert!(members.is_draining(WORKER));
        assert!(!is_live(&members));
        members.note_join(WORKER, ADDRESS, "second");
        assert!(is_live(&members));
        let draining = WorkerReport {
            draining: true,
            ..report("second")
        };
        members.note_answer(ADDRESS, draining);
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
        members.note_answer(ADDRESS, report("first"));
        for _ in 0..2 {
            members.note_question(WORKER);
            members.note_failed_question(WORKER);
        }
        assert!(!members.note_join(WORKER, ADDRESS, "first"));
        assert!(has_report());
        assert!(!is_live(&members), "it may be that it cannot be reached");
        members.note_answer(ADDRESS, report("first"));
        assert!(is_live(&members));
        assert!(members.note_join(WORKER, ADDRESS, "second"));
        assert!(!has_report());
    }
}
