//! Defines the outcomes of statements, and records them in the session and the list of statements.

use arrow::record_batch::RecordBatch;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;

use super::{Engine, Query, Session};

/// The outcome of executing a statement.
#[derive(Debug)]
pub enum Outcome {
    /// The statement is a query. It is planned and can be started.
    Rows(Box<Query>),
    /// The statement was run.
    Done(Done),
    /// The statement was run and returned these rows.
    Answer(RecordBatch),
}

/// The work of a statement that was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The number of rows that the statement wrote. `None` for statements that do not write rows
    /// (DDL, SET).
    pub rows: Option<u64>,
    /// True if the statement may have changed a table, a view or a saved query. ROLLBACK would have
    /// to undo that.
    has_written: bool,
}

impl Done {
    /// The work of a statement that changes nothing that ROLLBACK would have to undo.
    pub(super) const WITHOUT_WRITES: Self = Self {
        rows: None,
        has_written: false,
    };

    /// Returns the work of a statement that has changed a table, a view or a saved query. `rows`:
    /// see [`Self::rows`].
    pub(super) fn with_writes(rows: Option<u64>) -> Self {
        Self {
            rows,
            has_written: true,
        }
    }
}

/// A result of running a statement.
pub(super) trait Ran {
    /// Returns the work of the statement. `None` if the statement was not run, or only planned.
    fn done(&self) -> Option<Done>;
}

impl Ran for Done {
    fn done(&self) -> Option<Done> {
        Some(*self)
    }
}

impl Ran for Outcome {
    fn done(&self) -> Option<Done> {
        match self {
            Self::Rows(_) => None,
            Self::Done(done) => Some(*done),
            Self::Answer(rows) => Some(Done {
                rows: Some(rows.num_rows() as u64),
                ..Done::WITHOUT_WRITES
            }),
        }
    }
}

impl Engine {
    /// Runs a statement on the CPU runtime, and notes its work in the session and in the list of
    /// statements.
    pub(super) fn run_statement<T: Ran + Send + 'static>(
        &self,
        session: &Session,
        query_id: QueryId,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> {
        let since_begin = session.since_begin.clone();
        // The session learns of a write even if nobody waits for the outcome any more.
        let noted = async move {
            let ran = work.await?;
            if ran.done().is_some_and(|done| done.has_written) {
                since_begin.has_written();
            }
            Ok(ran)
        };
        let running = self.on_cpu(session, noted);
        async move {
            let ran = running.await?;
            if let Some(done) = ran.done() {
                self.statements
                    .done(query_id, done.rows.unwrap_or_default());
            }
            Ok(ran)
        }
    }
}
