//! The statements that this gateway works on, and those that have ended: listed in system.queries and system.query_log, ended by KILL and by
//! their clients.

/// One of them.
mod entry;
/// Those that have ended.
mod history;
/// What workers do for them.
mod work;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use volary_flight_proto::ids::{QueryId, SessionId};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::memory::LEAST_ENDED_BYTES;

use entry::Entry;
pub use entry::State;
use history::History;
pub use history::{Ended, Outcome};
pub use work::Work;

use volary_catalog::access::Rights;

/// Whose statement it is.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The user's name.
    pub user: String,
    /// The session.
    pub session: SessionId,
    /// From where it was sent.
    pub client: Option<SocketAddr>,
    /// By what the client will find its statements again; none if it has not said.
    pub tag: Option<String>,
}

impl Issuer {
    /// Whether it is one's own, or may be handled as if it were.
    fn is(&self, by: &Rights) -> bool {
        by.act_for(&self.user)
    }
}

/// A statement as it stands.
#[derive(Debug, Clone)]
pub struct StatementStatus {
    /// Its id.
    pub id: QueryId,
    /// Whose it is.
    pub issuer: Issuer,
    /// Its text; the beginning if it is long.
    pub text: String,
    /// What is done with it.
    pub state: State,
    /// When its call came.
    pub started: SystemTime,
    /// How long it was planned.
    pub planning: Duration,
    /// How long it waited for a place among those that run.
    pub queued: Duration,
    /// How long it runs, and its rows are sent.
    pub running: Duration,
    /// Bytes that its client was sent, without headers.
    pub sent_bytes: u64,
    /// Bytes of the gateway's memory that it holds.
    pub memory_bytes: u64,
    /// What workers have done for it.
    pub work: Work,
}

/// The statements of this gateway.
#[derive(Debug)]
pub struct Statements {
    /// A ticket may be redeemed several times at a time.
    by_id: Mutex<HashMap<QueryId, Vec<Arc<Entry>>>>,
    history: History,
}

impl Statements {
    /// None; so many that have ended will be remembered.
    pub fn new(remembered: usize) -> Self {
        Self {
            by_id: Mutex::default(),
            history: History::new(remembered),
        }
    }

    /// Lists a statement, as being planned, until what is returned is dropped.
    pub fn enter(self: &Arc<Self>, id: QueryId, issuer: Issuer, text: &str) -> Listed {
        let entry = Arc::new(Entry::new(issuer, text));
        let mut by_id = self.by_id.lock();
        by_id.entry(id).or_default().push(Arc::clone(&entry));
        drop(by_id);
        Listed {
            id,
            entry,
            statements: Arc::clone(self),
            is_remembered: AtomicBool::new(false),
        }
    }

    /// Ends what somebody with these rights may end of a statement: the own ones, and all for an administrator. `why` is what its client is
    /// told. False if there is nothing to end, or if it commits what it has written.
    pub fn end_by(&self, by: &Rights, id: QueryId, why: &str) -> bool {
        let mut ended = false;
        for entry in self.of(id) {
            ended |= entry.is_of(by) && entry.end(ErrorCode::Cancelled, why);
        }
        ended
    }

    /// Ends the statement whose operators hold most of the gateway's memory, if that is worth it, and returns which
    /// that was and how much it held, in bytes.
    pub(crate) fn end_largest(&self, why: &str) -> Option<(QueryId, usize)> {
        let mut entries = self.entries();
        entries.sort_by_cached_key(|(_, entry)| Reverse(entry.memory_bytes()));
        let ended = entries
            .into_iter()
            .take_while(|(_, entry)| entry.memory_bytes() >= LEAST_ENDED_BYTES)
            .find(|(_, entry)| entry.end(ErrorCode::ResourceExhausted, why));
        ended.map(|(id, entry)| (id, entry.memory_bytes()))
    }

