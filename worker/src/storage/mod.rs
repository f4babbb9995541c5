//! The paths are relative to the data directory:
//!
//! ```text
//! store.redb                                              names the segments
//! store.ballast                                           space that is kept for a full disk
//! tables/<table id>/<shard>-<write id>-<uuid>.parquet     a segment; never changed
//! tables/<table id>/<shard>/<write id>-<uuid>.parquet     a segment of an earlier release
//! lost/                                                   rows that the catalog no longer has
//! ```
//!
//! A query reads what the store names. A write first makes its files and their directory durable,
//! and then the transaction of the store that names them. A removal first commits the transaction
//! and then deletes files; only if the disk is full and the ballast does not suffice, it deletes
//! the files of an aborted write first. A crash between these steps leaves files that the store
//! does not name. A store that was replaced by an older one leaves such files, too. The catalog
//! tells which of the two cases it is, because it has counted the acknowledged rows of each shard
//! ([`CountedRows`]). A query of a shard that does not hold exactly these rows fails. A file that a
//! start finds, and that the store does not name, is deleted only if its write was aborted, or if
//! the shard has all of these rows without it. If a scan still uses a segment, the segment's file
//! is deleted when the scan ends.

/// Keeps the rows of small writes in the log until segments have them.
mod appending;
/// Remembers which shards have new segments.
mod changed_shards;
/// Takes the checksums of a segment's file, and tells whether the file is as it was written.
mod checksums;
/// Manages the directory of a table.
mod directory;
/// Deletes rows that have expired.
mod expiring;
/// Knows the columns and keys of the tables.
mod layouts;
/// Encodes the rows of small writes for the log.
mod log_frames;
/// Tracks which files of the log are needed.
mod log_use;
/// Keeps rows in memory that are in no segment yet.
mod logged;
/// Keeps rows that belong to another history of writes than the catalog's.
mod lost;
/// Reads what earlier releases had instead of the store.
mod manifests;
/// Opens the data directory.
mod opening;
/// Deletes files that are no longer needed.
mod reclaimer;
/// Encodes what the store says about a segment.
mod record;
/// Deletes dropped tables and rows of failed writes.
mod removing;
/// Replaces segments by others with the same rows.
mod replacing;
/// Represents segments: immutable Parquet files.
mod segment;
/// Describes the rows of a segment by the writes that added them.
mod segment_rows;
/// Moves rows that the catalog does not have to the directory of lost rows.
mod setting_aside;
/// Forgets which rows are of which write when every query sees them.
mod settling;
/// Describes one shard of a table, as the worker finds and keeps it.
mod shard;
/// Finds the files on disk when a worker starts.
mod startup;
/// Keeps the records of all segments in one transactional file.
mod store;
/// Manages the shards of one table.
mod table;
#[cfg(test)]
mod tests;
/// Remembers dropped tables and aborted writes, so that rows that arrive late are not added to
/// them.
mod tombstones;
/// Counts what is on disk.
mod totals;
/// Reads the writes of the rows of a segment.
mod write_column;

pub(crate) use appending::SmallWrite;
pub(crate) use checksums::ChecksummedFile;
pub use checksums::SegmentChecksums;
pub(crate) use record::SettledRows;
pub use removing::CollectedGarbage;
pub use segment::{NewSegment, Segment};
pub(crate) use shard::CountedRows;
pub(crate) use table::{UnflushedShard, VisibleRows};
pub use tombstones::RunningWrite;
pub use totals::StorageTotals;
pub(crate) use write_column::{WRITE_COLUMN, read_writes};

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use volary_flight_proto::Result;
use volary_flight_proto::control::{SegmentDescription, SegmentList};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::TableDescription;
use volary_node::disk::SharedDisk;

use changed_shards::ChangedShards;
use directory::{TABLES, TableDirectory};
use expiring::KnownExpiries;
use layouts::Layouts;
use reclaimer::Reclaimer;
use shard::Segments;
use store::{Outcome, Store};
use table::{Shared, Table};

use crate::log::Log;

/// All shards of this worker. Clones share the shards.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shards>);

