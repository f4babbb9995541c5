use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write_set::WriteSet;

use super::logged::Run;

/// Writes with rows in the log, by the incarnation of the catalog that gave out their numbers.
pub(super) type LoggedWrites = BTreeMap<u32, WriteSet>;

/// What the log is needed for: which rows of its files are in no segment yet.
#[derive(Debug, Default)]
pub(super) struct LogUse {
    state: Mutex<State>,
    /// The first file that is needed. It is raised before the writes of earlier files are
    /// forgotten: the store keeps an abort either because of the writes or because of the floor.
    floor: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, FileUse>,
    /// Size of all rows in memory, in bytes, as they were encoded.
    bytes: u64,
    /// The last file that is not written any more.
    closed: u64,
    /// The writes whose rows may be in any file: they are being written, or that failed.
    unplaced: LoggedWrites,
}

/// What a file of the log is needed for.
#[derive(Debug, Default)]
struct FileUse {
    /// Number of rows that are in no segment.
    rows: u64,
    /// Size of all rows that were written to the file, in bytes.
    bytes: u64,
    /// Number of rows that were written to the file.
    written: u64,
    /// The writes with rows in the file, whether these are needed or not, by the incarnation of the
    /// catalog that gave out their numbers.
    writes: LoggedWrites,
}

/// A write with rows in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoggedWriteId {
    /// The incarnation of the catalog that gave out the number.
    pub(super) incarnation: u32,
    pub(super) write: WriteId,
}

impl LogUse {
    /// Creates the use of a log that begins with the file `floor`. The number is raised when files
    /// are not needed any more.
    pub(super) fn new(floor: &Arc<AtomicU64>) -> Self {
        Self {
            floor: Arc::clone(floor),
            state: Mutex::default(),
        }
    }

    /// Returns the first file that is needed.
    pub(super) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Notes that rows of a write are about to be written. Whatever becomes of them, an abort of
    /// the write must be remembered.
    pub(super) fn begin(&self, write: LoggedWriteId) {
        insert(&mut self.state.lock().unplaced, write);
    }

    /// Notes that rows of a write were not written.
    pub(super) fn give_up(&self, write: LoggedWriteId) {
        remove(&mut self.state.lock().unplaced, write);
    }

    /// Notes that rows of a write are in a file.
    pub(super) fn place(&self, file: u64, write: LoggedWriteId) {
        let mut state = self.state.lock();
        remove(&mut state.unplaced, write);
        insert(&mut state.files.entry(file).or_default().writes, write);
    }

    /// Notes that rows in a file are in no segment. They take `bytes`.
    pub(super) fn add(&self, file: u64, rows: u64, bytes: u64) {
        let mut state = self.state.lock();
        state.bytes += bytes;
        let in_file = state.files.entry(file).or_default();
        in_file.rows += rows;
        in_file.written += rows;
        in_file.bytes += bytes;
    }

    /// Notes that rows are not needed any more, because a segment has them or nobody will read
    /// them.
    pub(super) fn remove(&self, runs: &[Run]) {
        let mut state = self.state.lock();
        for run in runs {
            let Some(in_file) = state.files.get_mut(&run.file) else {
                continue;
            };
            let rows = (run.rows as u64).min(in_file.rows);
            in_file.rows -= rows;
            let bytes = rows * in_file.bytes / in_file.written.max(1);
            state.bytes = state.bytes.saturating_sub(bytes);
        }
    }

    /// Returns about how many bytes a number of rows in a file take.
    pub(super) fn bytes_of(&self, file: u64, rows: u64) -> u64 {
        let state = self.state.lock();
        let in_file = state.files.get(&file);
        in_file.map_or(0, |in_file| rows * in_file.bytes / in_file.written.max(1))
    }

