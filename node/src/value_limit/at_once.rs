//! Evaluates expressions again for fewer rows.
//!
//! A function that would make too much for the rows that it is given cannot reduce these rows. Its
//! caller can, and says so by using [`evaluate`]. The function then fails, and says how many rows
//! it would accept.

use std::cell::Cell;

use datafusion::error::{DataFusionError, Result};

/// Bytes that functions make at once, if the caller can reduce the rows. Batches on their way to a
/// client are checked more closely above this size.
pub(super) const BYTES: u64 = 16 << 20;
/// Steps that functions take at once, if the caller can reduce the rows. They take about a tenth of
/// a second.
pub(super) const STEPS: u64 = 1 << 26;

thread_local! {
    /// What the caller of the functions on this thread can do about too many rows.
    static CALLER: Cell<Caller> = const { Cell::new(Caller::HasOneTry) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The caller passes errors on.
    HasOneTry,
    /// The caller tries again with fewer rows.
    TriesAgain,
    /// The caller was asked to try again with this number of rows.
    IsToldOf(usize),
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
    let _outer = Outer(CALLER.replace(Caller::TriesAgain));
    evaluated().map_err(|error| match CALLER.get() {
        Caller::IsToldOf(rows) => Refusal::TooManyRows(rows),
        Caller::HasOneTry | Caller::TriesAgain => Refusal::Failed(error),
    })
}

/// Returns whether the caller can reduce the rows.
pub(super) fn can_be_fewer() -> bool {
    CALLER.get() != Caller::HasOneTry
}

/// Asks the caller for at most this number of rows. The function must fail after that.
pub(super) fn ask_for(rows: usize) {
    if can_be_fewer() {
        CALLER.set(Caller::IsToldOf(rows.max(1)));
    }
}

/// Restores the state of the caller when it is dropped, even after a panic.
struct Outer(Caller);

impl Drop for Outer {
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
        ask_for(7);
        assert!(!can_be_fewer());
        let told = evaluate(|| {
            assert!(can_be_fewer());
            ask_for(0);
            exec_err!("too many") as Result<()>
        });
        assert!(matches!(told, Err(Refusal::TooManyRows(1))));
        let failed = evaluate(|| exec_err!("something else") as Result<()>);
        assert!(matches!(failed, Err(Refusal::Failed(_))));
        assert!(matches!(evaluate(|| Ok(3)), Ok(3)));
        assert!(!can_be_fewer());
    }
}
