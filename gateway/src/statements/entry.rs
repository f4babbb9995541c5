use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use volary_catalog::access::Rights;
use volary_exec::stage_timer::StageTimer;
use volary_flight_proto::ids::{QueryId, SessionId};
use volary_flight_proto::trace::TraceParent;
use volary_flight_proto::{Error, ErrorCode, SqlState};

use super::totals::StatementTotals;
use super::work::{Gathers, WorkerStatistics};
use super::{Issuer, StatementStatus};
use crate::sql::without_passwords;
use crate::url_credentials;

/// Maximum number of bytes of a statement's text that are listed.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// The phase of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The statement is parsed and planned.
    Planning,
    /// The statement waits for a place to run.
    Queued,
    /// The statement runs, or its rows are sent.
    Running,
}

impl Phase {
    /// Returns the name of the phase in system.queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::Queued => "queued",
            Self::Running => "running",
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    issuer: Issuer,
    text: String,
    started: SystemTime,
    started_at: Instant,
    phases: Mutex<Phases>,
    rows: AtomicU64,
    sent_bytes: AtomicU64,
    /// Number of rows that were written. It is set when the whole work is done.
    rows_when_done: OnceLock<u64>,
    /// The time since which the statement reads what was committed then. `None` while it reads
    /// nothing.
    reads_since: Mutex<Option<Instant>>,
    fate: Mutex<Fate>,
    ended: CancellationToken,
    /// The span that the next work on the statement belongs to.
    trace: Mutex<Option<TraceParent>>,
    /// Totals over all statements, to which the statement adds.
    totals: Arc<StatementTotals>,
}

/// The state that decides whether a statement can still be ended.
#[derive(Debug, Default)]
enum Fate {
    #[default]
    Open,
    /// The statement was ended with this error. The first caller that ends a statement sets the
    /// error.
    Ended(ErrorCode, String),
    /// The changes of the statement are being made visible. Nobody can end it any more.
    Committing,
}

/// How a query was planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planning {
    /// Time that parsing took. It is zero if no text was parsed.
    pub parsing: Duration,
    /// Time that planning took after that.
    pub planning: Duration,
    /// Says whether a generic plan was used.
    pub plan_found: bool,
}

/// The progress of a statement through its phases.
#[derive(Debug, Default)]
struct Phases {
    /// Time that parsing took. `None` if the statement is no text, or is not parsed yet.
    parsing: Option<Duration>,
    /// How the query was planned. A query may have been planned before it was listed.
    planning: Option<Planning>,
    queued_at: Option<Instant>,
    running_at: Option<Instant>,
    /// Holds the memory pool of the statement while it runs.
    runtime_env: Weak<RuntimeEnv>,
    gathers: Option<Gathers>,
    /// Measures the encoding of the rows.
    rows: Option<StageTimer>,
    /// The work for the parts of the statement that have ended.
    work_of_parts: Option<WorkerStatistics>,
}

impl Entry {
    pub(super) fn new(issuer: Issuer, text: &str, totals: Arc<StatementTotals>) -> Self {
        let started_at = Instant::now();
        Self {
            trace: Mutex::new(issuer.trace),
            issuer,
            text: listable_text(text),
            started: SystemTime::now(),
            started_at,
            reads_since: Mutex::new(Some(started_at)),
            phases: Mutex::default(),
            rows: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            rows_when_done: OnceLock::new(),
            fate: Mutex::default(),
            ended: CancellationToken::new(),
            totals,
        }
    }

    /// Creates the entry of a statement that is not listed and has no user.
    pub(super) fn unlisted() -> Self {
        let issuer = Issuer {
            user: String::new(),
            session: SessionId::new(),
            client: None,
            tag: None,
            trace: None,
        };
        Self::new(issuer, "", Arc::default())
    }

    /// Returns the time since which the statement reads what was committed then.
    pub(super) fn reads_since(&self) -> Option<Instant> {
        *self.reads_since.lock()
    }

    pub(super) fn set_reads_since(&self, since: Option<Instant>) {
        *self.reads_since.lock() = since;
    }

    /// Returns the session that sent the statement.
    pub(super) fn session(&self) -> SessionId {
        self.issuer.session
    }

    /// Returns whether a user with these rights may see and end the statement.
    pub(super) fn is_accessible_to(&self, by: &Rights) -> bool {
        self.issuer.is_accessible_to(by)
    }

    pub(super) fn trace(&self) -> Option<TraceParent> {
        *self.trace.lock()
    }

    pub(super) fn set_trace(&self, trace: TraceParent) {
        *self.trace.lock() = Some(trace);
    }

    pub(super) fn set_parsed(&self, parsing: Duration) {
        self.phases.lock().parsing = Some(parsing);
    }

    pub(super) fn set_planned(&self, plan: &Arc<dyn ExecutionPlan>, planning: Planning) {
        let gathers = Gathers::of(plan);
        let mut phases = self.phases.lock();
        phases.gathers = Some(gathers);
        phases.parsing = Some(planning.parsing);
        phases.planning = Some(planning);
    }

