use std::collections::BTreeMap;

use parking_lot::Mutex;
use volary_flight_proto::ids::WriteId;

use super::segment::Segment;

/// Totals of what is on disk, over all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageTotals {
    /// Number of segments.
    pub segments: u64,
    /// Number of rows, in segments and in the log, whether queries see them or not.
    pub rows: u64,
    /// Number of rows that are in the log and in no segment.
    pub logged_rows: u64,
    /// Size of the segments' files, in bytes.
    pub bytes: u64,
    /// The highest write that has rows or a file; `None` if there are none.
    pub max_write: Option<WriteId>,
    /// Number of rows that have expired and were deleted, and that the catalog still counts.
    pub expired_rows: u64,
    /// Number of shards that have had rows since the worker started, or that had rows then.
    pub shards: u64,
}

/// The totals, kept up to date with each change. So a report does not visit all segments.
#[derive(Debug, Default)]
pub(super) struct Totals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    totals: StorageTotals,
    /// The writes that hold anything: number of files of each, plus number of its rows in no file.
    held: BTreeMap<WriteId, u64>,
}

impl Totals {
    pub(super) fn add(&self, segment: &Segment) {
        let mut state = self.0.lock();
        state.totals.segments += 1;
        state.totals.rows += segment.rows();
        state.totals.bytes += segment.bytes();
        state.hold(segment.write(), 1);
    }

    pub(super) fn remove(&self, segment: &Segment) {
        let mut state = self.0.lock();
        state.totals.segments -= 1;
        state.totals.rows -= segment.rows();
        state.totals.bytes -= segment.bytes();
        state.release(segment.write(), 1);
    }

    /// Adds rows of a write that are in the log and in no segment.
    pub(super) fn add_logged(&self, rows: u64, write: WriteId) {
        let mut state = self.0.lock();
        state.totals.rows += rows;
        state.totals.logged_rows += rows;
        state.hold(write, rows);
    }

    pub(super) fn remove_logged(&self, rows: u64, write: WriteId) {
        let mut state = self.0.lock();
        state.totals.rows -= rows;
        state.totals.logged_rows -= rows;
        state.release(write, rows);
    }

    pub(super) fn add_orphan(&self, write: WriteId) {
        self.0.lock().hold(write, 1);
    }

    pub(super) fn remove_orphan(&self, write: WriteId) {
        self.0.lock().release(write, 1);
    }

    /// Adds rows that have expired and were deleted.
    pub(super) fn add_expired(&self, rows: u64) {
        self.0.lock().totals.expired_rows += rows;
    }

    pub(super) fn remove_expired(&self, rows: u64) {
        self.0.lock().totals.expired_rows -= rows;
    }

    pub(super) fn add_shards(&self, shards: usize) {
        self.0.lock().totals.shards += shards as u64;
    }

    pub(super) fn remove_shards(&self, shards: usize) {
        self.0.lock().totals.shards -= shards as u64;
    }

    pub(super) fn now(&self) -> StorageTotals {
        let state = self.0.lock();
        StorageTotals {
            max_write: state.held.keys().next_back().copied(),
            ..state.totals
        }
    }
}

impl State {
    fn hold(&mut self, write: WriteId, count: u64) {
        *self.held.entry(write).or_default() += count;
    }

    fn release(&mut self, write: WriteId, count: u64) {
        if let Some(held) = self.held.get_mut(&write) {
            *held = held.saturating_sub(count);
            if *held == 0 {
                self.held.remove(&write);
            }
        }
    }
}
