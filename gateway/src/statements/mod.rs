//! Statements are ended through [`Statements`]: by KILL, by their clients, or when memory runs out.

/// Keeps the state of one statement.
mod entry;
/// Keeps the statements that have ended, for system.query_log.
mod history;
/// Counts over all statements, for the gateway's metrics.
mod totals;
/// Counts the work of the workers for a statement.
mod work;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use tracing::Span;
use volary_exec::stage_timer::{RowTimes, StageTimer};
use volary_flight_proto::ids::{QueryId, SessionId};
use volary_flight_proto::trace::TraceParent;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::memory::MIN_ENDED_BYTES;
use volary_node::traces;

use entry::Entry;
pub use entry::Phase;
pub(crate) use entry::Planning;
use history::History;
pub use history::{EndOutcome, EndedStatement};
pub(crate) use totals::StatementTotals;
pub use work::WorkerStatistics;

use volary_catalog::access::Rights;

/// Maximum number of polled queries that are started before the client fetches their rows. The
/// first rows of each query are kept, which takes a few MiB. Further polled queries run when their
/// rows are fetched.
pub(crate) const MAX_POLLED: usize = 128;

/// The user, the session and the client that sent a statement.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// Name of the user.
    pub user: String,
    /// The session in which the statement was sent.
    pub session: SessionId,
    /// Address from which the statement was sent.
    pub client: Option<SocketAddr>,
    /// Tag by which the client will find its statements again. `None` if the client has set none.
    pub tag: Option<String>,
    /// The span that the statement belongs to, in the client or in an earlier call.
    pub trace: Option<TraceParent>,
}

impl Issuer {
    /// Returns whether a user with these rights is the issuer, or may act for the issuer.
    fn is_accessible_to(&self, by: &Rights) -> bool {
        by.may_act_for(&self.user)
    }
}

/// The status of a statement at one time.
#[derive(Debug, Clone)]
pub struct StatementStatus {
    /// Id of the statement.
    pub id: QueryId,
    /// The issuer of the statement.
    pub issuer: Issuer,
    /// Text of the statement, cut if it is long.
    pub text: String,
    /// Phase of the statement.
    pub phase: Phase,
    /// Time at which the statement was listed.
    pub started: SystemTime,
    /// Time that the parsing took. `None` if the statement is no text, or is not parsed yet.
    pub parsing: Option<Duration>,
    /// Time that the planning took.
    pub planning: Duration,
    /// Says whether a query used a generic plan. `None` if no query was planned.
    pub plan_found: Option<bool>,
    /// Time that the statement waited for a place to run.
    pub queued: Duration,
    /// Time since the statement began to run. Its rows are sent during this time.
    pub running: Duration,
    /// How long rows were encoded for the client, and how long they waited for it. `None` if the
    /// statement is no query that runs.
    pub row_times: Option<RowTimes>,
    /// Number of bytes that the client was sent, without headers.
    pub sent_bytes: u64,
    /// Number of bytes of the gateway's memory that the statement holds.
    pub memory_bytes: u64,
    /// The work of the workers for the statement.
    pub work: WorkerStatistics,
    /// Id of the trace that the statement belongs to, as 32 hexadecimal digits.
    pub trace_id: Option<String>,
}

/// The statements of this gateway.
#[derive(Debug)]
pub struct Statements {
    /// The statements that are worked on, by id. An id may have several entries, because a ticket
    /// may be redeemed several times at once.
    by_id: Mutex<HashMap<QueryId, Vec<Arc<Entry>>>>,
    history: History,
    totals: Arc<StatementTotals>,
}

impl Statements {
    /// Creates an empty list. The last `history_size` statements that have ended are kept for
    /// system.query_log.
    pub fn new(history_size: usize) -> Self {
        Self {
            by_id: Mutex::default(),
            history: History::new(history_size),
            totals: Arc::default(),
        }
    }

    /// Returns the totals over all statements.
    pub(crate) fn totals(&self) -> &Arc<StatementTotals> {
        &self.totals
    }

