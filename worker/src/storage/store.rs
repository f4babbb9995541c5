//! Operations that wait while the store writes are committed together, with one transaction and one
//! fsync.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};

use parking_lot::Mutex;
use prost::Message;
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use uuid::Uuid;
use volary_flight_proto::ids::{StoreId, TableId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::disk::SharedDisk;
use volary_node::kill_point;
use volary_node::store_file::{CommitFailure, StoreFile, StoreKind};

use super::directory::TableDirectory;
use super::log_use::LoggedWrites;
use super::record::{self, SegmentRecord, SettledRows};

/// Name of the file in the data directory.
pub(super) const FILE: &str = "store.redb";

/// The table that maps a table and the file of a segment, relative to the table's directory, to the
/// segment's record.
const SEGMENTS: TableDefinition<(u64, &str), &[u8]> = TableDefinition::new("segments");

/// The table that maps the id of a table to its description.
const TABLES: TableDefinition<u64, &[u8]> = TableDefinition::new("tables");

/// The table that maps a table and a shard to the rows that have expired and were deleted.
const EXPIRED: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("expired");

/// The table that describes the store itself.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// The key of the store's id, which is random.
const ID: &str = "id";
/// The key of the aborted writes whose rows may still be in the log.
const ABORTED: &str = "aborted";
/// The key of the number of the first file of the log that is needed.
const LOG_FLOOR: &str = "log_floor";
/// The key of the writes that every query sees.
const HORIZON: &str = "horizon";
/// The key of the time by which rows were judged that have expired and were deleted.
const EXPIRED_US: &str = "expired_us";
/// The key of the number of committed writes that the worker has heard of.
const COMMITS: &str = "commits";

/// Maximum number of operations that are committed together.
const MAX_GROUP: usize = 1024;

const KIND: StoreKind = StoreKind {
    name: "the worker's store",
    repair: "restore it from the worker's newest backup (docs/repair.md)",
    copy: copy_tables,
};

/// The records of all segments, in one file.
pub(super) struct Store {
    file: StoreFile,
    id: StoreId,
    /// The largest number of committed writes that the worker has heard of.
    heard_commits: AtomicU64,
    /// The number that the file has.
    stored_commits: AtomicU64,
    /// The aborted writes whose rows may still be in the log.
    aborted: Mutex<LoggedWrites>,
    /// The first file of the log that is needed. It becomes durable with the next change.
    log_floor: Arc<AtomicU64>,
    /// The writes that every query sees, as the file has them.
    horizon: Mutex<Snapshot>,
    /// The latest time, in microseconds since 1970, at which rows had expired that were deleted, as
    /// the file has it.
    expired_us: AtomicI64,
    waiting: Mutex<VecDeque<Box<dyn WaitingOperation>>>,
    /// Whoever holds it decides and commits operations.
    turn: Mutex<()>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("file", &self.file)
            .field("waiting", &self.waiting.lock().len())
            .finish_non_exhaustive()
    }
}

/// What an operation changes.
#[derive(Debug, Default)]
pub(super) struct Delta {
    pub(super) added: Vec<(TableId, SegmentRecord)>,
    /// The files of the removed segments, with their tables.
    pub(super) removed: Vec<(TableId, String)>,
    /// Aborted writes whose rows may still be in the log.
    pub(super) aborted: LoggedWrites,
    /// The writes that every query sees, if that changes.
    pub(super) horizon: Option<Snapshot>,
    /// The rows of shards that have expired and were deleted: all of them, also earlier ones.
    pub(super) expired: Vec<((TableId, u32), Option<SettledRows>)>,
    /// The time, in microseconds since 1970, at which these rows had expired.
    pub(super) expired_us: Option<i64>,
    /// The columns and keys of tables that the store does not have yet.
    pub(super) described: Vec<TableDescription>,
    /// The tables that were dropped.
    pub(super) dropped: Vec<TableId>,
    /// The directories whose names of files must be durable before the records that name them.
    pub(super) directories: Vec<Arc<TableDirectory>>,
}

