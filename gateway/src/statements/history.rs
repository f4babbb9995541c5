use std::collections::VecDeque;

use parking_lot::Mutex;
use volary_flight_proto::{Error, ErrorCode};

use super::StatementStatus;

/// How a statement ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndOutcome {
    /// The statement did all of its work.
    Finished {
        /// Number of rows that were sent or written.
        rows: u64,
    },
    /// The statement failed or was ended, or its client went away.
    Failed {
        /// Number of rows that were sent before the failure.
        rows: u64,
        /// Code of the error.
        code: ErrorCode,
        /// The error message that the client was sent.
        message: String,
    },
}

impl EndOutcome {
    /// Creates the outcome of a statement that failed with `error` after it had sent `rows` rows.
    pub(super) fn failed(rows: u64, error: &Error) -> Self {
        // The text has limited length, and is what clients are sent.
        let text = error.text();
        let message = text.strip_prefix(error.code().name()).unwrap_or(&text);
        Self::Failed {
            rows,
            code: error.code(),
            message: message.trim_start_matches(": ").to_owned(),
        }
    }

    /// Returns the name of the outcome in system.query_log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Finished { .. } => "finished",
            Self::Failed {
                code: ErrorCode::Cancelled,
                ..
            } => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns the code of the error, or `None` if the statement finished.
    pub(super) fn error_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Finished { .. } => None,
            Self::Failed { code, .. } => Some(*code),
        }
    }

    /// Returns the number of rows that were sent or written.
    pub fn rows(&self) -> u64 {
        match self {
            Self::Finished { rows } | Self::Failed { rows, .. } => *rows,
        }
    }
}

/// A statement that has ended.
#[derive(Debug, Clone)]
pub struct EndedStatement {
    /// Status of the statement at its end.
    pub status: StatementStatus,
    /// How the statement ended.
    pub outcome: EndOutcome,
}

/// The statements that ended last.
#[derive(Debug)]
pub(super) struct History {
    max_entries: usize,
    ended: Mutex<VecDeque<EndedStatement>>,
}

impl History {
    pub(super) fn new(most: usize) -> Self {
        Self {
            max_entries: most,
            ended: Mutex::default(),
        }
    }

    /// Adds a statement. If there are too many, the oldest one is forgotten.
    pub(super) fn add(&self, ended: EndedStatement) {
        if self.max_entries == 0 {
            return;
        }
        let mut all = self.ended.lock();
        if all.len() == self.max_entries {
            all.pop_front();
        }
        all.push_back(ended);
    }

    /// Returns all statements, oldest first.
    pub(super) fn all(&self) -> Vec<EndedStatement> {
        self.ended.lock().iter().cloned().collect()
    }
}