    /// Lists a statement in the phase of planning. It is listed until the returned value is
    /// dropped.
    pub fn add(self: &Arc<Self>, id: QueryId, issuer: Issuer, text: &str) -> ListedStatement {
        let entry = Arc::new(Entry::new(issuer, text, Arc::clone(&self.totals)));
        let mut by_id = self.by_id.lock();
        by_id.entry(id).or_default().push(Arc::clone(&entry));
        drop(by_id);
        ListedStatement {
            id,
            entry,
            statements: Arc::clone(self),
            is_remembered: AtomicBool::new(false),
        }
    }

    /// Ends the statement with this id. Users may end their own statements, and administrators may
    /// end all statements. `why` is sent to the client of the statement. Returns false if there is
    /// nothing that this user may end, or if the statement commits what it has written.
    pub(crate) fn end_by(&self, by: &Rights, id: QueryId, why: &str) -> bool {
        let mut ended = false;
        for entry in self.entries_of(id) {
            ended |= entry.is_accessible_to(by) && entry.end(ErrorCode::Cancelled, why);
        }
        ended
    }

    /// Ends the statement whose operators hold the most of the gateway's memory, among those that
    /// can still be ended. Ends no statement if all of these hold too little to be worth ending.
    /// Returns the id of the statement, and the number of bytes that it held.
    pub(crate) fn end_largest(&self, why: &str) -> Option<(QueryId, usize)> {
        let mut entries = self.entries();
        entries.sort_by_cached_key(|(_, entry)| Reverse(entry.memory_bytes()));
        let ended = entries
            .into_iter()
            .take_while(|(_, entry)| entry.memory_bytes() >= MIN_ENDED_BYTES)
            .find(|(_, entry)| entry.end(ErrorCode::ResourceExhausted, why));
        ended.map(|(id, entry)| (id, entry.memory_bytes()))
    }

    /// Returns the number of bytes of the gateway's memory that the operators of all statements
    /// hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.entries();
        entries.iter().map(|(_, entry)| entry.memory_bytes()).sum()
    }

    /// Returns whether a statement of this session is worked on.
    pub(crate) fn has_statement_of(&self, session: SessionId) -> bool {
        let entries = self.entries();
        entries.iter().any(|(_, entry)| entry.session() == session)
    }

    /// Returns the statements that are worked on, oldest first. Users see their own statements, and
    /// administrators see all.
    pub fn all(&self, by: &Rights) -> Vec<StatementStatus> {
        // The lock is not held while the statuses are computed, so that nobody waits for that.
        let entries = self.entries();
        let mut all: Vec<_> = entries
            .into_iter()
            .filter(|(_, entry)| entry.is_accessible_to(by))
            .map(|(id, entry)| entry.status(id))
            .collect();
        all.sort_by_key(|status| status.started);
        all
    }

    /// Returns the work of the workers for a query. Returns `None` if nobody works on the query, or
    /// if it has no plan yet.
    pub fn work(&self, id: QueryId) -> Option<WorkerStatistics> {
        self.entries_of(id).iter().find_map(|entry| entry.work())
    }

    /// Returns the statements that have ended and are remembered, in the order in which they ended.
    /// Users see their own statements, and administrators see all.
    pub fn ended(&self, by: &Rights) -> Vec<EndedStatement> {
        let mut ended = self.history.all();
        ended.retain(|ended| ended.status.issuer.is_accessible_to(by));
        ended
    }

    /// Returns a handle with which the work on a statement notes its progress. If the statement is
    /// not listed, the notes are lost.
    pub(crate) fn progress(&self, id: QueryId) -> ProgressHandle {
        let entry = self.entries_of(id).into_iter().next();
        entry.map_or_else(ProgressHandle::unlisted, ProgressHandle)
    }

    /// Notes that a statement has done its work, and how many rows it wrote.
    pub(crate) fn set_done(&self, id: QueryId, rows: u64) {
        for entry in self.entries_of(id) {
            entry.set_written(rows);
        }
    }

    /// Notes that a statement commits. Call it before the changes of the statement are made
    /// visible.
    ///
    /// # Errors
    /// Returns the error with which the statement was ended, such as `CANCELLED`. Nothing may
    /// become visible then.
    pub(crate) fn begin_commit(&self, id: QueryId) -> Result<()> {
        match self
            .entries_of(id)
            .into_iter()
            .find(|entry| !entry.begin_commit())
        {
            Some(entry) => Err(entry.error(id)),
            None => Ok(()),
        }
    }

    /// Returns the time since which the oldest of the running statements reads what was committed
    /// then; `None` if none reads anything.
    pub(crate) fn oldest_start(&self) -> Option<Instant> {
        let entries = self.entries();
        let times = entries.iter().filter_map(|(_, entry)| entry.reads_since());
        times.min()
    }

    fn entries(&self) -> Vec<(QueryId, Arc<Entry>)> {
        let by_id = self.by_id.lock();
        let entries = by_id
            .iter()
            .flat_map(|(id, entries)| entries.iter().map(|entry| (*id, Arc::clone(entry))));
        entries.collect()
    }

    fn entries_of(&self, id: QueryId) -> Vec<Arc<Entry>> {
        self.by_id.lock().get(&id).cloned().unwrap_or_default()
    }
}

