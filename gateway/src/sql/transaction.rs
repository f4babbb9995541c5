//! BEGIN, COMMIT and ROLLBACK, as they are written.

/// Which of them a statement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// BEGIN.
    Begin,
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
}
