use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use volary_flight_proto::control::{Report, WorkerReport};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::context::WorkerContext;
use crate::history::History;
use crate::storage::CollectedGarbage;

use super::failure_log::FailureLog;

/// Time for which a sealed answer is valid. It is long because the clocks of two machines may
/// differ by seconds.
const ANSWER_LIFETIME: Duration = Duration::from_secs(60);

/// Answers the questions for a worker's report, and notes how often they come.
#[derive(Debug)]
pub struct Reporter {
    context: Arc<WorkerContext>,
    instance: String,
    draining: AtomicBool,
    questions: Mutex<Questions>,
    garbage: tokio::sync::Mutex<Garbage>,
}

#[derive(Debug)]
struct Questions {
    stats: QuestionStats,
    failure_log: FailureLog,
}

/// Number and interval of the questions for reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuestionStats {
    pub(super) count: u64,
    /// Interval at which the gateway has said that it will ask.
    pub(super) interval: Duration,
    /// Time of the last question, or of the start of the worker.
    last: Instant,
}

impl Reporter {
    /// Builds the reporter of the worker whose start is `instance`. `question_interval` is how
    /// often a gateway has said that it will ask.
    pub fn new(context: Arc<WorkerContext>, instance: String, question_interval: Duration) -> Self {
        Self {
            context,
            instance,
            draining: AtomicBool::new(false),
            questions: Mutex::new(Questions {
                stats: QuestionStats {
                    count: 0,
                    interval: question_interval,
                    last: Instant::now(),
                },
                failure_log: FailureLog::new("reporting to the gateway"),
            }),
            garbage: tokio::sync::Mutex::new(Garbage::new()),
        }
    }

    /// Answers a gateway of the cluster with a sealed [`WorkerReport`], and begins to delete what
    /// the gateway says is garbage. The garbage is deleted only if the rows here belong to the
    /// history of the gateway's catalog.
    pub async fn answer(&self, question: Report, lineage: Option<Lineage>, commits: u64) -> Bytes {
        {
            let mut questions = self.questions.lock();
            questions.stats.last = Instant::now();
            questions.stats.count = questions.stats.count.wrapping_add(1);
            questions.stats.interval = Duration::from_millis(u64::from(question.next_ms));
            questions.failure_log.record(None);
        }
        let context = &self.context;
        let adopted = context.history.check(lineage.as_ref()).is_ok();
        let deleted_through = self.collect(question, lineage, commits).await;
        let incarnations = if adopted {
            Vec::new()
        } else {
            context.history.incarnations()
        };
        let totals = context.storage.totals();
        let running = context.fragment_admission.running() + context.relay_admission.running();
        let report = WorkerReport {
            worker_id: context.id.0,
            instance: self.instance.clone(),
            running_fragments: u32::try_from(running).unwrap_or(u32::MAX),
            memory_reserved_bytes: context.lookups.memory().reserved_by_others() as u64,
            segments: totals.segments,
            rows: totals.rows,
            bytes: totals.bytes,
            deleted_through,
            heard_commits: context.storage.heard_commits(),
            draining: self.draining.load(Ordering::Relaxed),
            clients_uri: context.clients_uri.clone(),
            incarnations,
            max_write: totals.max_write.map_or(0, |write| write.0),
            unproven: context.storage.unproven(),
            adopted,
        };
        context
            .sealer
            .seal(Purpose::Membership, &report, ANSWER_LIFETIME)
    }

    async fn collect(&self, question: Report, lineage: Option<Lineage>, commits: u64) -> u64 {
        let mut garbage = self.garbage.lock().await;
        garbage.take_collected().await;
        garbage.collect(&self.context, question, lineage, commits);
        garbage.deleted_through
    }

    /// Returns the id of this start of the worker.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the time since the last question of a gateway, or since the start of the worker.
    pub(crate) fn since_last_question(&self) -> Duration {
        self.questions.lock().stats.last.elapsed()
    }

    /// Returns whether the worker is about to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(super) fn question_stats(&self) -> QuestionStats {
        self.questions.lock().stats
    }

    /// Notes how often a gateway has said that it will ask.
    pub(super) fn set_question_interval(&self, every: Duration) {
        self.questions.lock().stats.interval = every;
    }

    /// Notes that no gateway asks, and that joining again failed with this error.
    pub(super) fn record_join_failure(&self, error: &Error) {
        self.questions.lock().failure_log.record(Some(error));
    }

    /// Makes all later reports say that the worker is about to stop.
    pub(super) fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Garbage {
    /// The running deletion. It runs beside the answers, because it may take longer than a gateway
    /// waits for an answer.
    collecting: Option<JoinHandle<CollectedGarbage>>,
    /// The last abort up to which all rows of failed writes are deleted.
    deleted_through: u64,
    failure_log: FailureLog,
}

impl Garbage {
    fn new() -> Self {
        Self {
            collecting: None,
            deleted_through: 0,
            failure_log: FailureLog::new("deleting dropped tables and aborted writes"),
        }
    }

    async fn take_collected(&mut self) {
        let Some(task) = self.collecting.as_mut().filter(|task| task.is_finished()) else {
            return;
        };
        let collected = task.await.unwrap_or_else(|source| CollectedGarbage {
            failure: Some(Error::with_source(
                ErrorCode::Internal,
                "deleting panicked",
                source,
            )),
            ..CollectedGarbage::default()
        });
        self.collecting = None;
        self.failure_log.record(collected.failure.as_ref());
        self.deleted_through = collected.deleted_through.unwrap_or(self.deleted_through);
    }

    fn collect(
        &mut self,
        context: &WorkerContext,
        question: Report,
        lineage: Option<Lineage>,
        commits: u64,
    ) {
        if self.collecting.is_some() {
            return;
        }
        let (storage, history) = (context.storage.clone(), Arc::clone(&context.history));
        let work = move || match reconcile_history(&history, &question, lineage.as_ref(), commits) {
            Ok(()) => {
                if let Some(snapshot) = &question.snapshot {
                    storage.note_committed(snapshot.clone());
                }
                if let Some(horizon) = &question.horizon {
                    storage.note_horizon(horizon);
                    storage.note_expiries(question.horizon_us, &question.expiries);
                }
                let recorded = storage.record_commits();
                let mut collected = storage.collect(&question);
                collected.failure = recorded.err().or(collected.failure);
                collected
            }
            // The worker is not at fault here: the gateway says what is wrong.
            Err(error) if error.code() == ErrorCode::Unavailable => CollectedGarbage::default(),
            Err(error) => CollectedGarbage {
                failure: Some(error),
                ..CollectedGarbage::default()
            },
        };
        self.collecting = Some(tokio::task::spawn_blocking(work));
    }
}

/// Checks that the rows here belong to the history of the gateway's catalog. If the question asks
/// for it, the rows that the catalog does not have are set aside first.
fn reconcile_history(
    history: &History,
    question: &Report,
    lineage: Option<&Lineage>,
    commits: u64,
) -> Result<()> {
    if let Some(lineage) = lineage.filter(|_| question.set_aside) {
        let aborted = WriteSet::from_bounds(&question.aborted_bounds);
        history.set_aside(lineage, &aborted)?;
    }
    history.hear(lineage, commits)
}
