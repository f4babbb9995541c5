//! Expressions that can be evaluated again, for fewer rows.
//!
//! A function that would make too much for the rows that it is given cannot take fewer of them. Whoever has
//! called it can, and says so with [`evaluate`]. The function then fails, and says how many rows it would take.

use std::cell::Cell;

use datafusion::error::{DataFusionError, Result};

/// The bytes that functions make for the rows that they are given at once, where there can be fewer of them.
/// Batches on their way to a client are looked at more closely above that.
pub(super) const BYTES: u64 = 16 << 20;
/// The steps that functions take for these rows, which are about a tenth of a second.
pub(super) const STEPS: u64 = 1 << 26;

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller::HasOneTry) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// It passes errors on.
    HasOneTry,
    /// It tries again with fewer rows.
    TriesAgain,
    /// It is to try again with this many.
    IsToldOf(usize),
}

/// Why an expression has no value.
#[derive(Debug)]
pub enum Refusal {
    /// It would take this many rows at once.
    TooManyRows(usize),
    /// It has failed.
    Failed(DataFusionError),
}

/// Evaluates something that can be evaluated again for fewer rows.
///
/// # Errors
/// [`Refusal::TooManyRows`] if a function would make too much, or compute for too long, for all rows at once;
/// [`Refusal::Failed`] with its error.
pub fn evaluate<T>(evaluated: impl FnOnce() -> Result<T>) -> Result<T, Refusal> {
    let _outer = Outer(CALLER.replace(Caller::TriesAgain));
    evaluated().map_err(|error| match CALLER.get() {
        Caller::IsToldOf(rows) => Refusal::TooManyRows(rows),
        Caller::HasOneTry | Caller::TriesAgain => Refusal::Failed(error),
    })
}

/// Returns whether fewer rows can be had.
pub(super) fn can_be_fewer() -> bool {
    CALLER.get() != Caller::HasOneTry
}

/// Asks for no more than this many rows. The function is to fail after that.
pub(super) fn ask_for(rows: usize) {
    if can_be_fewer() {
        CALLER.set(Caller::IsToldOf(rows.max(1)));
    }
}

/// Restores what was said before, also after a panic.
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