/// What became of an operation that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The change is durable.
    Made,
    /// Nothing was changed, because of an error with this code.
    NotMade(ErrorCode),
    /// The store may or may not have the change.
    Unknown,
}

/// An operation that waits for its commit.
trait WaitingOperation: Send {
    /// Decides what changes. Returns `None` if the operation is refused.
    fn decide(&mut self) -> Option<Delta>;

    /// Returns whether the store may use its ballast for the change if the disk is full.
    fn may_use_ballast(&self) -> bool;

    /// Tells the operation what became of its change, or that it was refused, and answers whoever
    /// waits for it. `failure` is the reason why the change was not made.
    fn settle(self: Box<Self>, outcome: Outcome, failure: Option<Error>);
}

struct Operation<D, S, T> {
    decide: Option<D>,
    may_use_ballast: bool,
    decided: Option<Result<T>>,
    settle: S,
    sender: SyncSender<Result<()>>,
}

impl<D, S, T> WaitingOperation for Operation<D, S, T>
where
    D: FnOnce() -> Result<(T, Delta)> + Send,
    S: FnOnce(T, Outcome) + Send,
    T: Send,
{
    fn decide(&mut self) -> Option<Delta> {
        let (decided, delta) = match self.decide.take()?() {
            Ok((value, delta)) => (Ok(value), Some(delta)),
            Err(error) => (Err(error), None),
        };
        self.decided = Some(decided);
        delta
    }

    fn may_use_ballast(&self) -> bool {
        self.may_use_ballast
    }

    fn settle(self: Box<Self>, outcome: Outcome, failure: Option<Error>) {
        let answer = match self.decided {
            Some(Ok(value)) => {
                (self.settle)(value, outcome);
                failure.map_or(Ok(()), Err)
            }
            Some(Err(refusal)) => Err(refusal),
            None => Err(Error::internal("an operation of the store was not decided")),
        };
        // The operation is settled even if nobody waits for it.
        let _ = self.sender.send(answer);
    }
}

/// What became of a group of operations.
struct Committed {
    outcome: Outcome,
    failure: Option<Arc<Error>>,
}

impl Committed {
    fn of(committed: Result<(), CommitFailure>) -> Self {
        let (outcome, failure) = match committed {
            Ok(()) => (Outcome::Made, None),
            Err(CommitFailure::NotMade(error)) => (Outcome::NotMade(error.code()), Some(error)),
            Err(CommitFailure::Unknown(error)) => (Outcome::Unknown, Some(error)),
        };
        Self {
            outcome,
            failure: failure.map(Arc::new),
        }
    }

    fn found_full_disk(&self) -> bool {
        self.outcome == Outcome::NotMade(ErrorCode::ResourceExhausted)
    }
}

