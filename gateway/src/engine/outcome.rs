use arrow::record_batch::RecordBatch;
use tracing::Instrument;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;

use super::{Engine, PlannedQuery, Session};

/// The outcome of executing a statement.
#[derive(Debug)]
pub enum StatementOutcome {
    /// The statement is a query. It is planned and can be started.
    Rows(Box<PlannedQuery>),
    /// The statement was run.
    Done(Completion),
    /// The statement has changed the catalog and returned these rows.
    Answer(RecordBatch),
}

/// The work of a statement that was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The number of rows that the statement wrote. `None` for statements that do not write rows
    /// (DDL, SET).
    pub rows: Option<u64>,
    /// True if the statement may have changed rows or the catalog: tables, views, saved queries,
    /// users and rights. ROLLBACK would have to undo that.
    has_written: bool,
}

impl Completion {
    /// The work of a statement without changes that ROLLBACK would have to undo.
    pub(super) const WITHOUT_WRITES: Self = Self {
        rows: None,
        has_written: false,
    };

    /// Returns the work of a statement that has changed rows or the catalog. `rows`: see
    /// [`Self::rows`].
    pub(super) fn with_writes(rows: Option<u64>) -> Self {
        Self {
            rows,
            has_written: true,
        }
    }

    /// Returns the work of a statement without rows. `changed` says whether it has changed the
    /// catalog: a statement with IF NOT EXISTS or IF EXISTS may find nothing to do.
    pub(super) fn of_change(changed: bool) -> Self {
        if changed {
            Self::with_writes(None)
        } else {
            Self::WITHOUT_WRITES
        }
    }
}

/// A result of running a statement.
pub(super) trait ExecutionResult {
    /// Returns the work of the statement. `None` if the statement was not run, or only planned.
    fn completion(&self) -> Option<Completion>;
}

impl ExecutionResult for Completion {
    fn completion(&self) -> Option<Completion> {
        Some(*self)
    }
}

impl ExecutionResult for StatementOutcome {
    fn completion(&self) -> Option<Completion> {
        match self {
            Self::Rows(_) => None,
            Self::Done(done) => Some(*done),
            Self::Answer(rows) => Some(Completion::with_writes(Some(rows.num_rows() as u64))),
        }
    }
}

/// The thread on which a statement begins to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The thread that has received it. A statement that is usually short begins there.
    Here,
    /// A thread of the CPU runtime.
    OnCpu,
}

impl Engine {
    /// Runs a statement, and notes its work in the session and in the list of statements.
    pub(super) fn run_statement<T: ExecutionResult + Send + 'static>(
        &self,
        session: &Session,
        query_id: QueryId,
        start: Start,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> {
        let transaction = session.transaction.clone();
        // The session learns of a write even if nobody waits for the outcome any more.
        let noted = async move {
            let ran = work.await?;
            if ran.completion().is_some_and(|done| done.has_written) {
                transaction.note_write();
            }
            Ok(ran)
        };
        let runtimes = self.runtimes.of_user(session.claimant().owner_number());
        // The work is large, and other futures would hold it inline.
        let noted = Box::pin(noted).in_current_span();
        async move {
            let ran = match start {
                Start::Here => runtimes.start_here(noted).await?,
                Start::OnCpu => runtimes.on_cpu(noted).await?,
            };
            if let Some(done) = ran.completion() {
                self.statements
                    .set_done(query_id, done.rows.unwrap_or_default());
            }
            Ok(ran)
        }
    }
}
