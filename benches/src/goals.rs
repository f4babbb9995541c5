//! A goal is a limit for the ratio of two values of the same run. Its ratios are taken turn by turn
//! and are stored as those of a variant, so that the page shows them with their spread.

use crate::results::{Label, Sample, Variant};
use crate::statistics::ratios;

/// A limit for a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// The ratio should not be larger.
    AtMost(f64),
    /// The ratio should not be smaller.
    AtLeast(f64),
}

impl Goal {
    /// Returns a variant with the ratios `ours / theirs`. `what` names both sides.
    pub fn of(self, what: &str, ours: &[f64], theirs: &[f64]) -> Variant {
        let (sign, limit) = match self {
            Self::AtMost(limit) => ('≤', limit),
            Self::AtLeast(limit) => ('≥', limit),
        };
        let label = Label::new(format!("{what}: goal {sign} {limit}")).with("goal", limit);
        let mut variant = Variant::new(label);
        for ratio in ratios(ours, theirs) {
            variant.push(Sample::new().with("ratio", ratio));
        }
        variant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_has_a_ratio_for_each_turn() {
        let goal = Goal::AtMost(2.5).of("a / b", &[2.0, 6.0], &[1.0, 2.0]);
        assert_eq!(goal.label.name, "a / b: goal ≤ 2.5");
        assert_eq!(goal.samples_of("ratio"), [2.0, 3.0]);
        let goal = Goal::AtLeast(20.0).of("c / d", &[1.0], &[2.0]);
        assert_eq!(goal.label.name, "c / d: goal ≥ 20");
    }
}
