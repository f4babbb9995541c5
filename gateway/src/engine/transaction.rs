//! Volary has no transactions: each statement commits by itself. Clients send BEGIN, COMMIT and
//! ROLLBACK all the same, mostly around queries, and connection pools send ROLLBACK to clean up. So
//! these statements are accepted where they change nothing. ROLLBACK is refused where it would have
//! to undo a write.

use std::sync::Arc;

use parking_lot::Mutex;
use volary_flight_proto::{Error, Result};

use crate::sql::transaction::TransactionStatement;

/// What a session has done since BEGIN, shared by the calls of the session. It is `None` outside of
/// BEGIN.
#[derive(Debug, Clone, Default)]
pub(super) struct TransactionTracker(Arc<Mutex<Option<Transaction>>>);

#[derive(Debug, Clone, Copy)]
struct Transaction {
    /// Number of statements that have made changes.
    writes: usize,
    is_read_only: bool,
}

impl TransactionTracker {
    /// Applies BEGIN, COMMIT or ROLLBACK.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a ROLLBACK if statements since BEGIN have committed writes.
    pub(super) fn apply(&self, statement: TransactionStatement) -> Result<()> {
        let mut open = self.0.lock();
        match statement {
            TransactionStatement::Begin { is_read_only } => {
                open.get_or_insert(Transaction {
                    writes: 0,
                    is_read_only,
                });
                Ok(())
            }
            TransactionStatement::Commit => {
                *open = None;
                Ok(())
            }
            TransactionStatement::Rollback => match open.take().map(|open| open.writes) {
                None | Some(0) => Ok(()),
                Some(count) => Err(Error::unsupported(format!(
                    "ROLLBACK cannot undo changes: each statement commits by itself, and {count} since BEGIN made changes; undo the changes with other statements, and connect with autocommit on"
                ))),
            },
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Notes a statement that has changed rows or the catalog.
    pub(super) fn note_write(&self) {
        if let Some(open) = self.0.lock().as_mut() {
            open.writes += 1;
        }
    }

    /// Sets whether the transaction refuses writes. Has no effect outside of BEGIN.
    pub(super) fn set_read_only(&self, is_read_only: bool) {
        if let Some(open) = self.0.lock().as_mut() {
            open.is_read_only = is_read_only;
        }
    }

    /// Returns whether a transaction is open that refuses writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.0.lock().is_some_and(|open| open.is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: TransactionStatement = TransactionStatement::Begin {
        is_read_only: false,
    };

    #[test]
    fn a_rollback_is_refused_only_where_something_was_written_since_begin() {
        let session = TransactionTracker::default();
        session.note_write();
        session.apply(TransactionStatement::Rollback).unwrap();
        session.apply(BEGIN).unwrap();
        session.apply(TransactionStatement::Rollback).unwrap();
        session.apply(BEGIN).unwrap();
        session.note_write();
        session.apply(BEGIN).unwrap();
        let error = session.apply(TransactionStatement::Rollback).unwrap_err();
        assert!(
            error.message().contains("1 since BEGIN made changes"),
            "{error}"
        );
        session.apply(TransactionStatement::Rollback).unwrap();
        session.apply(BEGIN).unwrap();
        session.note_write();
        session.apply(TransactionStatement::Commit).unwrap();
        session.apply(TransactionStatement::Rollback).unwrap();
    }
}
