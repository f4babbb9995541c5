//! The statements that have ended, for system.query_log.

use std::collections::VecDeque;

use parking_lot::Mutex;
use volary_flight_proto::{Error, ErrorCode};

use super::StatementStatus;

/// How a statement ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was to do. So many rows were sent or written.
    Finished {
        /// Rows.
        rows: u64,
    },
    /// It failed, was ended, or its client went away.
    Failed {
        /// Rows that were sent before.
        rows: u64,
        /// Why.
        code: ErrorCode,
        /// What the client was told.
        message: String,
    },
}

impl Outcome {
    /// Of an error, after so many rows.
    pub(super) fn failed(rows: u64, error: &Error) -> Self {
        // As clients are told it, which is not without limit.
        let text = error.text();
        let message = text.strip_prefix(error.code().name()).unwrap_or(&text);
        Self::Failed {
            rows,
            code: error.code(),
            message: message.trim_start_matches(": ").to_owned(),
        }
    }

    /// Its name in system.query_log.
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

    /// Rows that were sent or written.
    pub fn rows(&self) -> u64 {
        match self {
            Self::Finished { rows } | Self::Failed { rows, .. } => *rows,
        }
    }
}

/// A statement that has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// As it stood then.
    pub status: StatementStatus,
    /// How it ended.
    pub outcome: Outcome,
}

/// The last of them.
#[derive(Debug)]
pub(super) struct History {
    most: usize,
    ended: Mutex<VecDeque<Ended>>,
}

impl History {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            ended: Mutex::default(),
        }
    }

    /// Forgets the oldest if there are too many.
    pub(super) fn add(&self, ended: Ended) {
        if self.most == 0 {
            return;
        }
        let mut all = self.ended.lock();
        if all.len() == self.most {
            all.pop_front();
        }
        all.push_back(ended);
    }

    /// The oldest first.
    pub(super) fn all(&self) -> Vec<Ended> {
        self.ended.lock().iter().cloned().collect()
    }
}
