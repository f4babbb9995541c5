/// The name of the table.
pub const TABLE: &str = "l";

/// The columns of the table, in SQL that both databases understand.
pub const COLUMNS: &str = "k BIGINT NOT NULL, a BIGINT, b DOUBLE PRECISION, s VARCHAR";

/// A constant of SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the expressions of the columns, in SQL that both databases understand. `key` is the
/// expression of the key.
pub fn values_of(key: &str) -> String {
    format!(
        "{key}, {key} * 7919 % 1000003, {key} * 0.5, 'bird ' || CAST({key} * 31 % 1000003 AS VARCHAR)"
    )
}

/// Chooses keys of the table at random. Each client chooses others.
#[derive(Debug, Clone)]
pub struct KeySource {
    state: u64,
    rows: u64,
}

impl KeySource {
    /// Creates the keys of a client, which is counted from 0, in a table of this many rows.
    pub fn new(client: usize, rows: u64) -> Self {
        Self {
            state: (client as u64 + 1) << 32,
            rows: rows.max(1),
        }
    }

    /// Returns the next keys.
    pub fn next_keys(&mut self, count: usize) -> Vec<i64> {
        (0..count).map(|_| self.next_key()).collect()
    }

    /// SplitMix64's next number, as a key.
    fn next_key(&mut self) -> i64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % self.rows) as i64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_those_of_rows_and_differ() {
        let mut source = KeySource::new(0, 1_000_000);
        let keys = source.next_keys(1_000);
        assert!(keys.iter().all(|key| (0..1_000_000).contains(key)));
        let different: BTreeSet<_> = keys.iter().collect();
        assert!(different.len() > 990);
        assert_ne!(keys, KeySource::new(1, 1_000_000).next_keys(1_000));
        assert_ne!(keys, source.next_keys(1_000));
    }
}