/// A statement that is listed until this value is dropped.
#[derive(Debug)]
pub struct ListedStatement {
    id: QueryId,
    entry: Arc<Entry>,
    statements: Arc<Statements>,
    is_remembered: AtomicBool,
}

impl ListedStatement {
    /// Does the work of the statement. The work is dropped if the statement is ended or `too_late`
    /// completes. If the statement commits by then, its work is waited for instead, because its
    /// changes become visible.
    ///
    /// # Errors
    /// Returns the error of the work, the error of `too_late`, or the error with which the
    /// statement was ended, such as `CANCELLED`.
    pub(crate) async fn run_until_ended<T>(
        &self,
        work: impl Future<Output = Result<T>>,
        deadline_error: impl Future<Output = Error>,
    ) -> Result<T> {
        let mut work = pin!(work);
        let error = tokio::select! {
            biased;
            result = &mut work => return result,
            () = self.entry.ended().cancelled() => self.entry.error(self.id),
            error = deadline_error => error,
        };
        if self.entry.end(error.code(), error.message()) {
            return Err(error);
        }
        work.await
    }

    /// Returns the id of the statement.
    pub fn id(&self) -> QueryId {
        self.id
    }

    /// Completes when the statement is ended, with the error that its client is sent.
    pub fn wait_for_end(&self) -> impl Future<Output = Error> + Send + use<> {
        let (id, entry) = (self.id, Arc::clone(&self.entry));
        async move {
            entry.ended().cancelled().await;
            entry.error(id)
        }
    }

    /// Makes the statement's work in `span`, which was just created, a part of the trace that the
    /// statement belongs to. Later calls of the statement continue `span`.
    pub(crate) fn begin_trace(&self, span: &Span) {
        traces::continue_from(span, self.entry.trace());
        if let Some(trace) = traces::parent_of(span) {
            self.entry.set_trace(trace);
        }
    }

    /// Counts bytes that the client was sent.
    pub(crate) fn add_sent_bytes(&self, bytes: usize) {
        self.entry.add_sent_bytes(bytes);
    }

    /// Returns a handle with which the work on the statement notes its progress.
    pub fn progress(&self) -> ProgressHandle {
        ProgressHandle(Arc::clone(&self.entry))
    }

    /// Notes that the call was answered. The statement is remembered as finished if its work is
    /// done. Otherwise it continues in another call, and this call is not remembered.
    pub(crate) fn set_answered(&self) {
        match self.entry.rows_when_done() {
            Some(rows) => self.remember(EndOutcome::Finished { rows }),
            None => self.is_remembered.store(true, Ordering::Relaxed),
        }
    }

    /// Remembers the statement as one whose rows were all sent.
    pub(crate) fn set_finished(&self) {
        let rows = self.entry.rows();
        self.remember(EndOutcome::Finished { rows });
    }

    /// Remembers the statement as one that has failed.
    pub(crate) fn set_failed(&self, error: &Error) {
        self.remember(EndOutcome::failed(self.entry.rows(), error));
    }

    fn remember(&self, outcome: EndOutcome) {
        if self.is_remembered.swap(true, Ordering::Relaxed) {
            return;
        }
        let status = self.entry.status(self.id);
        let totals = &self.statements.totals;
        totals.add_ended(&status, outcome.error_code());
        self.statements
            .history
            .add(EndedStatement { status, outcome });
    }
}

