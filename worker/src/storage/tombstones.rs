use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::write::DESCRIPTOR_LIFETIME;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Shortest time for which an aborted write is remembered. Rows that come later are refused because
/// their descriptor has expired. It has expired even if the gateway's clock is ahead by the
/// lifetime of a descriptor.
const REMEMBERED_FOR: Duration = Duration::from_secs(2 * DESCRIPTOR_LIFETIME.as_secs());

/// Maximum number of aborted writes that are remembered. Each takes some 100 bytes.
const MOST_REMEMBERED: usize = 1 << 20;

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
    writes: BTreeSet<WriteId>,
    by_time: VecDeque<(Instant, WriteId)>,
    /// The highest write that had to be forgotten too early. Every write up to this one counts as
    /// aborted.
    floor: Option<WriteId>,
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
        while let Some((time, write)) = self.aborted.by_time.front().copied() {
            let is_old = now.saturating_duration_since(time) > REMEMBERED_FOR;
            let are_too_many = self.aborted.writes.len() > most;
            if !(is_old || are_too_many) || unchecked == 0 {
                return;
            }
            unchecked -= 1;
            self.aborted.by_time.pop_front();
            if self.running.contains_key(&write) {
                self.aborted.by_time.push_back((now, write));
                continue;
            }
            self.aborted.writes.remove(&write);
            if !is_old {
                self.aborted.floor = self.aborted.floor.max(Some(write));
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

    pub(super) fn abort_writes(&self, writes: &BTreeSet<WriteId>) {
        self.abort_writes_at(writes, Instant::now(), MOST_REMEMBERED);
    }

    fn abort_writes_at(&self, writes: &BTreeSet<WriteId>, now: Instant, most: usize) {
        let mut state = self.0.lock();
        for write in writes {
            if state.aborted.writes.insert(*write) {
                state.aborted.by_time.push_back((now, *write));
            }
        }
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
    if is_below_floor || state.aborted.writes.contains(&write) {
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

    fn writes(ids: impl IntoIterator<Item = u64>) -> BTreeSet<WriteId> {
        ids.into_iter().map(WriteId).collect()
    }

    #[test]
    fn an_abort_is_remembered_as_long_as_rows_may_come_and_not_for_ever() {
        let departed = Arc::new(Tombstones::default());
        let begun = Instant::now();
        departed.abort_writes_at(&writes([5]), begun, 10);
        let later = begun + REMEMBERED_FOR;
        departed.abort_writes_at(&writes([7]), later, 10);
        assert!(departed.check_write(WriteId(5)).is_err());
        departed.abort_writes_at(&writes([8]), later + Duration::from_secs(1), 10);
        departed.check_write(WriteId(5)).unwrap();
        assert!(departed.check_write(WriteId(7)).is_err());
    }

    #[test]
    fn an_abort_is_remembered_as_long_as_rows_of_the_write_are_being_kept() {
        let departed = Arc::new(Tombstones::default());
        let running = departed.begin(WriteId(5)).unwrap();
        let begun = Instant::now();
        departed.abort_writes_at(&writes([5]), begun, 10);
        let later = begun + 10 * REMEMBERED_FOR;
        departed.abort_writes_at(&writes(10..30), later, 10);
        assert!(departed.check_write(WriteId(5)).is_err());
        drop(running);
        departed.abort_writes_at(&writes([40]), later + 2 * REMEMBERED_FOR, 10);
        assert!(departed.check_write(WriteId(30)).is_ok());
    }

    #[test]
    fn writes_that_had_to_be_forgotten_early_count_as_aborted() {
        let departed = Arc::new(Tombstones::default());
        let open = departed.begin(WriteId(3)).unwrap();
        departed.abort_writes_at(&writes(10..25), Instant::now(), 10);
        // The writes 10 to 14 were forgotten.
        for write in [2, 10, 14, 20] {
            assert!(departed.begin(WriteId(write)).is_err(), "{write}");
        }
        departed.check_write(WriteId(3)).unwrap();
        drop(open);
        assert!(departed.begin(WriteId(25)).is_ok());
    }
}