impl Store {
    /// Returns the path of the store in a worker's data directory.
    pub(super) fn path_in(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE)
    }

    /// Opens the store of a data directory. A new store begins with the records that `initial`
    /// returns. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is damaged, `INVALID_ARGUMENT` if another release wrote it,
    /// and the errors of the file system and of `initial`.
    pub(super) fn open(
        data_dir: &Path,
        disk: SharedDisk,
        initial: impl FnOnce() -> Result<Vec<(TableId, SegmentRecord)>>,
    ) -> Result<Self> {
        let path = Self::path_in(data_dir);
        let records = if path.exists() {
            Vec::new()
        } else {
            initial()?
        };
        let file = StoreFile::open(path, disk, KIND, |transaction| {
            let id = StoreId::new();
            let mut meta = transaction.open_table(META)?;
            meta.insert(ID, id.0.as_bytes().as_slice())?;
            let delta = Delta {
                added: records,
                ..Delta::default()
            };
            write_deltas(transaction, &[&delta])
        })?;
        let (id, commits, aborted, log_floor, horizon, expired_us) = file.read(|transaction| {
            let meta = transaction.open_table(META)?;
            let id = meta.get(ID)?;
            let id = id.and_then(|id| Uuid::from_slice(id.value()).ok().map(StoreId));
            let commits = meta.get(COMMITS)?;
            let commits = commits.and_then(|commits| commits.value().try_into().ok());
            let aborted = meta.get(ABORTED)?;
            let aborted = aborted.map(|stored| record::decode_writes(stored.value()));
            let log_floor = meta.get(LOG_FLOOR)?;
            let log_floor = log_floor.and_then(|floor| floor.value().try_into().ok());
            let log_floor = log_floor.map_or(0, u64::from_le_bytes);
            let commits = commits.map_or(0, u64::from_le_bytes);
            let horizon = meta.get(HORIZON)?;
            let horizon = horizon.map(|stored| Snapshot::decode(stored.value()));
            let expired_us = meta.get(EXPIRED_US)?;
            let expired_us = expired_us.and_then(|time| time.value().try_into().ok());
            let expired_us = expired_us.map_or(i64::MIN, i64::from_le_bytes);
            Ok((id, commits, aborted, log_floor, horizon, expired_us))
        })?;
        Ok(Self {
            heard_commits: commits.into(),
            stored_commits: commits.into(),
            aborted: Mutex::new(match aborted {
                None => LoggedWrites::new(),
                Some(decoded) => decoded.ok_or_else(|| {
                    damage_error(file.path(), "has no valid list of aborted writes")
                })?,
            }),
            id: id.ok_or_else(|| damage_error(file.path(), "has no id"))?,
            log_floor: Arc::new(log_floor.into()),
            horizon: Mutex::new(
                horizon
                    .transpose()
                    .map_err(|error| {
                        let what = format!("has no valid horizon ({error})");
                        damage_error(file.path(), &what)
                    })?
                    .unwrap_or_default(),
            ),
            expired_us: expired_us.into(),
            file,
            waiting: Mutex::default(),
            turn: Mutex::default(),
        })
    }

    /// Returns the id of the store. No other store has it.
    pub(super) fn id(&self) -> StoreId {
        self.id
    }

    /// Returns the aborted writes whose rows may still be in the log.
    pub(super) fn aborted(&self) -> LoggedWrites {
        self.aborted.lock().clone()
    }

    /// Forgets aborted writes whose rows are not in the log any more. It becomes durable with the
    /// next abort.
    pub(super) fn retain_aborted(&self, logged: &LoggedWrites) {
        let mut aborted = self.aborted.lock();
        for (incarnation, writes) in aborted.iter_mut() {
            let logged = logged.get(incarnation).cloned().unwrap_or_default();
            *writes = writes.intersection(&logged);
        }
        aborted.retain(|_, writes| !writes.is_empty());
    }

    /// Returns whether a snapshot sees all writes that every query sees.
    pub(super) fn is_covered_by(&self, snapshot: &Snapshot) -> bool {
        snapshot.covers(&self.horizon.lock())
    }

    /// Returns the writes that every query sees.
    pub(super) fn horizon(&self) -> Snapshot {
        self.horizon.lock().clone()
    }

    /// Returns the latest time, in microseconds since 1970, at which rows had expired that were
    /// deleted.
    pub(super) fn expired_us(&self) -> i64 {
        self.expired_us.load(Ordering::Acquire)
    }

    /// Returns the number of the first file of the log that is needed. Whoever raises it makes it
    /// durable with the next change.
    pub(super) fn log_floor(&self) -> &Arc<AtomicU64> {
        &self.log_floor
    }

    pub(super) fn heard_commits(&self) -> u64 {
        self.heard_commits.load(Ordering::Acquire)
    }

    pub(super) fn hear_commits(&self, commits: u64) {
        self.heard_commits.fetch_max(commits, Ordering::AcqRel);
    }

    /// Makes the number of committed writes durable that the worker has heard of. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(super) fn record_commits(&self) -> Result<()> {
        if self.heard_commits() == self.stored_commits.load(Ordering::Acquire) {
            return Ok(());
        }
        self.change_with_ballast(|| Ok(((), Delta::default())), |(), _| ())
    }

    /// Replaces the number of committed writes that the worker has heard of, also by a smaller one.
    /// May block.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(super) fn reset_commits(&self, commits: u64) -> Result<()> {
        self.heard_commits.store(commits, Ordering::Release);
        self.record_commits()
    }

    /// Returns all records, by table. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is damaged, and the errors of the file system.
    pub(super) fn load(&self) -> Result<BTreeMap<TableId, Vec<SegmentRecord>>> {
        let stored = self.file.read(|transaction| {
            let mut stored = Vec::new();
            for row in transaction.open_table(SEGMENTS)?.iter()? {
                let (key, value) = row?;
                let (table, file) = key.value();
                stored.push((TableId(table), file.to_owned(), value.value().to_vec()));
            }
            Ok(stored)
        })?;
        let mut records: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (table, file, value) in stored {
            let record = SegmentRecord::decode(&file, &value).map_err(|why| {
                damage_error(
                    self.file.path(),
                    &format!("has no valid record of {file} ({why})"),
                )
            })?;
            records.entry(table).or_default().push(record);
        }
        Ok(records)
    }

    /// Returns the rows that have expired and were deleted, by table and shard. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is damaged, and the errors of the file system.
    pub(super) fn load_expired(&self) -> Result<BTreeMap<TableId, BTreeMap<u32, SettledRows>>> {
        let stored = self.file.read(|transaction| {
            let mut stored = Vec::new();
            for row in transaction.open_table(EXPIRED)?.iter()? {
                let (key, value) = row?;
                stored.push((key.value(), value.value().to_vec()));
            }
            Ok(stored)
        })?;
        let mut expired: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for ((table, shard), value) in stored {
            let rows = SettledRows::decode(&value).ok_or_else(|| {
                damage_error(self.file.path(), "has no valid number of expired rows")
            })?;
            expired
                .entry(TableId(table))
                .or_default()
                .insert(shard, rows);
        }
        Ok(expired)
    }

    /// Returns the descriptions of tables. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is damaged, and the errors of the file system.
    pub(super) fn load_descriptions(&self) -> Result<Vec<TableDescription>> {
        let stored = self.file.read(|transaction| {
            let tables = transaction.open_table(TABLES)?;
            let stored = tables
                .iter()?
                .map(|row| row.map(|(_, value)| value.value().to_vec()));
            Ok(stored.collect::<Result<Vec<_>, _>>()?)
        })?;
        let decoded = stored
            .iter()
            .map(|stored| TableDescription::decode(stored.as_slice()));
        decoded.collect::<Result<_, _>>().map_err(|error| {
            let what = format!("has no valid description of a table ({error})");
            damage_error(self.file.path(), &what)
        })
    }

    /// Makes a change durable. `decide` says what changes, and `settle` learns what became of it.
    /// No other operation is decided or settled between the two, except those of the same group:
    /// these are all decided first, and then all settled. May block.
    ///
    /// # Errors
    /// Returns the errors of `decide`, in which case `settle` is not called, and those of the file
    /// system.
    pub(super) fn change<T: Send + 'static>(
        &self,
        decide: impl FnOnce() -> Result<(T, Delta)> + Send + 'static,
        settle: impl FnOnce(T, Outcome) + Send + 'static,
    ) -> Result<()> {
        self.run(decide, settle, false)
    }

    /// Makes a change durable like [`Self::change`]. If the disk is full, the store may use its
    /// ballast for it. This is for changes that free space, and for small ones without which the
    /// worker does not serve. The rows of users must not use up the ballast. May block.
    ///
    /// # Errors
    /// Returns the errors of [`Self::change`].
    pub(super) fn change_with_ballast<T: Send + 'static>(
        &self,
        decide: impl FnOnce() -> Result<(T, Delta)> + Send + 'static,
        settle: impl FnOnce(T, Outcome) + Send + 'static,
    ) -> Result<()> {
        self.run(decide, settle, true)
    }

    /// Writes another small file without which the worker does not serve, and may use the ballast
    /// for it. May block.
    ///
    /// # Errors
    /// Returns the errors of `write`.
    pub(super) fn write_with_ballast<T>(&self, write: impl Fn() -> Result<T>) -> Result<T> {
        self.file.write_with_ballast(write)
    }

    fn run<T: Send + 'static>(
        &self,
        decide: impl FnOnce() -> Result<(T, Delta)> + Send + 'static,
        settle: impl FnOnce(T, Outcome) + Send + 'static,
        may_use_ballast: bool,
    ) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.waiting.lock().push_back(Box::new(Operation {
            decide: Some(decide),
            may_use_ballast,
            decided: None,
            settle,
            sender,
        }));
        self.await_settled(&receiver)
    }

    /// Returns the number of operations that wait for somebody to commit them.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    fn await_settled(&self, receiver: &Receiver<Result<()>>) -> Result<()> {
        let _turn = self.turn.lock();
        loop {
            match receiver.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => self.commit_next(),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::internal("an operation of the store panicked"));
                }
            }
        }
    }

    /// Commits the operations that have waited longest.
    fn commit_next(&self) {
        let mut group: Vec<_> = {
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(MAX_GROUP);
            waiting.drain(..count).collect()
        };
        let decided: Vec<_> = group
            .iter_mut()
            .filter_map(|operation| Some((operation.may_use_ballast(), operation.decide()?)))
            .collect();
        let deltas: Vec<_> = decided.iter().map(|(_, delta)| delta).collect();
        let with_ballast = decided
            .iter()
            .filter(|(may_use_ballast, _)| *may_use_ballast);
        let with_ballast: Vec<_> = with_ballast.map(|(_, delta)| delta).collect();
        let is_mixed = with_ballast.len() < deltas.len();
        let committed = Committed::of(self.commit(&deltas, !is_mixed));
        // On a full disk, those that may use the ballast are made alone.
        let alone = (is_mixed && committed.found_full_disk() && !with_ballast.is_empty())
            .then(|| Committed::of(self.commit(&with_ballast, true)));
        for operation in group {
            let alone = alone.as_ref().filter(|_| operation.may_use_ballast());
            let Committed { outcome, failure } = alone.unwrap_or(&committed);
            operation.settle(*outcome, failure.as_ref().map(Error::shared));
        }
    }

    fn commit(&self, deltas: &[&Delta], may_use_ballast: bool) -> Result<(), CommitFailure> {
        let directories: BTreeMap<_, _> = deltas
            .iter()
            .flat_map(|delta| &delta.directories)
            .map(|directory| (directory.table(), directory))
            .collect();
        for directory in directories.values() {
            directory.sync().map_err(CommitFailure::NotMade)?;
        }
        let is_change = |delta: &&Delta| {
            !delta.added.is_empty()
                || !delta.removed.is_empty()
                || !delta.described.is_empty()
                || !delta.dropped.is_empty()
                || delta.horizon.is_some()
                || !delta.expired.is_empty()
        };
        let horizon = deltas.iter().rev().find_map(|delta| delta.horizon.clone());
        let expired_us = deltas.iter().filter_map(|delta| delta.expired_us).max();
        let expired_us = expired_us.map(|time| time.max(self.expired_us()));
        let commits = self.heard_commits();
        let has_news = commits != self.stored_commits.load(Ordering::Acquire);
        // The writes of files before the floor need not be named, so both are written together.
        let log_floor = self.log_floor.load(Ordering::Acquire);
        let mut aborted = self.aborted();
        for (incarnation, writes) in deltas.iter().flat_map(|delta| &delta.aborted) {
            aborted.entry(*incarnation).or_default().insert_all(writes);
        }
        let has_aborted = aborted != *self.aborted.lock();
        if !has_news && !has_aborted && !deltas.iter().any(is_change) {
            return Ok(());
        }
        kill_point("store.before_commit");
        let work = |transaction: &WriteTransaction, _| {
            write_deltas(transaction, deltas)?;
            let mut meta = transaction.open_table(META)?;
            meta.insert(LOG_FLOOR, log_floor.to_le_bytes().as_slice())?;
            if let Some(horizon) = &horizon {
                meta.insert(HORIZON, horizon.encode_to_vec().as_slice())?;
            }
            if let Some(time) = expired_us {
                meta.insert(EXPIRED_US, time.to_le_bytes().as_slice())?;
            }
            if has_news {
                meta.insert(COMMITS, commits.to_le_bytes().as_slice())?;
            }
            if has_aborted {
                meta.insert(ABORTED, record::encode_writes(&aborted).as_slice())?;
            }
            Ok(ControlFlow::<(), _>::Continue(()))
        };
        let written = if may_use_ballast {
            self.file.commit_with_ballast(work)
        } else {
            self.file.commit(work)
        };
        let ControlFlow::Continue(()) = written? else {
            return Ok(());
        };
        kill_point("store.after_commit");
        self.stored_commits.store(commits, Ordering::Release);
        *self.aborted.lock() = aborted;
        if let Some(horizon) = horizon {
            *self.horizon.lock() = horizon;
        }
        if let Some(time) = expired_us {
            self.expired_us.store(time, Ordering::Release);
        }
        Ok(())
    }
}

