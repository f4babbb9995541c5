//! The gateway asks for a report over the connection that it has to the worker anyway. If workers
//! sent reports on their own initiative, each would need a connection in the other direction. Such
//! a connection takes 65 KiB of the gateway's memory and a file descriptor, and there are thousands
//! of workers. The gateway asks all workers that the catalog knows, alive or not. So a gateway that
//! has just started, or that has lost a worker, learns from an answer that the worker is alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use volary_catalog::CatalogState;
use volary_flight_proto::control::{Report, ShardContent, ShardName, WorkerReport, control};
use volary_flight_proto::ids::{TableId, WorkerId};
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Cluster;
use super::horizon::PastState;
use super::known_workers::Responder;
use crate::statements::Statements;

/// Minimum time between two turns. Each turn wakes up threads of the gateway, and each question
/// threads of a worker. With thousands of workers, the gateway therefore asks several in one turn.
const MIN_TURN: Duration = Duration::from_millis(20);
/// Maximum delay of a question that does not delay the next question. Timers are not exact. After a
/// longer delay the gateway does not catch up, because it would ask many workers at once.
const MAX_CATCH_UP: Duration = Duration::from_millis(20);
/// Number of consecutive failed questions after which the failure is logged. A single question may
/// fail just because a worker is stopping or starting.
const LOG_AFTER_FAILURES: u32 = 2;

impl Cluster {
    /// Asks the workers for their reports until `stopping` is cancelled. Call it once, on the
    /// health runtime.
    pub(crate) async fn ask_workers(
        self: Arc<Self>,
        statements: Arc<Statements>,
        stopping: CancellationToken,
    ) {
        let asking = self.ask_in_turn(&statements);
        stopping.run_until_cancelled(asking).await;
    }

    async fn ask_in_turn(&self, statements: &Statements) {
        let mut changes = self.known_workers.changes();
        let recorded = self.recorded_workers();
        self.known_workers.set_asked_workers(recorded.len());
        self.known_workers.ask_soon(recorded);
        let mut round: IntoIter<WorkerId> = Vec::new().into_iter();
        let mut last_turn = Instant::now();
        // Each worker has at most one open question. So a worker that hangs costs only one call,
        // and does not delay the others.
        let mut asked: BTreeSet<WorkerId> = BTreeSet::new();
        let mut ask_again: BTreeSet<WorkerId> = BTreeSet::new();
        let mut answers: FuturesUnordered<BoxFuture<'_, (WorkerId, Result<()>)>> =
            FuturesUnordered::new();
        let mut streaks: BTreeMap<WorkerId, FailureStreak> = BTreeMap::new();
        loop {
            let (questions, turn) = questions_per_turn(self.known_workers.question_gap());
            tokio::select! {
                () = sleep(turn.saturating_sub(last_turn.elapsed())) => {
                    let late = last_turn.elapsed().saturating_sub(turn);
                    last_turn = if late < MAX_CATCH_UP { last_turn + turn } else { Instant::now() };
                    self.horizon.note(|| PastState::now(&self.catalog.state()), statements.oldest_start());
                    for _ in 0..questions {
                        if let Some(worker) = self.known_workers.next_to_ask_soon() {
                            if asked.insert(worker) {
                                answers.push(self.ask(worker).boxed());
                            } else {
                                ask_again.insert(worker);
                            }
                            continue;
                        }
                        if round.as_slice().is_empty() {
                            round = self.recorded_workers().into_iter();
                            self.known_workers.set_asked_workers(round.len());
                        }
                        // A worker that has not answered yet is skipped in this round.
                        if let Some(worker) = round.next() && asked.insert(worker) {
                            answers.push(self.ask(worker).boxed());
                        }
                    }
                }
                Some((worker, answered)) = answers.next() => {
                    asked.remove(&worker);
                    // The worker may have joined from another address meanwhile.
                    if ask_again.remove(&worker) {
                        self.known_workers.ask_soon([worker]);
                    }
                    self.log_outcome(&mut streaks, worker, answered);
                }
                // After a change, the next turn may come sooner.
                Ok(()) = changes.changed() => {}
            }
        }
    }

    fn recorded_workers(&self) -> Vec<WorkerId> {
        let state = self.catalog.state();
        state.workers().map(|record| record.id).collect()
    }

    /// Asks a worker once, and handles its answer.
    pub(super) async fn ask(&self, worker: WorkerId) -> (WorkerId, Result<()>) {
        (worker, self.ask_for_report(worker).await)
    }

    async fn ask_for_report(&self, worker: WorkerId) -> Result<()> {
        let (address, question) = self.question(worker)?;
        self.known_workers.note_question(worker);
        let report = match self.report(worker, question).await {
            Ok(report) => report,
            Err(error) => {
                let is_first = self.known_workers.note_failed_question(worker) == 1;
                // The next turn of this worker may be far away. So it is asked again soon, to find
                // out in time whether it is lost.
                if is_first && error.code() == ErrorCode::DeadlineExceeded {
                    self.known_workers.ask_soon([worker]);
                }
                return Err(error);
            }
        };
        let deleted_through = report.deleted_through;
        let lineage_report = report.clone();
        match self.known_workers.note_answer(&address, report) {
            Responder::KnownInstance => {}
            Responder::NewInstance => {
                tracing::info!(%worker, address, "a worker that has not joined since the gateway started has answered");
            }
            Responder::Stranger => {
                return Err(Error::unavailable(format!(
                    "an unknown process of the worker answers at {address}; the worker has since joined from another address"
                ))
                .at(self.name(worker)));
            }
        }
        self.note_lineage(worker, &lineage_report);
        self.catalog.record_deletions(worker, deleted_through).await
    }

