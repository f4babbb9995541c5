//! Turns, medians and spread.

use std::time::{Duration, Instant};

/// Times of one thing, in the order in which they were taken.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// In milliseconds: smallest, median, largest.
    pub fn spread_ms(&self) -> (f64, f64, f64) {
        let mut sorted: Vec<f64> = self
            .0
            .iter()
            .map(|time| time.as_secs_f64() * 1000.0)
            .collect();
        sorted.sort_by(f64::total_cmp);
        match sorted.as_slice() {
            [] => (0.0, 0.0, 0.0),
            all => (all[0], all[all.len() / 2], all[all.len() - 1]),
        }
    }

    /// Pair by pair, `self / other`: smallest, median, largest.
    pub fn ratio(&self, other: &Self) -> (f64, f64, f64) {
        let mut ratios: Vec<f64> = self
            .0
            .iter()
            .zip(&other.0)
            .map(|(ours, theirs)| ours.as_secs_f64() / theirs.as_secs_f64().max(1e-9))
            .collect();
        ratios.sort_by(f64::total_cmp);
        match ratios.as_slice() {
            [] => (0.0, 0.0, 0.0),
            all => (all[0], all[all.len() / 2], all[all.len() - 1]),
        }
    }
}

/// Runs `work` and says how long it took.
///
/// # Errors
/// Those of the work.
pub async fn timed<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, Duration)> {
    let started = Instant::now();
    let result = work.await?;
    Ok((result, started.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let times =
            |values: &[u64]| Times(values.iter().map(|ms| Duration::from_millis(*ms)).collect());
        let (ours, theirs) = (times(&[10, 40, 30]), times(&[10, 20, 10]));
        assert_eq!(ours.ratio(&theirs), (1.0, 2.0, 3.0));
        assert_eq!(ours.spread_ms(), (10.0, 30.0, 40.0));
    }
}
