//! Asks each worker for its report, one worker after the other.
//!
//! The gateway asks over the connection that it has to the worker anyway. If workers reported by
//! themselves, each would need a connection in the other direction. Such a connection takes 65 KiB
//! of the gateway's memory and a file descriptor, and there are thousands of workers. The gateway
//! asks all workers that the catalog knows, alive or not. So a gateway that has just started, or
//! that has lost a worker, learns from the answer that the worker is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use volary_catalog::State;
use volary_flight_proto::control::{Report, ShardContent, ShardName, WorkerReport, control};
use volary_flight_proto::ids::{TableId, WorkerId, WriteId};
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Cluster;
use super::members::Answer;

/// How late a question may be without delaying the questions after it, because timers are not
/// exact. After a longer pause the gateway does not catch up, because it would ask many workers at
/// once.
const CATCH_UP: Duration = Duration::from_millis(20);
/// Number of failed questions in a row after which the failure is logged. A single question fails
/// when a worker is just stopping or starting.
const LOGGED_AFTER: u32 = 2;

impl Cluster {
    /// Asks the workers for their reports until `stopping` is cancelled. Call it once, on the
    /// health runtime.
    pub(crate) async fn ask_workers(self: Arc<Self>, stopping: CancellationToken) {
        stopping.run_until_cancelled(self.ask_in_turn()).await;
    }

    async fn ask_in_turn(&self) {
        let mut changes = self.members.changes();
        let recorded = self.recorded_workers();
        self.members.set_count(recorded.len());
        self.members.ask_soon(recorded);
        let mut round: IntoIter<WorkerId> = Vec::new().into_iter();
        let mut last_turn = Instant::now();
        // Each worker has at most one open question. So a worker that hangs costs only one call,
        // and does not delay the others.
        let mut asked: BTreeSet<WorkerId> = BTreeSet::new();
        let mut asked_again: BTreeSet<WorkerId> = BTreeSet::new();
        let mut answers: FuturesUnordered<BoxFuture<'_, (WorkerId, Result<()>)>> =
            FuturesUnordered::new();
        let mut troubles: BTreeMap<WorkerId, Trouble> = BTreeMap::new();
        loop {
            let gap = self.members.gap();
            tokio::select! {
                () = sleep(gap.saturating_sub(last_turn.elapsed())) => {
                    let late = last_turn.elapsed().saturating_sub(gap);
                    last_turn = if late < CATCH_UP { last_turn + gap } else { Instant::now() };
                    if let Some(worker) = self.members.next_asked_soon() {
                        if asked.insert(worker) {
                            answers.push(self.ask(worker).boxed());
                        } else {
                            asked_again.insert(worker);
                        }
                        continue;
                    }
                    if round.as_slice().is_empty() {
                        round = self.recorded_workers().into_iter();
                        self.members.set_count(round.len());
                    }
                    // A worker that has not answered yet is skipped in this round.
                    if let Some(worker) = round.next() && asked.insert(worker) {
                        answers.push(self.ask(worker).boxed());
                    }
                }
                Some((worker, answered)) = answers.next() => {
                    asked.remove(&worker);
                    // The worker may have joined from another address meanwhile.
                    if asked_again.remove(&worker) {
                        self.members.ask_soon([worker]);
                    }
                    self.note(&mut troubles, worker, answered);
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

    /// Asks a worker once, and takes its answer.
    pub(super) async fn ask(&self, worker: WorkerId) -> (WorkerId, Result<()>) {
        (worker, self.ask_for_report(worker).await)
    }

    async fn ask_for_report(&self, worker: WorkerId) -> Result<()> {
        let (address, question) = self.question(worker)?;
        self.members.asked(worker);
        let report = match self.report(worker, question).await {
            Ok(report) => report,
            Err(error) => {
                let is_first = self.members.unanswered(worker) == 1;
                // The next turn of this worker may come late. It is asked again soon, so that the
                // gateway knows in time whether the worker is lost.
                if is_first && error.code() == ErrorCode::DeadlineExceeded {
                    self.members.ask_soon([worker]);
                }
                return Err(error);
            }
        };
        let collected: Vec<WriteId> = report
            .collected_writes
            .iter()
            .copied()
            .map(WriteId)
            .collect();
        let of_history = report.clone();
        match self.members.answered(&address, report) {
            Answer::Expected => {}
            Answer::OfAnotherStart => {
                tracing::info!(%worker, address, "a worker that has not joined since the gateway started has answered");
            }
            Answer::OfAStranger => {
                return Err(Error::unavailable(format!(
                    "an unknown process of the worker answers at {address}; the worker has since joined from another address"
                ))
                .at(self.name(worker)));
            }
        }
        self.note_agreement(worker, &of_history);
        self.catalog.writes_collected(worker, &collected).await
    }

    /// Returns the question for a worker, and the address at which the worker is asked.
    fn question(&self, worker: WorkerId) -> Result<(String, Report)> {
        // All parts of the question come from one state of the catalog. So a table that is created
        // meanwhile is either among the kept tables or later than the last table.
        let state = self.catalog.state();
        let Some(record) = state.worker(worker) else {
            return Err(Error::unavailable(format!(
                "worker {worker} has never joined this cluster"
            )));
        };
        let unproven = self.members.unproven(worker).into_iter();
        let contents = unproven.filter_map(|shard| content(&state, shard));
        let question = Report {
            contents: contents.collect(),
            snapshot: Some(state.snapshot()),
            set_aside: self.sets_aside(worker),
            live_tables: state.kept_tables().map(|table| table.0).collect(),
            last_table: state.last_table().0,
            aborted_writes: state
                .aborted_writes_of(worker)
                .map(|write| write.0)
                .collect(),
            next_ms: self.pace_ms(),
        };
        Ok((record.address.clone(), question))
    }

    async fn report(&self, worker: WorkerId, question: Report) -> Result<WorkerReport> {
        let deadline = self.members.deadline();
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

    fn note(
        &self,
        troubles: &mut BTreeMap<WorkerId, Trouble>,
        worker: WorkerId,
        answered: Result<()>,
    ) {
        let Err(error) = answered else {
            if troubles
                .remove(&worker)
                .is_some_and(|trouble| trouble.logged.is_some())
            {
                tracing::info!(%worker, "the worker answers again");
            }
            return;
        };
        // The worker has said that it is going to stop, so it is expected that the question fails.
        if self.members.is_draining(worker) {
            return;
        }
        let trouble = troubles.entry(worker).or_default();
        trouble.failures = trouble.failures.saturating_add(1);
        if trouble.failures >= LOGGED_AFTER && trouble.logged != Some(error.code()) {
            trouble.logged = Some(error.code());
            tracing::warn!(
                error = format_args!("{error:#}"),
                "a worker has not sent its report; the gateway asks again"
            );
        }
    }
}

/// Returns what a shard should hold, or `None` if its table does not exist any more.
fn content(state: &State, name: ShardName) -> Option<ShardContent> {
    let table = state.table_by_id(TableId(name.table_id))?;
    let index = usize::try_from(name.shard).ok()?;
    let shard = table.statistics().shards.get(index)?;
    Some(ShardContent {
        shard: Some(name),
        rows: shard.rows,
        tally: shard.tally.map(|tally| tally.0),
    })
}

/// A worker that does not answer. It is logged when the trouble begins, when the kind of error
/// changes, and when the worker answers again. It is not logged for each failed question.
#[derive(Debug, Default)]
struct Trouble {
    failures: u32,
    logged: Option<ErrorCode>,
}
