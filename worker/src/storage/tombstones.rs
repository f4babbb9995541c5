use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::write::DESCRIPTOR_LIFETIME;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Shortest time for which an aborted write is remembered. Rows that come later are refused because
/// their descriptor has expired. It has expired even if the gateway's clock is ahead by the
/// lifetime of a descriptor.
const REMEMBERED_FOR: Duration = Duration::from_secs(2 * DESCRIPTOR_LIFETIME.as_secs());

/// Maximum number of ranges of aborted writes that are remembered. Each takes 16 bytes.
const MOST_REMEMBERED: usize = 1 << 20;

/// Writes that are aborted within this time are remembered and forgotten together.
const PERIOD: Duration = Duration::from_secs(60);

/// The tables that were dropped and the writes that were aborted since the worker started, and the
/// gateway's list of live tables.
#[derive(Debug, Default)]
pub(super) struct Tombstones(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Dropped tables that are not covered by `live_tables` yet.
    dropped_tables: BTreeSet<TableId>,
    /// The tables that exist, of those up to `last_table`.
    live_tables: BTreeSet<TableId>,
    /// The last table that `live_tables` covers; `None` before a gateway has sent its first list.
    /// Ids begin with 1.
    last_table: Option<TableId>,
    aborted: Aborted,
    /// Number of running streams of rows, for each write.
    running: BTreeMap<WriteId, usize>,
}

/// Aborted writes, in the order in which they were aborted. A write that began long ago has a small
/// number, and may be aborted last. So the number does not tell which write to forget first.
#[derive(Debug, Default)]
struct Aborted {
    /// Writes that were aborted within [`PERIOD`] from this time on.
    by_time: VecDeque<(Instant, WriteSet)>,
    /// The highest write that had to be forgotten too early. Every write up to this one counts as
    /// aborted.
    floor: Option<WriteId>,
}

impl Aborted {
    fn add(&mut self, writes: &WriteSet, now: Instant) {
        match self.by_time.back_mut() {
            Some((begun, period)) if now.saturating_duration_since(*begun) < PERIOD => {
                period.insert_all(writes);
            }
            _ => self.by_time.push_back((now, writes.clone())),
        }
    }

    fn contains(&self, write: WriteId) -> bool {
        self.by_time
            .iter()
            .any(|(_, period)| period.contains(write))
    }
}

/// A running stream of rows. As long as this value lives, an abort of its write is not forgotten.
#[derive(Debug)]
pub struct RunningWrite {
    write: WriteId,
    tombstones: Arc<Tombstones>,
}

impl Drop for RunningWrite {
    fn drop(&mut self) {
        let mut state = self.tombstones.0.lock();
        if let Some(count) = state.running.get_mut(&self.write) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.write);
            }
        }
    }
}

impl State {
    fn lists_as_dropped(&self, table: TableId) -> bool {
        self.last_table.is_some_and(|last| table <= last) && !self.live_tables.contains(&table)
    }

    /// Forgets aborted writes that are old, and the oldest ones if there are too many. Running
    /// writes are not forgotten.
    fn forget_aborted(&mut self, now: Instant, most: usize) {
        let mut unchecked = self.aborted.by_time.len();
        while let Some((begun, _)) = self.aborted.by_time.front() {
            let is_old = now.saturating_duration_since(*begun) > REMEMBERED_FOR + PERIOD;
            let ranges = self.aborted.by_time.iter();
            let ranges: usize = ranges.map(|(_, period)| period.ranges()).sum();
            if !(is_old || ranges > most) || unchecked == 0 {
                return;
            }
            unchecked -= 1;
            let Some((_, forgotten)) = self.aborted.by_time.pop_front() else {
                return;
            };
            let running = self.running.keys().copied();
            let kept: WriteSet = running.filter(|write| forgotten.contains(*write)).collect();
            if !kept.is_empty() {
                self.aborted.by_time.push_back((now, kept));
            }
            if !is_old {
                self.aborted.floor = self.aborted.floor.max(forgotten.last());
            }
        }
    }
}

impl Tombstones {
    /// Registers a running stream of rows of a write.
    ///
    /// # Errors
    /// Returns `CANCELLED` if the write was aborted.
    pub(super) fn begin(self: &Arc<Self>, write: WriteId) -> Result<RunningWrite> {
        let mut state = self.0.lock();
        check_write(&state, write)?;
        *state.running.entry(write).or_default() += 1;
        Ok(RunningWrite {
            write,
            tombstones: Arc::clone(self),
        })
    }