    /// Returns the size of the rows that are in no segment, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Returns the first file that is still needed, if this is news. Earlier files can be recycled.
    pub(super) fn release(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let needed = state.files.iter().find(|(_, file)| file.rows > 0);
        let needed = match (needed, state.files.keys().next_back()) {
            (Some((number, _)), _) => *number,
            (None, Some(last)) if *last <= state.closed => last + 1,
            // The last file may still be written.
            (None, last) => *last?,
        };
        if self.floor.fetch_max(needed, Ordering::AcqRel) >= needed {
            return None;
        }
        state.files = state.files.split_off(&needed);
        Some(needed)
    }

    /// Notes the last file that is not written any more.
    pub(super) fn close(&self, file: u64) {
        self.state.lock().closed = file;
    }

    /// Forgets all files, when the log goes on in file `next` and no earlier one is needed.
    pub(super) fn release_all(&self, next: u64) {
        let mut state = self.state.lock();
        self.floor.fetch_max(next, Ordering::AcqRel);
        state.files.clear();
    }

    /// Returns whether a row is in no segment.
    pub(super) fn is_needed(&self) -> bool {
        self.state.lock().files.values().any(|file| file.rows > 0)
    }

    /// Returns those of the writes that may have rows in the log.
    pub(super) fn of(&self, writes: &WriteSet) -> LoggedWrites {
        let mut of = self.all();
        for logged in of.values_mut() {
            *logged = logged.intersection(writes);
        }
        of.retain(|_, writes| !writes.is_empty());
        of
    }

    /// Returns all writes that may have rows in the log.
    pub(super) fn all(&self) -> LoggedWrites {
        let state = self.state.lock();
        let mut all = state.unplaced.clone();
        for (incarnation, writes) in state.files.values().flat_map(|file| &file.writes) {
            all.entry(*incarnation).or_default().insert_all(writes);
        }
        all
    }
}

fn insert(writes: &mut LoggedWrites, write: LoggedWriteId) {
    writes
        .entry(write.incarnation)
        .or_default()
        .insert(write.write);
}

fn remove(writes: &mut LoggedWrites, write: LoggedWriteId) {
    if let Some(of_incarnation) = writes.get_mut(&write.incarnation) {
        of_incarnation.remove(write.write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_released_in_their_order_when_none_of_their_rows_is_needed() {
        let log_use = LogUse::default();
        let run = |write, file| Run {
            write: WriteId(write),
            rows: 10,
            file,
        };
        let id = |write| LoggedWriteId {
            incarnation: 7,
            write: WriteId(write),
        };
        for (write, file) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            log_use.begin(id(write));
            log_use.place(file, id(write));
            log_use.add(file, 10, 1000);
        }
        log_use.begin(id(5));
        log_use.begin(id(6));
        log_use.give_up(id(6));
        let in_log = |first, last| log_use.of(&WriteSet::of_range(WriteId(first), WriteId(last)));
        assert_eq!(in_log(1, 9)[&7], WriteSet::of_range(WriteId(1), WriteId(5)));
        assert_eq!(log_use.bytes(), 4000);
        assert_eq!(log_use.release(), Some(1));
        assert_eq!(log_use.release(), None);
        log_use.remove(&[run(3, 2), run(1, 1)]);
        assert_eq!(log_use.release(), None);
        log_use.remove(&[run(2, 1)]);
        assert_eq!((log_use.release(), log_use.bytes()), (Some(3), 1000));
        // The writes of the files that are gone are forgotten.
        assert!(in_log(1, 3).is_empty());
        assert_eq!(in_log(1, 9)[&7], WriteSet::of_range(WriteId(4), WriteId(5)));
        assert_eq!(log_use.release(), None);
        log_use.remove(&[run(4, 3)]);
        assert_eq!(log_use.release(), None, "the last file may be written");
        log_use.close(3);
        assert_eq!(log_use.release(), Some(4));
        assert_eq!(in_log(1, 9)[&7], WriteSet::of_range(WriteId(5), WriteId(5)));
    }
}
