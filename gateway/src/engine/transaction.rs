//! BEGIN, COMMIT and ROLLBACK.
//!
//! There are no transactions: each statement commits by itself. Clients send these statements all the same, most of them around
//! queries, and pools send ROLLBACK to tidy up. So they are taken where they change nothing, and ROLLBACK is refused where it would have
//! to undo something.

use std::sync::Arc;

use parking_lot::Mutex;
use volary_flight_proto::{Error, Result};

use crate::sql::transaction::Transaction;

/// What a session has done since BEGIN; shared by its calls.
#[derive(Debug, Clone, Default)]
pub(super) struct SinceBegin(Arc<Mutex<Option<usize>>>);

impl SinceBegin {
    /// # Errors
    /// `INVALID_ARGUMENT` for a ROLLBACK of what is committed.
    pub(super) fn apply(&self, statement: Transaction) -> Result<()> {
        let mut writes = self.0.lock();
        match statement {
            Transaction::Begin => {
                writes.get_or_insert(0);
                Ok(())
            }
            Transaction::Commit => {
                *writes = None;
                Ok(())
            }
            Transaction::Rollback => match writes.take() {
                None | Some(0) => Ok(()),
                Some(count) => Err(Error::invalid(format!(
                    "nothing is rolled back: each statement commits by itself, and {count} since BEGIN changed tables; undo that with other statements, and connect with autocommit on"
                ))),
            },
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.0.lock().is_some()
    }

    /// To be called when a statement has changed tables.
    pub(super) fn has_written(&self) {
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
        let session = SinceBegin::default();
        session.has_written();
        session.apply(Transaction::Rollback).unwrap();
        session.apply(Transaction::Begin).unwrap();
        session.apply(Transaction::Rollback).unwrap();
        session.apply(Transaction::Begin).unwrap();
        session.has_written();
        session.apply(Transaction::Begin).unwrap();
        let error = session.apply(Transaction::Rollback).unwrap_err();
        assert!(
            error.message().contains("1 since BEGIN changed tables"),
            "{error}"
        );
        session.apply(Transaction::Rollback).unwrap();
        session.apply(Transaction::Begin).unwrap();
        session.has_written();
        session.apply(Transaction::Commit).unwrap();
        session.apply(Transaction::Rollback).unwrap();
    }
}