    /// Returns the number of running streams of rows.
    pub(super) fn running(&self) -> usize {
        self.0.lock().running.values().sum()
    }

    /// Refuses a table that was dropped.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped.
    pub(super) fn check_table(&self, table: TableId) -> Result<()> {
        let state = self.0.lock();
        if state.dropped_tables.contains(&table) || state.lists_as_dropped(table) {
            return Err(Error::not_found(format!(
                "table {table} was dropped; run the statement again"
            )));
        }
        Ok(())
    }

    /// Refuses a write that was aborted.
    ///
    /// # Errors
    /// Returns `CANCELLED` if the write was aborted.
    pub(super) fn check_write(&self, write: WriteId) -> Result<()> {
        check_write(&self.0.lock(), write)
    }

    pub(super) fn drop_table(&self, table: TableId) {
        self.0.lock().dropped_tables.insert(table);
    }

    pub(super) fn abort_writes(&self, writes: &WriteSet) {
        self.abort_writes_at(writes, Instant::now(), MOST_REMEMBERED);
    }

    fn abort_writes_at(&self, writes: &WriteSet, now: Instant, most: usize) {
        let mut state = self.0.lock();
        state.aborted.add(writes, now);
        state.forget_aborted(now, most);
    }

    /// Notes which of the tables up to `last` exist.
    pub(super) fn note_live_tables(&self, live: BTreeSet<TableId>, last: TableId) {
        let mut state = self.0.lock();
        state.live_tables = live;
        state.last_table = Some(last);
        let covered: Vec<_> = state
            .dropped_tables
            .iter()
            .copied()
            .filter(|table| state.lists_as_dropped(*table))
            .collect();
        for table in covered {
            state.dropped_tables.remove(&table);
        }
    }
}

fn check_write(state: &State, write: WriteId) -> Result<()> {
    let is_running = state.running.contains_key(&write);
    let is_below_floor = !is_running && state.aborted.floor.is_some_and(|floor| write <= floor);
    if is_below_floor || state.aborted.contains(write) {
        return Err(Error::new(
            ErrorCode::Cancelled,
            format!("write {write} was aborted; run the statement again"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(ids: impl IntoIterator<Item = u64>) -> WriteSet {
        ids.into_iter().map(WriteId).collect()
    }

    #[test]
    fn an_abort_is_remembered_as_long_as_rows_may_come_and_not_for_ever() {
        let departed = Arc::new(Tombstones::default());
        let begun = Instant::now();
        departed.abort_writes_at(&writes([5]), begun, 10);
        departed.abort_writes_at(&writes([6]), begun + PERIOD / 2, 10);
        let later = begun + REMEMBERED_FOR + PERIOD;
        departed.abort_writes_at(&writes([7]), later, 10);
        assert!(departed.check_write(WriteId(5)).is_err());
        departed.abort_writes_at(&writes([8]), later + Duration::from_secs(1), 10);
        departed.check_write(WriteId(5)).unwrap();
        departed.check_write(WriteId(6)).unwrap();
        assert!(departed.check_write(WriteId(7)).is_err());
    }

    #[test]
    fn an_abort_is_remembered_as_long_as_rows_of_the_write_are_being_kept() {
        let departed = Arc::new(Tombstones::default());
        let running = departed.begin(WriteId(5)).unwrap();
        let begun = Instant::now();
        departed.abort_writes_at(&writes([5]), begun, 10);
        let later = begun + 10 * REMEMBERED_FOR;
        departed.abort_writes_at(&writes((10..50).step_by(2)), later, 10);
        assert!(departed.check_write(WriteId(5)).is_err());
        drop(running);
        departed.abort_writes_at(&writes([60]), later + 2 * (REMEMBERED_FOR + PERIOD), 10);
        assert!(departed.check_write(WriteId(50)).is_ok());
    }

    #[test]
    fn writes_that_had_to_be_forgotten_early_count_as_aborted() {
        let departed = Arc::new(Tombstones::default());
        let open = departed.begin(WriteId(3)).unwrap();
        let now = Instant::now();
        departed.abort_writes_at(&writes((10..20).step_by(2)), now, 10);
        departed.abort_writes_at(&writes((20..40).step_by(2)), now + PERIOD, 10);
        // The writes up to 18 were forgotten.
        for write in [2, 10, 15, 18, 20, 38] {
            assert!(departed.begin(WriteId(write)).is_err(), "{write}");
        }
        departed.check_write(WriteId(3)).unwrap();
        drop(open);
        for write in [21, 39, 40] {
            assert!(departed.begin(WriteId(write)).is_ok(), "{write}");
        }
    }
}