impl Drop for ListedStatement {
    fn drop(&mut self) {
        if !self.is_remembered.load(Ordering::Relaxed) {
            let left = Error::new(ErrorCode::Cancelled, "the client went away");
            self.set_failed(&left);
        }
        let mut by_id = self.statements.by_id.lock();
        if let Some(entries) = by_id.get_mut(&self.id) {
            entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            if entries.is_empty() {
                by_id.remove(&self.id);
            }
        }
    }
}

/// A handle on a statement, for those who work on it and note its progress.
#[derive(Debug, Clone)]
pub struct ProgressHandle(Arc<Entry>);

impl ProgressHandle {
    /// Creates a handle on a statement that is not listed.
    pub(crate) fn unlisted() -> Self {
        Self(Arc::new(Entry::unlisted()))
    }

    /// Counts rows of the result.
    pub(crate) fn add_rows(&self, rows: u64) {
        self.0.add_rows(rows);
    }

    /// Returns the number of rows that the statement has written, or has sent so far.
    pub(crate) fn rows(&self) -> u64 {
        self.0.rows_when_done().unwrap_or_else(|| self.0.rows())
    }

    /// Returns the current status of the statement. `id` is the statement's id.
    pub(crate) fn status(&self, id: QueryId) -> StatementStatus {
        self.0.status(id)
    }

    /// Returns the work of the workers for the statement, or `None` if it is not planned yet.
    pub(crate) fn work(&self) -> Option<WorkerStatistics> {
        self.0.work()
    }

    /// Notes how long the parsing took.
    pub(crate) fn set_parsed(&self, parsing: Duration) {
        self.0.set_parsed(parsing);
    }

    /// Notes the plan of a query, and how it was made.
    pub(crate) fn set_planned(&self, plan: &Arc<dyn ExecutionPlan>, planning: Planning) {
        self.0.set_planned(plan, planning);
    }

    /// Notes what measures the encoding of the rows.
    pub(crate) fn set_row_timer(&self, timer: StageTimer) {
        self.0.set_row_timer(timer);
    }

    /// Notes the work for a part of a statement that has no plan as a whole.
    pub(crate) fn add_work(&self, work: &WorkerStatistics) {
        self.0.add_work(work);
    }

    /// Notes since when the statement reads what was committed then. `None` means that it reads
    /// nothing at the moment. Otherwise a statement reads what was committed when it began.
    pub(crate) fn set_reads_since(&self, since: Option<Instant>) {
        self.0.set_reads_since(since);
    }

    /// Notes that the statement waits for a place to run.
    pub(crate) fn set_queued(&self) {
        self.0.set_queued();
    }

