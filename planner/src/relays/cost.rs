//! What a merge costs, with relays and without.
//!
//! Rough, as it need only tell much from little: how many streams and rows the gateway, or a relay, has to take in, and that those of all
//! relays are taken in at the same time. The figures per stream and row are what the `fanout` and `groups` tables of `volary-bench` measure.

/// CPU time of a stream, from its ticket to its end.
const STREAM_US: f64 = 120.0;
/// CPU time of a row of partial results: decoding, dividing, finding its group.
const ROW_US: f64 = 0.1;
/// What one more step on the way takes in any case.
const HOP_US: f64 = 1000.0;
/// Cores that a relay has, at least: it has a fragment of its own to run.
const RELAY_CORES: f64 = 1.0;
/// Relays must make a merge faster by this factor: they cost other workers time.
const WORTH: f64 = 1.5;
/// The gateway is no bottleneck of fewer workers.
pub(super) const FEWEST_WORKERS: usize = 32;

/// Rows of many workers that become fewer when they are merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merge {
    /// How many workers.
    pub(super) workers: f64,
    /// Rows that each of them has.
    pub(super) rows: f64,
    /// Different rows that there are in all, of which each worker has some.
    pub(super) distinct: f64,
    /// Cores of the gateway.
    pub(super) cores: f64,
}

impl Merge {
    /// How many relays make it fastest; `None` if they do not make it much faster.
    pub(super) fn relays(self) -> Option<usize> {
        let root = self.workers.sqrt();
        let counts = [root / 2.0, root, root * 2.0].map(|count| count.round().max(2.0));
        let fastest = counts
            .into_iter()
            .min_by(|left, right| self.by_relays(*left).total_cmp(&self.by_relays(*right)))?;
        (self.by_relays(fastest) * WORTH < self.flat()).then_some(fastest as usize)
    }

    /// Microseconds of the gateway alone.
    fn flat(self) -> f64 {
        self.workers * (STREAM_US + self.rows * ROW_US) / self.cores
    }

    fn by_relays(self, relays: f64) -> f64 {
        let members = (self.workers / relays).ceil();
        let on_relay = members * (STREAM_US + self.rows * ROW_US) / RELAY_CORES;
        let merged = self.merged(members);
        let on_gateway = relays * (STREAM_US + merged * ROW_US) / self.cores;
        on_relay + HOP_US + on_gateway
    }

    /// Rows that so many workers have together, if each has any of them with the same probability.
    fn merged(self, workers: f64) -> f64 {
        let missing = 1.0 - (self.rows / self.distinct).min(1.0);
        self.distinct * (1.0 - missing.powf(workers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(workers: u32, rows: f64, distinct: f64) -> Merge {
        Merge {
            workers: f64::from(workers),
            rows,
            distinct,
            cores: 8.0,
        }
    }

    #[test]
    fn the_rows_of_several_workers_are_those_of_all_at_the_most() {
        let same = merge(100, 50.0, 50.0);
        assert!((same.merged(7.0) - 50.0).abs() < 1e-9);
        let some = merge(100, 50.0, 1000.0);
        assert!((some.merged(1.0) - 50.0).abs() < 1e-9);
        assert!(some.merged(2.0) > 90.0 && some.merged(2.0) < 100.0);
        assert!(some.merged(1e6) <= 1000.0);
    }

    #[test]
    fn thousands_of_workers_with_the_same_groups_are_relayed() {
        for rows in [1.0, 10.0, 10_000.0] {
            let relays = merge(2160, rows, rows).relays().unwrap();
            assert!((23..=93).contains(&relays), "{rows}: {relays}");
        }
    }

    #[test]
    fn few_workers_and_rows_that_stay_apart_are_not() {
        assert_eq!(merge(32, 1.0, 1.0).relays(), None);
        assert_eq!(merge(2160, 1e5, 2160.0 * 1e5).relays(), None);
        // Much to merge makes it worth while with fewer workers.
        assert!(merge(100, 1e5, 1e5).relays().is_some());
    }
}
