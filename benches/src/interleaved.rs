//! Variants are measured in turns, so that a machine that is slow for a while is slow for all of
//! them.

use anyhow::{Context, Result};
use futures::future::LocalBoxFuture;

use crate::results::{Label, Sample, Variant};

/// Something that can be measured again and again.
///
/// Its future is local. The main thread awaits all futures one after another and has no other work,
/// so they may block it.
pub trait Measure {
    /// Measures once.
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>>;
}

/// A variant to measure.
pub struct Candidate<'a> {
    label: Label,
    work: Box<dyn Measure + 'a>,
}

impl std::fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl<'a> Candidate<'a> {
    /// Creates a variant that does `work` in each of its turns.
    pub fn new(label: Label, work: impl Measure + 'a) -> Self {
        Self {
            label,
            work: Box::new(work),
        }
    }
}

/// How often each variant is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// The number of turns that come first and are not counted.
    pub warm_up: usize,
    /// The number of turns that are counted.
    pub counted: usize,
}

/// Measures all candidates. Each turn measures each candidate once.
///
/// # Errors
/// Returns the errors of the candidates, with their names.
pub async fn measure_in_turns(
    turns: Turns,
    mut candidates: Vec<Candidate<'_>>,
) -> Result<Vec<Variant>> {
    let labels = candidates.iter().map(|candidate| candidate.label.clone());
    let mut measured: Vec<_> = labels.map(Variant::new).collect();
    for turn in 0..turns.warm_up + turns.counted {
        for (candidate, measured) in candidates.iter_mut().zip(&mut measured) {
            let sample = candidate.work.measure().await;
            let sample = sample.with_context(|| candidate.label.name.clone())?;
            if turn >= turns.warm_up {
                eprintln!("{}: {sample}", candidate.label.name);
                measured.push(sample);
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::FutureExt;

    use super::*;

    struct Noted<'a>(&'static str, &'a RefCell<Vec<&'static str>>);

    impl Measure for Noted<'_> {
        fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
            async move {
                self.1.borrow_mut().push(self.0);
                let turns = self.1.borrow().len();
                anyhow::ensure!(turns < 7, "enough");
                Ok(Sample::new().with("turns", turns as f64))
            }
            .boxed_local()
        }
    }

    #[test]
    fn variants_take_turns_and_the_first_ones_do_not_count() {
        let noted = RefCell::default();
        let candidates = || {
            let of = |name| Candidate::new(Label::new(name), Noted(name, &noted));
            vec![of("a"), of("b")]
        };
        let turns = Turns {
            warm_up: 1,
            counted: 2,
        };
        let measured = measure_in_turns(turns, candidates())
            .now_or_never()
            .unwrap();
        let measured = measured.unwrap();
        assert_eq!(*noted.borrow(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(measured[1].samples_of("turns"), [4.0, 6.0]);
        let failed = measure_in_turns(turns, candidates())
            .now_or_never()
            .unwrap();
        assert_eq!(format!("{:#}", failed.unwrap_err()), "a: enough");
    }
}