fn write_deltas(transaction: &WriteTransaction, deltas: &[&Delta]) -> Result<(), redb::Error> {
    let mut segments = transaction.open_table(SEGMENTS)?;
    let mut tables = transaction.open_table(TABLES)?;
    let mut expired = transaction.open_table(EXPIRED)?;
    for delta in deltas {
        for (table, record) in &delta.added {
            let key = (table.0, record.file.as_str());
            segments.insert(key, record.encode().as_slice())?;
        }
        for (table, file) in &delta.removed {
            segments.remove((table.0, file.as_str()))?;
        }
        for table in &delta.described {
            tables.insert(table.table_id, table.encode_to_vec().as_slice())?;
        }
        for table in &delta.dropped {
            tables.remove(table.0)?;
            expired.retain_in((table.0, 0)..=(table.0, u32::MAX), |_, _| false)?;
        }
        for ((table, shard), rows) in &delta.expired {
            match rows {
                Some(rows) => {
                    expired.insert((table.0, *shard), rows.encode().as_slice())?;
                }
                None => {
                    expired.remove((table.0, *shard))?;
                }
            }
        }
    }
    Ok(())
}

fn copy_tables(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), redb::Error> {
    copy_table(META, from, to)?;
    copy_table(TABLES, from, to)?;
    copy_table(EXPIRED, from, to)?;
    copy_table(SEGMENTS, from, to)
}

fn copy_table<K: redb::Key, V: redb::Value>(
    definition: TableDefinition<K, V>,
    from: &ReadTransaction,
    to: &WriteTransaction,
) -> Result<(), redb::Error> {
    let from = from.open_table(definition)?;
    let mut to = to.open_table(definition)?;
    for row in from.iter()? {
        let (key, value) = row?;
        to.insert(key.value(), value.value())?;
    }
    Ok(())
}

/// Returns the error for a store that is not as this worker left it.
pub(super) fn damage_error(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorCode::DataLoss,
        format!("{} {} {what}; {}", KIND.name, path.display(), KIND.repair),
    )
}