    pub(super) fn set_row_timer(&self, timer: StageTimer) {
        self.phases.lock().rows = Some(timer);
    }

    pub(super) fn set_queued(&self) {
        self.phases.lock().queued_at = Some(Instant::now());
    }

    pub(super) fn set_running(&self, env: &Arc<RuntimeEnv>) {
        let mut phases = self.phases.lock();
        phases.running_at = Some(Instant::now());
        phases.runtime_env = Arc::downgrade(env);
    }

    pub(super) fn add_sent_bytes(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.totals.sent.add_bytes(bytes);
    }

    pub(super) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.totals.sent.add_rows(rows);
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    pub(super) fn set_written(&self, rows: u64) {
        self.rows_when_done.get_or_init(|| rows);
    }

    pub(super) fn rows_when_done(&self) -> Option<u64> {
        self.rows_when_done.get().copied()
    }

    /// Ends the statement. Returns false if the statement commits and cannot be ended any more.
    /// Only the first call sets the error of the statement.
    pub(super) fn end(&self, code: ErrorCode, why: &str) -> bool {
        let mut fate = self.fate.lock();
        match &*fate {
            Fate::Open => *fate = Fate::Ended(code, why.to_owned()),
            Fate::Ended(..) => {}
            Fate::Committing => return false,
        }
        self.ended.cancel();
        true
    }

    /// Notes that the statement commits. Returns false if the statement was ended and must not
    /// commit.
    pub(super) fn begin_commit(&self) -> bool {
        let mut fate = self.fate.lock();
        if let Fate::Open = &*fate {
            *fate = Fate::Committing;
        }
        matches!(&*fate, Fate::Committing)
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    pub(super) fn error(&self, id: QueryId) -> Error {
        let (code, why) = match &*self.fate.lock() {
            Fate::Ended(code, why) => (*code, why.clone()),
            Fate::Open | Fate::Committing => (ErrorCode::Cancelled, "it was ended".to_owned()),
        };
        let error = Error::new(code, format!("query {id}: {why}"));
        // A running statement is ended with this code only if memory runs out.
        match code {
            ErrorCode::ResourceExhausted => error.with_sqlstate(SqlState::OutOfMemory),
            _ => error,
        }
    }

    /// Returns the number of bytes of the gateway's memory that the statement's operators hold.
    pub(super) fn memory_bytes(&self) -> usize {
        let env = self.phases.lock().runtime_env.upgrade();
        env.map_or(0, |env| env.memory_pool.reserved())
    }

    pub(super) fn work(&self) -> Option<WorkerStatistics> {
        let phases = self.phases.lock();
        let of_gathers = phases.gathers.as_ref().map(Gathers::work);
        of_gathers.or(phases.work_of_parts)
    }

    pub(super) fn add_work(&self, work: &WorkerStatistics) {
        let mut phases = self.phases.lock();
        phases.work_of_parts.get_or_insert_default().add(work);
    }

    pub(super) fn status(&self, id: QueryId) -> StatementStatus {
        let work = self.work().unwrap_or_default();
        let memory_bytes = self.memory_bytes();
        let phases = self.phases.lock();
        let now = Instant::now();
        let until_queued = phases.queued_at.unwrap_or(now);
        let until_running = phases.running_at.unwrap_or(now);
        let until_planned = until_queued.duration_since(self.started_at);
        let parsing = phases.parsing.unwrap_or_default();
        StatementStatus {
            id,
            issuer: self.issuer.clone(),
            text: self.text.clone(),
            phase: match (phases.queued_at, phases.running_at) {
                (_, Some(_)) => Phase::Running,
                (Some(_), None) => Phase::Queued,
                (None, None) => Phase::Planning,
            },
            started: self.started,
            parsing: phases.parsing,
            planning: match phases.planning {
                Some(planning) => planning.planning,
                None => until_planned.saturating_sub(parsing),
            },
            plan_found: phases.planning.map(|planning| planning.plan_found),
            queued: until_running.duration_since(until_queued),
            running: now.duration_since(until_running),
            row_times: phases.rows.as_ref().map(|timer| timer.times(now)),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            memory_bytes: memory_bytes as u64,
            work,
            trace_id: self.trace().map(|trace| hex::encode(trace.trace_id)),
        }
    }
}

/// Returns the beginning of a statement's text, without passwords.
fn listable_text(text: &str) -> String {
    // The credentials of a URL could not be recognized any more if the text was cut within them.
    let text = truncated(&url_credentials::listable_text(text));
    without_passwords(&text).into_owned()
}

fn truncated(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    if end == text.len() {
        text.to_owned()
    } else {
        format!("{}…", &text[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_where_the_text_is_cut_within_their_url() {
        let copy = "COPY t FROM 'https://ada:secret";
        let comment = format!("/*{}*/", " ".repeat(MAX_TEXT_BYTES - copy.len() - 4));
        let statement = format!("{comment}{copy}word@host/a.csv'");
        let listed = listable_text(&statement);
        assert!(!listed.contains("secret"), "{listed}");
        assert!(listed.contains("COPY t FROM 'https://***@"), "{listed}");
    }
}
