use datafusion::sql::sqlparser::ast::TransactionMode;
use volary_flight_proto::Result;

use super::session_statement::access_mode;

/// A statement that begins or ends a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatement {
    /// BEGIN.
    Begin {
        /// Says whether the transaction refuses writes.
        is_read_only: bool,
    },
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
}

impl TransactionStatement {
    /// Returns the BEGIN with these modes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an isolation level that promises more than Volary does.
    pub(super) fn begin(modes: &[TransactionMode]) -> Result<Self> {
        let is_read_only = access_mode(modes)?.unwrap_or(false);
        Ok(Self::Begin { is_read_only })
    }
}