    /// Notes that the statement runs, and that `env` has its memory pool.
    pub(crate) fn set_running(&self, env: &Arc<RuntimeEnv>) {
        self.0.set_running(env);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::MemoryConsumer;
    use volary_flight_proto::ErrorCode;

    use super::*;

    fn kea() -> Rights {
        Rights::of_open_cluster("kea")
    }

    fn issuer() -> Issuer {
        Issuer {
            user: "kea".to_owned(),
            session: SessionId::new(),
            client: None,
            tag: None,
            trace: None,
        }
    }

    #[test]
    fn a_statement_is_listed_as_long_as_it_is_worked_on() {
        let (statements, id) = (Arc::new(Statements::new(2)), QueryId::new());
        let planned = statements.add(id, issuer(), "SELECT 1");
        let streamed = statements.add(id, issuer(), "SELECT 1");
        planned.progress().set_queued();
        streamed.progress().set_queued();
        streamed.add_sent_bytes(7);
        let all = statements.all(&kea());
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|status| status.phase == Phase::Queued));
        assert_eq!(all.iter().map(|status| status.sent_bytes).sum::<u64>(), 7);
        drop(planned);
        assert_eq!(statements.all(&kea()).len(), 1);
        drop(streamed);
        assert!(statements.by_id.lock().is_empty());
    }

    #[test]
    fn a_long_statement_is_listed_by_its_beginning() {
        let statements = Arc::new(Statements::new(2));
        let _listed = statements.add(QueryId::new(), issuer(), &"ä".repeat(100_000));
        let text = &statements.all(&kea())[0].text;
        assert!(text.len() < 10_000);
        assert!(text.ends_with('…'));
    }

    #[tokio::test]
    async fn one_that_is_ended_drops_its_work_and_says_why() {
        let (statements, id) = (Arc::new(Statements::new(2)), QueryId::new());
        let listed = statements.add(id, issuer(), "SELECT 1");
        let held = Arc::new(());
        let work_holds = Arc::clone(&held);
        let work = async move {
            let _held = work_holds;
            std::future::pending::<Result<()>>().await
        };
        let work = listed.run_until_ended(work, std::future::pending());
        let (result, ended) =
            tokio::join!(work, async { statements.end_by(&kea(), id, "KILL by kea") });
        assert!(ended);
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled);
        assert!(error.message().contains("KILL by kea"), "{error}");
        assert_eq!(Arc::strong_count(&held), 1);
        drop(listed);
        assert!(!statements.end_by(&kea(), id, "again"));
    }

    #[tokio::test]
    async fn the_largest_is_ended_unless_it_commits() {
        let statements = Arc::new(Statements::new(2));
        let holding = |bytes: usize| {
            let listed = statements.add(QueryId::new(), issuer(), "SELECT 1");
            let env = Arc::new(RuntimeEnv::default());
            listed.progress().set_running(&env);
            let held = MemoryConsumer::new("Sort").register(&env.memory_pool);
            held.grow(bytes);
            (listed, env, held)
        };
        const MIB: usize = 1 << 20;
        let _too_small = holding(MIB - 1);
        let (small, large, larger) = (holding(5 * MIB), holding(7 * MIB), holding(9 * MIB));
        assert_eq!(statements.memory_bytes(), 22 * MIB - 1);
        statements.begin_commit(larger.0.id()).unwrap();
        let ended = statements.end_largest("too much");
        assert_eq!(ended, Some((large.0.id(), 7 * MIB)));
        let error = large.0.wait_for_end().await;
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(error.message().contains("too much"), "{error}");
        drop(large);
        let ended = statements.end_largest("too much");
        assert_eq!(ended, Some((small.0.id(), 5 * MIB)));
        drop(small);
        assert_eq!(statements.end_largest("too much"), None);
    }

    #[tokio::test]
    async fn one_that_commits_is_waited_for_and_one_that_is_ended_does_not_commit() {
        let (statements, id) = (Arc::new(Statements::new(2)), QueryId::new());
        let listed = statements.add(id, issuer(), "INSERT");
        let (begun, wait) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let work = async {
            statements.begin_commit(id)?;
            begun.notify_one();
            wait.notified().await;
            Ok(7)
        };
        let too_late = async {
            begun.notified().await;
            assert!(!statements.end_by(&kea(), id, "KILL by kea"));
            wait.notify_one();
            Error::invalid("too late")
        };
        assert_eq!(listed.run_until_ended(work, too_late).await.unwrap(), 7);
        drop(listed);

        let listed = statements.add(id, issuer(), "INSERT");
        assert!(statements.end_by(&kea(), id, "KILL by kea"));
        let error = statements.begin_commit(id).unwrap_err();
        assert!(error.message().contains("KILL by kea"), "{error}");
        drop(listed);
        statements.begin_commit(id).unwrap();
    }

    #[test]
    fn the_last_ones_that_have_ended_are_remembered_once_each() {
        let statements = Arc::new(Statements::new(2));
        let enter = |text: &str| statements.add(QueryId::new(), issuer(), text);
        enter("forgotten").set_finished();
        let written = enter("written");
        statements.set_done(written.id(), 5);
        written.set_answered();
        enter("planned, and goes on").set_answered();
        let left = enter("left");
        left.progress().add_rows(7);
        drop(left);
        let ended = statements.ended(&kea());
        let texts: Vec<_> = ended
            .iter()
            .map(|ended| ended.status.text.as_str())
            .collect();
        assert_eq!(texts, ["written", "left"]);
        assert_eq!(ended[0].outcome, EndOutcome::Finished { rows: 5 });
        assert_eq!(ended[1].outcome.name(), "cancelled");
        assert_eq!(ended[1].outcome.rows(), 7);
    }
}
