//! Volary has no transactions: each statement commits by itself. Clients send BEGIN, COMMIT and
//! ROLLBACK all the same, mostly around queries, and connection pools send ROLLBACK to clean up. So
//! these statements are accepted where they change nothing. ROLLBACK is refused where it would have
//! to undo a write.

use std::sync::Arc;

use parking_lot::Mutex;
use volary_flight_proto::{Error, Result};

use crate::sql::transaction::TransactionStatement;

/// What a session has done since BEGIN, shared by the calls of the session. Holds the number of
/// statements that have made changes, or `None` outside of BEGIN.
#[derive(Debug, Clone, Default)]
pub(super) struct TransactionTracker(Arc<Mutex<Option<usize>>>);

impl TransactionTracker {
    /// Applies BEGIN, COMMIT or ROLLBACK.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a ROLLBACK if statements since BEGIN have committed writes.
    pub(super) fn apply(&self, statement: TransactionStatement) -> Result<()> {
        let mut writes = self.0.lock();
        match statement {
            TransactionStatement::Begin => {
                writes.get_or_insert(0);
                Ok(())
            }
            TransactionStatement::Commit => {
                *writes = None;
                Ok(())
            }
            TransactionStatement::Rollback => match writes.take() {
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
        if let Some(writes) = self.0.lock().as_mut() {
            *writes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_is_refused_only_where_something_was_written_since_begin() {
        let session = TransactionTracker::default();
        session.note_write();
        session.apply(TransactionStatement::Rollback).unwrap();
        session.apply(TransactionStatement::Begin).unwrap();
        session.apply(TransactionStatement::Rollback).unwrap();
        session.apply(TransactionStatement::Begin).unwrap();
        session.note_write();
        session.apply(TransactionStatement::Begin).unwrap();
        let error = session.apply(TransactionStatement::Rollback).unwrap_err();
        assert!(
            error.message().contains("1 since BEGIN made changes"),
            "{error}"
        );
        session.apply(TransactionStatement::Rollback).unwrap();
        session.apply(TransactionStatement::Begin).unwrap();
        session.note_write();
        session.apply(TransactionStatement::Commit).unwrap();
        session.apply(TransactionStatement::Rollback).unwrap();
    }
}