    /// Returns the question for a worker, and the address at which the worker is asked.
    fn question(&self, worker: WorkerId) -> Result<(String, Report)> {
        // All parts of the question come from one state of the catalog. So a table that is created
        // meanwhile is either in `live_tables` or later than `last_table`.
        let state = self.catalog.state();
        let Some(record) = state.worker(worker) else {
            return Err(Error::unavailable(format!(
                "worker {worker} has never joined this cluster"
            )));
        };
        let horizon = self.horizon.reached();
        let unproven = self.known_workers.unproven_shards(worker).into_iter();
        let contents = unproven.filter_map(|shard| expected_content(&state, shard));
        let question = Report {
            contents: contents.collect(),
            snapshot: Some(state.snapshot()),
            set_aside: self.may_set_aside(worker),
            live_tables: state.retained_tables().map(|table| table.0).collect(),
            last_table: state.last_table_id().0,
            aborted_bounds: state.aborted_writes_of(worker).to_bounds(),
            last_abort: state.last_abort(),
            next_ms: self.ask_interval_ms(),
            horizon_us: horizon.as_ref().map_or(0, |past| past.time_us),
            expiries: horizon
                .as_ref()
                .map(|past| past.unchanged_expiries(&state))
                .unwrap_or_default(),
            horizon: horizon.map(|past| past.snapshot),
        };
        Ok((record.address.clone(), question))
    }

    async fn report(&self, worker: WorkerId, question: Report) -> Result<WorkerReport> {
        let deadline = self.known_workers.answer_timeout();
        let asking = self.control(worker, control::Command::Report(question));
        let answer = timeout(deadline, asking).await.unwrap_or_else(|_| {
            let text = format!("no report within {deadline:?}; look into the worker's log");
            Err(Error::new(ErrorCode::DeadlineExceeded, text).at(self.name(worker)))
        })?;
        let report: WorkerReport = self
            .sealer
            .open(Purpose::Membership, &answer)
            .map_err(|error| error.at(self.name(worker)))?;
        if report.worker_id != worker.0 {
            let other = WorkerId(report.worker_id);
            return Err(
                Error::unavailable(format!("worker {other} answers at its address"))
                    .at(self.name(worker)),
            );
        }
        Ok(report)
    }

    fn log_outcome(
        &self,
        streaks: &mut BTreeMap<WorkerId, FailureStreak>,
        worker: WorkerId,
        outcome: Result<()>,
    ) {
        let Err(error) = outcome else {
            if streaks
                .remove(&worker)
                .is_some_and(|streak| streak.logged_code.is_some())
            {
                tracing::info!(%worker, "the worker answers again");
            }
            return;
        };
        // The worker has said that it is going to stop, so it is expected that the question fails.
        if self.known_workers.is_draining(worker) {
            return;
        }
        let streak = streaks.entry(worker).or_default();
        streak.failures = streak.failures.saturating_add(1);
        if streak.failures >= LOG_AFTER_FAILURES && streak.logged_code != Some(error.code()) {
            streak.logged_code = Some(error.code());
            tracing::warn!(
                error = format_args!("{error:#}"),
                "a worker has not sent its report; the gateway asks again"
            );
        }
    }
}

/// Returns what a shard should hold, or `None` if its table does not exist any more.
fn expected_content(state: &CatalogState, name: ShardName) -> Option<ShardContent> {
    let table = state.table_by_id(TableId(name.table_id))?;
    let index = usize::try_from(name.shard).ok()?;
    let shard = table.statistics().shards.get(index)?;
    Some(ShardContent {
        shard: Some(name),
        rows: shard.rows,
        tally: shard.tally.map(|tally| tally.0),
    })
}

/// Returns how many questions are asked in a turn, and the time from this turn to the next, if the
/// questions are `gap` apart on average.
fn questions_per_turn(gap: Duration) -> (u32, Duration) {
    let questions = MIN_TURN.as_nanos().div_ceil(gap.as_nanos().max(1));
    let questions = u32::try_from(questions).unwrap_or(u32::MAX);
    (questions, gap * questions)
}

/// The consecutive failed questions of a worker. They are logged after `LOG_AFTER_FAILURES`
/// failures, when the error code changes, and when the worker answers again.
#[derive(Debug, Default)]
struct FailureStreak {
    failures: u32,
    logged_code: Option<ErrorCode>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_asked_as_often_in_turns_as_one_by_one() {
        let millis = Duration::from_millis;
        for (gap, questions, turn) in [(2, 10, 20), (7, 3, 21), (20, 1, 20), (1_000, 1, 1_000)] {
            assert_eq!(questions_per_turn(millis(gap)), (questions, millis(turn)));
        }
    }
}
