use std::ops::RangeInclusive;

/// Minimum and maximum of the bytes of partial results that are merged at a time. Their hash tables
/// take about as many bytes again. Small tables stay in the processor's caches.
const STEP_BYTES: RangeInclusive<usize> = (1 << 20)..=(4 << 20);
/// The partial results of a step may take the query's memory divided by this number.
const SHARE_OF_MEMORY: usize = 8;

/// The steps of a merge. Each of them covers some rounds of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steps {
    rounds: usize,
    count: usize,
}

impl Steps {
    /// Computes the steps for partial results of `total_bytes` in all. The query may hold `memory`
    /// bytes.
    pub(super) fn new(rounds: usize, total_bytes: usize, memory: usize) -> Self {
        let bytes = (memory / SHARE_OF_MEMORY).clamp(*STEP_BYTES.start(), *STEP_BYTES.end());
        Self {
            rounds,
            count: total_bytes.div_ceil(bytes).clamp(1, rounds),
        }
    }

    /// Returns the number of steps.
    pub(super) fn count(self) -> usize {
        self.count
    }

    /// Returns the first round after a step.
    pub(super) fn end(self, step: usize) -> usize {
        (step + 1) * self.rounds / self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_merged_in_one_step_and_much_in_many() {
        assert_eq!(Steps::new(128, 0, 1 << 30).count(), 1);
        assert_eq!(Steps::new(128, 1 << 20, 1 << 30).count(), 1);
        assert_eq!(Steps::new(128, 1 << 30, 64 << 20).count(), 128);
        assert_eq!(Steps::new(128, 64 << 20, 256 << 20).count(), 16);
        assert_eq!(Steps::new(128, 64 << 20, 16 << 20).count(), 32);
        assert_eq!(Steps::new(128, 64 << 20, usize::MAX).count(), 16);
        assert_eq!(Steps::new(128, usize::MAX, 1).count(), 128);
    }

    #[test]
    fn steps_cover_all_rounds_in_order() {
        for (rounds, total) in [(128, 1 << 30), (16, usize::MAX), (100, 300 << 20), (1, 5)] {
            let steps = Steps::new(rounds, total, 64 << 20);
            let ends: Vec<_> = (0..steps.count()).map(|step| steps.end(step)).collect();
            assert!(ends.is_sorted_by(|left, right| left < right), "{ends:?}");
            assert!(ends[0] > 0);
            assert_eq!(ends.last(), Some(&rounds));
        }
    }
}
