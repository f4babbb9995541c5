//! The statements that this gateway works on: listed in system.queries, ended by KILL and by their clients.

/// One of them.
mod entry;

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use datafusion::execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;
use volary_flight_proto::ids::{QueryId, SessionId};
use volary_flight_proto::{Error, Result};

use entry::Entry;
pub use entry::State;

/// Whose statement it is.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The user's name.
    pub user: String,
    /// The session.
    pub session: SessionId,
    /// From where it was sent.
    pub client: Option<SocketAddr>,
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
    /// For how long it has been worked on since.
    pub running: Duration,
    /// Bytes that its client was sent, without headers.
    pub sent_bytes: u64,
    /// Bytes of the gateway's memory that it holds.
    pub memory_bytes: u64,
}

/// The statements that this gateway works on.
#[derive(Debug, Default)]
pub struct Statements {
    /// A ticket may be redeemed several times at a time.
    by_id: Mutex<HashMap<QueryId, Vec<Arc<Entry>>>>,
}

impl Statements {
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
        }
    }

    /// Ends what is done with a statement; `why` is what its client is told. False if nothing is.
    pub fn end(&self, id: QueryId, why: &str) -> bool {
        let by_id = self.by_id.lock();
        let entries = by_id.get(&id).map(Vec::as_slice).unwrap_or_default();
        for entry in entries {
            entry.end(why);
        }
        !entries.is_empty()
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<StatementStatus> {
        let by_id = self.by_id.lock();
        let mut all: Vec<_> = by_id
            .iter()
            .flat_map(|(id, entries)| entries.iter().map(|entry| entry.status(*id)))
            .collect();
        drop(by_id);
        all.sort_by_key(|status| status.started);
        all
    }

    /// Notes that a statement waits for a place among those that run.
    pub(crate) fn waits(&self, id: QueryId) {
        self.of(id, |entry| entry.set_state(State::Queued));
    }

    /// Notes that a statement runs, with the memory of `env`.
    pub(crate) fn runs(&self, id: QueryId, env: &Arc<RuntimeEnv>) {
        self.of(id, |entry| entry.runs(Arc::downgrade(env)));
    }

    fn of(&self, id: QueryId, note: impl Fn(&Entry)) {
        for entry in self.by_id.lock().get(&id).into_iter().flatten() {
            note(entry);
        }
    }
}

/// A statement that is worked on.
#[derive(Debug)]
pub struct Listed {
    id: QueryId,
    entry: Arc<Entry>,
    statements: Arc<Statements>,
}

impl Listed {
    /// Does the work of the statement, and drops it if the statement is ended.
    ///
    /// # Errors
    /// Those of the work; `CANCELLED`.
    pub async fn unless_ended<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = work => result,
            () = self.entry.ended().cancelled() => Err(self.entry.error(self.id)),
        }
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
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut by_id = self.statements.by_id.lock();
        if let Some(entries) = by_id.get_mut(&self.id) {
            entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            if entries.is_empty() {
                by_id.remove(&self.id);
            }
        }
    }
}

/// Where a statement's memory is, as long as it runs.
type Memory = Weak<RuntimeEnv>;

#[cfg(test)]
mod tests {
    use volary_flight_proto::ErrorCode;

    use super::*;

    fn issuer() -> Issuer {
        Issuer {
            user: "kea".to_owned(),
            session: SessionId::new(),
            client: None,
        }
    }

    #[test]
    fn a_statement_is_listed_as_long_as_it_is_worked_on() {
        let (statements, id) = (Arc::new(Statements::default()), QueryId::new());
        let planned = statements.enter(id, issuer(), "SELECT 1");
        let streamed = statements.enter(id, issuer(), "SELECT 1");
        statements.waits(id);
        streamed.sent(7);
        let all = statements.all();
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|status| status.state == State::Queued));
        assert_eq!(all.iter().map(|status| status.sent_bytes).sum::<u64>(), 7);
        drop(planned);
        assert_eq!(statements.all().len(), 1);
        drop(streamed);
        assert!(statements.by_id.lock().is_empty());
    }

    #[test]
    fn a_long_statement_is_listed_by_its_beginning() {
        let statements = Arc::new(Statements::default());
        let _listed = statements.enter(QueryId::new(), issuer(), &"ä".repeat(100_000));
        let text = &statements.all()[0].text;
        assert!(text.len() < 10_000);
        assert!(text.ends_with('…'));
    }

    #[tokio::test]
    async fn one_that_is_ended_drops_its_work_and_says_why() {
        let (statements, id) = (Arc::new(Statements::default()), QueryId::new());
        let listed = statements.enter(id, issuer(), "SELECT 1");
        let held = Arc::new(());
        let work_holds = Arc::clone(&held);
        let work = listed.unless_ended(async move {
            let _held = work_holds;
            std::future::pending::<Result<()>>().await
        });
        let (result, ended) = tokio::join!(work, async { statements.end(id, "KILL by kea") });
        assert!(ended);
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled);
        assert!(error.message().contains("KILL by kea"), "{error}");
        assert_eq!(Arc::strong_count(&held), 1);
        drop(listed);
        assert!(!statements.end(id, "again"));
    }
}