    /// Bytes of the gateway's memory that the operators of all statements hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.entries();
        entries.iter().map(|(_, entry)| entry.memory_bytes()).sum()
    }

    /// Those that are worked on, the oldest first: the own ones, or all for an administrator.
    pub fn all(&self, by: &Rights) -> Vec<StatementStatus> {
        // Nobody waits until the plans of all of them are looked through.
        let entries = self.entries();
        let mut all: Vec<_> = entries
            .into_iter()
            .filter(|(_, entry)| entry.is_of(by))
            .map(|(id, entry)| entry.status(id))
            .collect();
        all.sort_by_key(|status| status.started);
        all
    }

    /// What workers have done for a query, if it is worked on and has a plan.
    pub fn work(&self, id: QueryId) -> Option<Work> {
        self.of(id).iter().find_map(|entry| entry.work())
    }

    /// Those that have ended and are remembered, in the order in which they ended: the own ones, or all for an administrator.
    pub fn ended(&self, by: &Rights) -> Vec<Ended> {
        let mut ended = self.history.all();
        ended.retain(|ended| ended.status.issuer.is(by));
        ended
    }

    /// A statement that writes, to note how far it is. One that is not listed is noted nowhere.
    pub(crate) fn noted(&self, id: QueryId) -> Noted {
        let entry = self.of(id).into_iter().next();
        entry.map_or_else(Noted::unlisted, Noted)
    }

    /// Notes that a statement has done what it was to do, and how many rows it wrote.
    pub(crate) fn done(&self, id: QueryId, rows: u64) {
        for entry in self.of(id) {
            entry.done(rows);
        }
    }

    /// To be called before what a statement has written is made visible.
    ///
    /// # Errors
    /// `CANCELLED` if it was ended: then nothing must become visible.
    pub(crate) fn commits(&self, id: QueryId) -> Result<()> {
        match self.of(id).into_iter().find(|entry| !entry.commits()) {
            Some(entry) => Err(entry.error(id)),
            None => Ok(()),
        }
    }

    fn entries(&self) -> Vec<(QueryId, Arc<Entry>)> {
        let by_id = self.by_id.lock();
        let entries = by_id
            .iter()
            .flat_map(|(id, entries)| entries.iter().map(|entry| (*id, Arc::clone(entry))));
        entries.collect()
    }

    fn of(&self, id: QueryId) -> Vec<Arc<Entry>> {
        self.by_id.lock().get(&id).cloned().unwrap_or_default()
    }
}

/// A statement that is worked on.
#[derive(Debug)]
pub struct Listed {
    id: QueryId,
    entry: Arc<Entry>,
    statements: Arc<Statements>,
    is_remembered: AtomicBool,
}

impl Listed {
    /// Does the work of the statement, and drops it if the statement is ended, or when `too_late` completes, with the error of that. A
    /// statement that commits by then is waited for: what it has written is there.
    ///
    /// # Errors
    /// Those of the work; `CANCELLED`; that of `too_late`.
    pub async fn unless_ended<T>(
        &self,
        work: impl Future<Output = Result<T>>,
        too_late: impl Future<Output = Error>,
    ) -> Result<T> {
        let mut work = pin!(work);
        let error = tokio::select! {
            biased;
            result = &mut work => return result,
            () = self.entry.ended().cancelled() => self.entry.error(self.id),
            error = too_late => error,
        };
        if self.entry.end(error.code(), error.message()) {
            return Err(error);
        }
        work.await
    }

    /// The statement.
    pub fn id(&self) -> QueryId {
        self.id
    }

    /// Completes when the statement is ended, with what its client is told.
    pub fn ending(&self) -> impl Future<Output = Error> + Send + use<> {
        let (id, entry) = (self.id, Arc::clone(&self.entry));
        async move {
            entry.ended().cancelled().await;
            entry.error(id)
        }
    }

    /// Counts bytes that the client was sent.
    pub fn sent(&self, bytes: usize) {
        self.entry.sent(bytes);
    }

    /// The statement, to note how far it is.
    pub fn noted(&self) -> Noted {
        Noted(Arc::clone(&self.entry))
    }

    /// What was asked for is done: the statement is remembered, unless it goes on with another call.
    pub fn answered(&self) {
        match self.entry.rows_when_done() {
            Some(rows) => self.remember(Outcome::Finished { rows }),
            None => self.is_remembered.store(true, Ordering::Relaxed),
        }
    }

    /// Remembers it as one whose rows were all sent.
    pub fn sent_all(&self) {
        let rows = self.entry.rows();
        self.remember(Outcome::Finished { rows });
    }

    /// Remembers it as one that has failed.
    pub fn failed(&self, error: &Error) {
        self.remember(Outcome::failed(self.entry.rows(), error));
    }