#[derive(Debug)]
struct Shards {
    /// The data directory, as an absolute path.
    data_dir: PathBuf,
    disk: SharedDisk,
    reclaimer: Reclaimer,
    store: Store,
    tables: Arc<Tables>,
    shared: Shared,
    log: Log,
    /// Size of rows that are in the log and in no segment, in bytes, above which the log takes no
    /// more rows.
    log_bytes: u64,
    layouts: Layouts,
    /// The writes that are known to be committed.
    committed: Mutex<Snapshot>,
    /// The writes that every query sees that may still come. The store may have an earlier one.
    horizon: Mutex<Snapshot>,
    /// How long the rows of tables are kept.
    expiries: Mutex<KnownExpiries>,
    /// Wakes whoever deletes rows that have expired.
    expiries_noted: Notify,
    /// Wakes whoever waits until the log has more rows.
    filled: Arc<Notify>,
    /// Says whether the log had no room for some rows since somebody last asked.
    is_log_full: AtomicBool,
    /// Operations that add or replace segments share it. Those that must find all segments in
    /// place, and no other ones coming, hold it alone.
    arrangement: RwLock<()>,
    /// Whoever holds it makes segments of rows in the log.
    flush_turn: tokio::sync::Mutex<()>,
    /// The shards that may have enough segments to merge some of them.
    changed_shards: ChangedShards,
}

type Tables = RwLock<BTreeMap<TableId, Arc<Table>>>;

