//! A write adds a small record to the store: what it adds to the statistics of its table. The
//! record of the whole statistics is written only when these deltas are larger together than it is.
//! So a write to one of thousands of shards does not write the statistics of all shards.

use std::ops::Range;

/// Size of deltas, in bytes, up to which they are kept even if the whole statistics are smaller.
const MIN_FOLDED_BYTES: usize = 16 * 1024;
/// Maximum number of deltas of a table. One transaction deletes all of them.
const MAX_DELTAS: u64 = 4096;

/// What the store has of a table's statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StatisticsLog {
    /// Number of the first delta.
    first_delta: u64,
    /// Number that the next delta gets. If there are no deltas, it is `first_delta`.
    next_delta: u64,
    /// Size of all deltas.
    delta_bytes: usize,
    /// Size of the record of the whole statistics, or 0 if there is none.
    record_bytes: usize,
}

impl StatisticsLog {
    /// Notes that the store has a record of the whole statistics.
    pub(super) fn note_record(&mut self, bytes: usize) {
        self.record_bytes = bytes;
    }

    /// Notes that the store has a delta. Its number is higher than those of the deltas before.
    pub(super) fn note_delta(&mut self, number: u64, bytes: usize) {
        if self.first_delta == self.next_delta {
            self.first_delta = number;
        }
        self.next_delta = number.saturating_add(1);
        self.delta_bytes = self.delta_bytes.saturating_add(bytes);
    }

    /// Returns the numbers of the deltas.
    pub(super) fn deltas(&self) -> Range<u64> {
        self.first_delta..self.next_delta
    }

    /// Returns what the store has when a record of the whole statistics replaces all deltas.
    pub(super) fn folded(&self, record_bytes: usize) -> Self {
        Self {
            first_delta: self.next_delta,
            next_delta: self.next_delta,
            delta_bytes: 0,
            record_bytes,
        }
    }

    /// Returns whether the deltas are too large, or too many.
    pub(super) fn must_fold(&self) -> bool {
        self.delta_bytes > self.record_bytes.max(MIN_FOLDED_BYTES)
            || self.next_delta - self.first_delta > MAX_DELTAS
    }
}