    fn remember(&self, outcome: Outcome) {
        if self.is_remembered.swap(true, Ordering::Relaxed) {
            return;
        }
        let status = self.entry.status(self.id);
        self.statements.history.add(Ended { status, outcome });
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if !self.is_remembered.load(Ordering::Relaxed) {
            let left = Error::new(ErrorCode::Cancelled, "the client went away");
            self.failed(&left);
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

/// A statement that is worked on, for those who work on it.
#[derive(Debug, Clone)]
pub struct Noted(Arc<Entry>);

impl Noted {
    /// Of a statement that nobody lists.
    pub(crate) fn unlisted() -> Self {
        Self(Arc::new(Entry::unlisted()))
    }

    /// Counts rows for the client.
    pub fn add_rows(&self, rows: u64) {
        self.0.add_rows(rows);
    }

    /// Rows that it has written, or given so far.
    pub(crate) fn rows(&self) -> u64 {
        self.0.rows_when_done().unwrap_or_else(|| self.0.rows())
    }

    /// What it has come to so far; `id` is its own.
    pub(crate) fn status(&self, id: QueryId) -> StatementStatus {
        self.0.status(id)
    }

    /// What workers have done for it; `None` before it is planned.
    pub(crate) fn work(&self) -> Option<Work> {
        self.0.work()
    }

    /// Notes the plan of a query, and how long it took to make it.
    pub(crate) fn planned(&self, plan: &Arc<dyn ExecutionPlan>, planned_in: Duration) {
        self.0.planned(plan, planned_in);
    }

    /// Notes that it waits for a place among those that run.
    pub(crate) fn waits(&self) {
        self.0.waits();
    }

    /// Notes that it runs, with the memory of `env`.
    pub(crate) fn runs(&self, env: &Arc<RuntimeEnv>) {
        self.0.runs(env);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::MemoryConsumer;
    use volary_flight_proto::ErrorCode;

    use super::*;

    fn kea() -> Rights {
        Rights::open("kea")
    }

    fn issuer() -> Issuer {
        Issuer {
            user: "kea".to_owned(),
            session: SessionId::new(),
            client: None,
            tag: None,
        }
    }

    #[test]
    fn a_statement_is_listed_as_long_as_it_is_worked_on() {
        let (statements, id) = (Arc::new(Statements::new(2)), QueryId::new());
        let planned = statements.enter(id, issuer(), "SELECT 1");
        let streamed = statements.enter(id, issuer(), "SELECT 1");
        planned.noted().waits();
        streamed.noted().waits();
        streamed.sent(7);
        let all = statements.all(&kea());
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|status| status.state == State::Queued));
        assert_eq!(all.iter().map(|status| status.sent_bytes).sum::<u64>(), 7);
        drop(planned);
        assert_eq!(statements.all(&kea()).len(), 1);
        drop(streamed);
        assert!(statements.by_id.lock().is_empty());
    }

    #[test]
    fn a_long_statement_is_listed_by_its_beginning() {
        let statements = Arc::new(Statements::new(2));
        let _listed = statements.enter(QueryId::new(), issuer(), &"ä".repeat(100_000));
        let text = &statements.all(&kea())[0].text;
        assert!(text.len() < 10_000);
        assert!(text.ends_with('…'));
    }

    #[tokio::test]
    async fn one_that_is_ended_drops_its_work_and_says_why() {
        let (statements, id) = (Arc::new(Statements::new(2)), QueryId::new());
        let listed = statements.enter(id, issuer(), "SELECT 1");
        let held = Arc::new(());
        let work_holds = Arc::clone(&held);
        let work = async move {
            let _held = work_holds;
            std::future::pending::<Result<()>>().await
        };
        let work = listed.unless_ended(work, std::future::pending());
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
            let listed = statements.enter(QueryId::new(), issuer(), "SELECT 1");
            let env = Arc::new(RuntimeEnv::default());
            listed.noted().runs(&env);
            let held = MemoryConsumer::new("Sort").register(&env.memory_pool);
            held.grow(bytes);
            (listed, env, held)
        };
        const MIB: usize = 1 << 20;
        let _too_small = holding(MIB - 1);
        let (small, large, larger) = (holding(5 * MIB), holding(7 * MIB), holding(9 * MIB));
        assert_eq!(statements.memory_bytes(), 22 * MIB - 1);
        statements.commits(larger.0.id()).unwrap();
        let ended = statements.end_largest("too much");
        assert_eq!(ended, Some((large.0.id(), 7 * MIB)));
        let error = large.0.ending().await;
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
        let listed = statements.enter(id, issuer(), "INSERT");
        let (begun, wait) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let work = async {
            statements.commits(id)?;
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
        assert_eq!(listed.unless_ended(work, too_late).await.unwrap(), 7);
        drop(listed);

        let listed = statements.enter(id, issuer(), "INSERT");
        assert!(statements.end_by(&kea(), id, "KILL by kea"));
        let error = statements.commits(id).unwrap_err();
        assert!(error.message().contains("KILL by kea"), "{error}");
        drop(listed);
        statements.commits(id).unwrap();
    }

    #[test]
    fn the_last_ones_that_have_ended_are_remembered_once_each() {
        let statements = Arc::new(Statements::new(2));
        let enter = |text: &str| statements.enter(QueryId::new(), issuer(), text);
        enter("forgotten").sent_all();
        let written = enter("written");
        statements.done(written.id(), 5);
        written.answered();
        enter("planned, and goes on").answered();
        let left = enter("left");
        left.noted().add_rows(7);
        drop(left);
        let ended = statements.ended(&kea());
        let texts: Vec<_> = ended
            .iter()
            .map(|ended| ended.status.text.as_str())
            .collect();
        assert_eq!(texts, ["written", "left"]);
        assert_eq!(ended[0].outcome, Outcome::Finished { rows: 5 });
        assert_eq!(ended[1].outcome.name(), "cancelled");
        assert_eq!(ended[1].outcome.rows(), 7);
    }
}