impl Storage {
    /// Returns the worker's data directory, as an absolute path.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.0.data_dir
    }

    /// Returns the rows of a shard that the snapshot sees. A shard that nobody wrote to has none.
    /// The shard of a reference table is 0. `counted` is what the catalog says about the shard.
    /// `as_of_us` is the time, in microseconds since 1970, at which the query began, if it leaves
    /// out rows that had expired by then.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped. Returns `DATA_LOSS`, with the file, if one of
    /// the segments is missing or damaged, or if the shard does not hold the rows that were
    /// counted. Returns `DEADLINE_EXCEEDED` if the snapshot is too old.
    pub(crate) fn rows(
        &self,
        table: TableId,
        shard: u32,
        snapshot: &Snapshot,
        counted: Option<CountedRows<'_>>,
        as_of_us: Option<i64>,
    ) -> Result<VisibleRows> {
        self.0.shared.tombstones.check_table(table)?;
        match (self.known_table(table), counted) {
            (Some(known), _) => known.rows(shard, snapshot, counted, |shard| {
                if shard.has_settled_rows() {
                    self.check_horizon(snapshot, counted)?;
                }
                match as_of_us.filter(|_| shard.expired.is_some()) {
                    Some(as_of_us) => self.check_as_of(as_of_us),
                    None => Ok(()),
                }
            }),
            (None, Some(counted)) if counted.mismatched_rows(None).is_some() => {
                // The table may have been dropped meanwhile.
                self.0.shared.tombstones.check_table(table)?;
                Err(table::row_mismatch_error(table, shard, counted.expected, 0))
            }
            (None, _) => Ok(VisibleRows::default()),
        }
    }

    /// Returns the number of running streams of rows.
    pub(crate) fn running_writes(&self) -> usize {
        self.0.shared.tombstones.running()
    }

    /// Registers a running stream of rows of a write. As long as the returned guard lives, an abort
    /// of the write is not forgotten.
    ///
    /// # Errors
    /// Returns `CANCELLED` if the write was aborted.
    pub fn begin(&self, write: WriteId) -> Result<RunningWrite> {
        self.0.shared.tombstones.begin(write)
    }

    /// Creates the file of a new segment. The file is deleted again unless the segment is
    /// [added](Self::add). May block.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and the errors of the file system.
    pub fn create(&self, table: TableId, shard: u32, write: WriteId) -> Result<(NewSegment, File)> {
        let directory = Arc::clone(self.table_to_write(table)?.directory());
        NewSegment::create(directory, shard, write)
    }

    /// Adds segments to the shards that they were created in. Their files must be complete and
    /// synced. The segments are durable when this function returns. May block.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, `CANCELLED` if the write was aborted, and the
    /// errors of the file system. After an error, the segments may have been added. Aborting the
    /// write removes them.
    pub fn add(&self, table: TableId, segments: Vec<Segment>) -> Result<()> {
        let table = self.table_to_write(table)?;
        let segments: Segments = segments.into_iter().map(Arc::new).collect();
        let described = self.0.layouts.unstored(table.id());
        let (storage, settling) = (self.clone(), Arc::clone(&table));
        let _arrangement = self.0.arrangement.read();
        self.0.store.change(
            move || {
                let mut delta = table.decide_addition(&segments)?;
                delta.described.extend(described);
                Ok((segments, delta))
            },
            move |segments, outcome| {
                storage.note_described(&settling, outcome);
                let changed: Vec<_> = segments.iter().map(|segment| segment.shard()).collect();
                settling.settle_addition(segments, outcome);
                storage.0.changed_shards.note(settling.id(), changed);
            },
        )
    }

    /// Returns the largest number of committed writes that this worker has heard of.
    pub fn heard_commits(&self) -> u64 {
        self.0.store.heard_commits()
    }

    /// Notes how many writes a gateway has committed. The number becomes durable with the next
    /// change of the store.
    pub(crate) fn hear_commits(&self, commits: u64) {
        self.0.store.hear_commits(commits);
    }

    /// Makes the number of committed writes durable. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn record_commits(&self) -> Result<()> {
        self.0.store.record_commits()
    }

    /// Replaces the number of committed writes by that of a catalog that was recovered. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn reset_commits(&self, commits: u64) -> Result<()> {
        self.0.store.reset_commits(commits)
    }

    /// Writes a small file without which the worker does not serve. On a full disk, this may use
    /// the space that the store keeps for that. May block.
    ///
    /// # Errors
    /// Returns the errors of `write`.
    pub(crate) fn write_with_ballast<T>(&self, write: impl Fn() -> Result<T>) -> Result<T> {
        self.0.store.write_with_ballast(write)
    }

    /// Returns a list of all segments, ordered by table, shard and write, and of the rows that are
    /// in the log only.
    pub fn list(&self) -> SegmentList {
        let mut list = SegmentList::default();
        self.for_each(|segment| {
            list.segments.push(SegmentDescription {
                table_id: segment.table().0,
                shard: segment.shard(),
                write_id: segment.write().0,
                file: segment.relative_path(),
                rows: segment.rows(),
                bytes: segment.bytes(),
                damage: segment.damage().unwrap_or_default().to_owned(),
            });
        });
        list.segments.extend(self.list_logged());
        list
    }

    /// Returns how much is on disk.
    pub fn totals(&self) -> StorageTotals {
        self.0.shared.totals.now()
    }

    /// Returns the number of segments that are known to be damaged or missing. Visits all segments.
    pub(crate) fn damaged_segments(&self) -> u64 {
        let mut damaged = 0;
        self.for_each(|segment| damaged += u64::from(segment.is_damaged()));
        damaged
    }

    /// Returns all segments that exist now.
    pub(crate) fn all_segments(&self) -> Vec<Arc<Segment>> {
        let mut all = Vec::new();
        self.for_each(|segment| all.push(Arc::clone(segment)));
        all
    }

    /// Returns the segments of a shard of which the snapshot sees all rows.
    #[cfg(test)]
    pub(crate) fn segments(
        &self,
        table: TableId,
        shard: u32,
        snapshot: &Snapshot,
        counted: Option<CountedRows<'_>>,
    ) -> Result<Vec<Arc<Segment>>> {
        self.rows(table, shard, snapshot, counted, None)
            .map(|rows| rows.segments)
    }

    /// Waits until the files of everything that was removed are deleted.
    #[cfg(test)]
    pub(crate) fn await_deletions(&self) {
        self.0.reclaimer.wait();
    }

    /// Learns the columns and keys of a table. They never change.
    pub(crate) fn note_table(&self, table: &TableDescription) {
        self.0.layouts.note(table);
    }

    fn note_described(&self, table: &Table, outcome: Outcome) {
        if outcome == Outcome::Made {
            self.0.layouts.mark_stored(table.id());
        }
    }

    fn known_table(&self, id: TableId) -> Option<Arc<Table>> {
        self.0.tables.read().get(&id).cloned()
    }

    fn tables(&self) -> Vec<Arc<Table>> {
        self.0.tables.read().values().cloned().collect()
    }

    fn for_each(&self, mut visit: impl FnMut(&Arc<Segment>)) {
        for table in self.tables() {
            table.for_each(&mut visit);
        }
    }

    /// Returns the table. A table that is not known yet becomes known with its first rows.
    fn table_to_write(&self, id: TableId) -> Result<Arc<Table>> {
        // The lock is held for the check and the insertion. A table that is dropped meanwhile is
        // either refused here, or removed from the map afterwards.
        let mut tables = self.0.tables.write();
        self.0.shared.tombstones.check_table(id)?;
        let table = tables.entry(id).or_insert_with(|| {
            let (root, disk) = (self.0.data_dir.join(TABLES), Arc::clone(&self.0.disk));
            let directory = TableDirectory::new(&root, id, disk, self.0.reclaimer.clone());
            Arc::new(Table::new(
                Arc::new(directory),
                BTreeMap::new(),
                &self.0.shared,
            ))
        });
        Ok(Arc::clone(table))
    }
}
