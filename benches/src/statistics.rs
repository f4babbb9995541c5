/// The smallest, the median and the largest of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The smallest sample.
    pub min: f64,
    /// The sample in the middle, or the mean of the two middle samples.
    pub median: f64,
    /// The largest sample.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of the samples, or `None` if there are no samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { min, median, max })
    }
}

/// Returns `ours / theirs` for each turn. A machine that is slow for a while is slow for both sides
/// of a ratio.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs
        .map(|(ours, theirs)| ours / theirs.max(f64::MIN_POSITIVE))
        .collect()
}

/// Returns a percentile by the nearest rank: the smallest sample that is at least as large as
/// `percent` % of the samples. Returns 0 if there are no samples.
pub fn percentile(samples: &[f64], percent: u32) -> f64 {
    let sorted = sorted(samples);
    let rank = (sorted.len() * percent as usize).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_there() {
        let spread = |samples: &[f64]| Spread::of(samples).map(|s| (s.min, s.median, s.max));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(spread(&[7.0]), Some((7.0, 7.0, 7.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios_are_taken_turn_by_turn() {
        assert_eq!(ratios(&[10.0, 40.0], &[10.0, 20.0, 5.0]), [1.0, 2.0]);
    }

    #[test]
    fn percentiles_are_samples() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50), 50.0);
        assert_eq!(percentile(&hundred, 99), 99.0);
        assert_eq!(percentile(&[5.0], 99), 5.0);
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
