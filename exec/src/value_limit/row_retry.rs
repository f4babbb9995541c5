//! A function that would make too much for the rows that it is given cannot reduce these rows. Its
//! caller can, and says so by using [`evaluate`]. The function then fails, and says how many rows
//! it would accept.

use std::cell::Cell;

use datafusion::error::{DataFusionError, Result};

/// Bytes that functions make at once, if the caller can reduce the rows. Batches of up to this size
/// are also sent to clients without a reservation.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// Steps that functions take at once, if the caller can reduce the rows. They take about a tenth of
/// a second.
pub(super) const MAX_STEPS: u64 = 1 << 26;

thread_local! {
    /// State of the caller of the functions on this thread.
    static CALLER: Cell<Caller> = const { Cell::new(Caller::PassesErrorsOn) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The caller passes errors on.
    PassesErrorsOn,
    /// The caller tries again with fewer rows.
    CanRetry,
    /// The caller was asked to try again with this number of rows.
    WasAskedFor(usize),
}

/// Reason why an expression has no value.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The expression would accept this number of rows at once.
    TooManyRows(usize),
    /// The expression has failed.
    Failed(DataFusionError),
}

/// Evaluates something that can be evaluated again for fewer rows.
///
/// # Errors
/// [`Refusal::TooManyRows`] if a function would make too much, or compute for too long, for all
/// rows at once. [`Refusal::Failed`] with the error of the expression otherwise.
pub(crate) fn evaluate<T>(evaluated: impl FnOnce() -> Result<T>) -> Result<T, Refusal> {
    let _outer = CallerGuard(CALLER.replace(Caller::CanRetry));
    evaluated().map_err(|error| match CALLER.get() {
        Caller::WasAskedFor(rows) => Refusal::TooManyRows(rows),
        Caller::PassesErrorsOn | Caller::CanRetry => Refusal::Failed(error),
    })
}

/// Returns whether the caller can reduce the rows.
pub(super) fn can_reduce_rows() -> bool {
    CALLER.get() != Caller::PassesErrorsOn
}

/// Asks the caller for at most this number of rows. The function must fail after that.
pub(super) fn ask_for_rows(rows: usize) {
    if can_reduce_rows() {
        CALLER.set(Caller::WasAskedFor(rows.max(1)));
    }
}

/// Restores the state of the caller when it is dropped, even after a panic.
struct CallerGuard(Caller);

impl Drop for CallerGuard {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::exec_err;

    use super::*;

    #[test]
    fn a_caller_is_told_of_fewer_rows_only_if_it_can_try_again() {
        ask_for_rows(7);
        assert!(!can_reduce_rows());
        let told = evaluate(|| {
            assert!(can_reduce_rows());
            ask_for_rows(0);
            exec_err!("too many") as Result<()>
        });
        assert!(matches!(told, Err(Refusal::TooManyRows(1))));
        let failed = evaluate(|| exec_err!("something else") as Result<()>);
        assert!(matches!(failed, Err(Refusal::Failed(_))));
        assert!(matches!(evaluate(|| Ok(3)), Ok(3)));
        assert!(!can_reduce_rows());
    }
}
