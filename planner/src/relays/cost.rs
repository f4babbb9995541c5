//! The estimated cost of a merge is rough, because it only has to tell large merges from small
//! ones. It counts the streams and rows that the gateway or a relay has to read, and assumes that
//! all relays read at the same time. The costs per stream and row were measured with the `fanout`
//! and `groups` tables of `volary-bench`.

/// CPU time of a stream, from its ticket to its end, in microseconds.
const STREAM_US: f64 = 120.0;
/// CPU time of a row of partial results, in microseconds: it is decoded and distributed, and its
/// group is found.
const ROW_US: f64 = 0.1;
/// Minimum time of one more hop between nodes, in microseconds.
const HOP_US: f64 = 1000.0;
/// Minimum number of cores that a relay has for merging. The relay also runs a fragment itself.
const RELAY_CORES: f64 = 1.0;
/// Factor by which relays must speed up a merge, because they cost other workers time.
const MIN_SPEEDUP: f64 = 1.5;
/// Minimum number of workers for relays. With fewer workers the gateway is not a bottleneck.
pub(super) const MIN_WORKERS: usize = 32;

/// A merge that reduces the rows of many workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct MergeEstimate {
    /// Number of workers.
    pub(super) workers: f64,
    /// Number of rows of each worker.
    pub(super) rows: f64,
    /// Number of different rows on all workers together. Each worker has some of them.
    pub(super) distinct: f64,
    /// Number of cores of the gateway.
    pub(super) cores: f64,
}

impl MergeEstimate {
    /// Returns the fastest number of relays, or `None` if relays are not much faster.
    pub(super) fn best_relay_count(self) -> Option<usize> {
        let root = self.workers.sqrt();
        let counts = [root / 2.0, root, root * 2.0].map(|count| count.round().max(2.0));
        let fastest = counts.into_iter().min_by(|left, right| {
            self.cost_with_relays(*left)
                .total_cmp(&self.cost_with_relays(*right))
        })?;
        (self.cost_with_relays(fastest) * MIN_SPEEDUP < self.cost_without_relays())
            .then_some(fastest as usize)
    }

    /// Returns the time that the gateway needs alone, in microseconds.
    fn cost_without_relays(self) -> f64 {
        self.workers * (STREAM_US + self.rows * ROW_US) / self.cores
    }

    fn cost_with_relays(self, relays: f64) -> f64 {
        let members = (self.workers / relays).ceil();
        let on_relay = members * (STREAM_US + self.rows * ROW_US) / RELAY_CORES;
        let merged = self.merged_rows(members);
        let on_gateway = relays * (STREAM_US + merged * ROW_US) / self.cores;
        on_relay + HOP_US + on_gateway
    }

    /// Returns the number of different rows that `workers` workers have together, if each worker
    /// has each row with the same probability.
    fn merged_rows(self, workers: f64) -> f64 {
        let missing = 1.0 - (self.rows / self.distinct).min(1.0);
        self.distinct * (1.0 - missing.powf(workers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(workers: u32, rows: f64, distinct: f64) -> MergeEstimate {
        MergeEstimate {
            workers: f64::from(workers),
            rows,
            distinct,
            cores: 8.0,
        }
    }

    #[test]
    fn the_rows_of_several_workers_are_those_of_all_at_the_most() {
        let same = merge(100, 50.0, 50.0);
        assert!((same.merged_rows(7.0) - 50.0).abs() < 1e-9);
        let some = merge(100, 50.0, 1000.0);
        assert!((some.merged_rows(1.0) - 50.0).abs() < 1e-9);
        assert!(some.merged_rows(2.0) > 90.0 && some.merged_rows(2.0) < 100.0);
        assert!(some.merged_rows(1e6) <= 1000.0);
    }

    #[test]
    fn thousands_of_workers_with_the_same_groups_are_relayed() {
        for rows in [1.0, 10.0, 10_000.0] {
            let relays = merge(2160, rows, rows).best_relay_count().unwrap();
            assert!((23..=93).contains(&relays), "{rows}: {relays}");
        }
    }

    #[test]
    fn few_workers_and_rows_that_stay_apart_are_not() {
        assert_eq!(merge(32, 1.0, 1.0).best_relay_count(), None);
        assert_eq!(merge(2160, 1e5, 2160.0 * 1e5).best_relay_count(), None);
        // If there is much to merge, relays pay off with fewer workers.
        assert!(merge(100, 1e5, 1e5).best_relay_count().is_some());
    }
}
