//! The paths of shards are relative to the data directory:
//!
//! ```text
//! tables/<table id>/<shard>/manifest.json              names the segments; replaced atomically
//! tables/<table id>/<shard>/<write id>-<uuid>.parquet  a segment; never changed
//! tables/<table id>/dropped                            the table is being deleted
//! lost/                                                rows that the catalog no longer has
//! ```
//!
//! A query reads what the manifests name. A write first makes its files and their directories
//! durable, and then the manifests that name them. A removal first replaces the manifest and then
//! deletes files; only if the disk is full, it deletes the files of an aborted write first. A crash
//! between these steps leaves files that no manifest names. A manifest that was lost, or replaced
//! by an older one, leaves such files, too. The catalog tells which of the two cases it is, because
//! it has counted the acknowledged rows of each shard ([`CountedRows`]). A query of a shard that
//! does not hold exactly these rows fails. A file that a start finds, and that no manifest names,
//! is deleted only if its write was aborted, or if the shard has all of these rows without it. If a
//! scan still uses a segment, the segment's file is deleted when the scan ends.

/// Takes the checksums of a segment's file, and tells whether the file is as it was written.
mod checksums;
/// Manages the directory of a table.
mod directory;
/// Keeps rows that belong to another history of writes than the catalog's.
mod lost;
/// Reads and writes the manifest: the file that names the segments of a shard.
mod manifest;
/// Represents segments: immutable Parquet files.
mod segment;
/// Describes one shard of a table, as the worker finds and keeps it.
mod shard;
/// Reads what a worker finds on disk when it starts.
mod startup;
/// Manages the shards of one table.
mod table;
#[cfg(test)]
mod tests;
/// Remembers dropped tables and aborted writes, so that rows that arrive late are not added to
/// them.
mod tombstones;

pub(crate) use checksums::ChecksummedFile;
pub use checksums::SegmentChecksums;
pub use segment::{NewSegment, Segment};
pub use shard::CountedRows;
pub use tombstones::RunningWrite;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use volary_flight_proto::control::{
    Report, SegmentDescription, SegmentList, ShardContent, ShardName,
};
use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::{Error, Result};
use volary_node::disk::SharedDisk;
use volary_node::durable;

use directory::{TABLES, TableDirectory};
use lost::LostDirectory;
use table::Table;
use tombstones::Tombstones;

/// Maximum number of shards that a report asks about. The others wait for the next report.
const MOST_UNPROVEN: usize = 1000;

/// All shards of this worker. Clones share the shards.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shards>);

#[derive(Debug)]
struct Shards {
    /// The data directory, as an absolute path.
    data_dir: PathBuf,
    disk: SharedDisk,
    tables: RwLock<BTreeMap<TableId, Arc<Table>>>,
    tombstones: Arc<Tombstones>,
}

/// Totals of what is on disk, over all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageTotals {
    /// Number of segments.
    pub segments: u64,
    /// Number of rows, whether queries see them or not.
    pub rows: u64,
    /// Size of the segments' files, in bytes.
    pub bytes: u64,
    /// The highest write that has a file; `None` if there is no file.
    pub max_write: Option<WriteId>,
    /// Number of shards that have ever had rows.
    pub shards: u64,
    /// Number of segments that are known to be damaged or missing.
    pub damaged: u64,
}

/// Result of processing a gateway's list of garbage.
#[derive(Debug, Default)]
pub struct CollectedGarbage {
    /// The aborted writes of the list that have no rows here now.
    pub writes: Vec<WriteId>,
    /// The reason why something could not be deleted. The deletion is tried again with the next
    /// list.
    pub failure: Option<Error>,
}

impl Storage {
    /// Opens the shards of a data directory on this disk. A manifest or a segment that is missing
    /// or damaged is logged. Queries that need it fail, and other queries do not. May block.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` for a manifest of a newer release, and the errors of the file
    /// system. Each error names the file.
    pub fn open(data_dir: &Path, disk: SharedDisk) -> Result<Self> {
        let data_dir = data_dir
            .canonicalize()
            .map_err(|source| Error::io(format!("cannot open {}", data_dir.display()), source))?;
        let root = data_dir.join(TABLES);
        durable::create_directory(disk.as_ref(), &root)?;
        let tombstones = Arc::new(Tombstones::default());
        let tables = startup::read_tables(&root, &disk, &tombstones)?;
        Ok(Self(Arc::new(Shards {
            data_dir,
            disk,
            tables: RwLock::new(tables),
            tombstones,
        })))
    }

    /// Returns the segments of a shard whose rows the snapshot sees, ordered by write. A shard that
    /// nobody wrote to has no segments. The shard of a reference table is 0. `counted` is what the
    /// catalog says about the shard.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped. Returns `DATA_LOSS`, with the file, if one of
    /// the segments is missing or damaged, or if the shard does not hold the rows that were
    /// counted.
    pub fn segments(
        &self,
        table: TableId,
        shard: u32,
        snapshot: &Snapshot,
        counted: Option<CountedRows<'_>>,
    ) -> Result<Vec<Arc<Segment>>> {
        self.0.tombstones.check_table(table)?;
        let known = self.0.tables.read().get(&table).cloned();
        match (known, counted) {
            (Some(known), _) => known.segments(shard, snapshot, counted),
            (None, Some(counted)) if counted.mismatched_rows(&[]).is_some() => {
                // The table may have been dropped meanwhile.
                self.0.tombstones.check_table(table)?;
                Err(table::row_mismatch_error(
                    &format!("shard {shard} of table {table}"),
                    &format!("{TABLES}/{}/{shard}/{}", table.0, manifest::FILE),
                    false,
                    counted.expected,
                    0,
                ))
            }
            (None, _) => Ok(Vec::new()),
        }
    }

    /// Returns the number of running streams of rows.
    pub(crate) fn running_writes(&self) -> usize {
        self.0.tombstones.running()
    }

    /// Registers a running stream of rows of a write. As long as the returned guard lives, an abort
    /// of the write is not forgotten.
    ///
    /// # Errors
    /// Returns `CANCELLED` if the write was aborted.
    pub fn begin(&self, write: WriteId) -> Result<RunningWrite> {
        self.0.tombstones.begin(write)
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
    /// errors of the file system. After an error, the segments of some shards may have been added.
    /// Aborting the write removes them.
    pub fn add(&self, table: TableId, segments: Vec<Segment>) -> Result<()> {
        self.table_to_write(table)?.add(segments)
    }

    /// Deletes a table's rows, now or when the last scan of them ends, and refuses rows that come
    /// later. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system. The table is gone even then. What is left of its
    /// files is deleted after the next start, when a gateway says that the table was dropped.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.0.tombstones.drop_table(table);
        let removed = self.0.tables.write().remove(&table);
        removed.map_or(Ok(()), |table| table.delete())
    }

    /// Deletes the rows of a failed write, and refuses rows that come later. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system. Some of the rows are then still there.
    pub fn abort_write(&self, write: WriteId) -> Result<()> {
        self.remove_writes(&BTreeSet::from([write]))
    }

    /// Deletes what a gateway says is garbage: tables that are not live, and rows of failed writes.
    /// Also deletes files that no manifest names, if their shard has all counted rows without them.
    /// May block.
    pub fn collect(&self, question: &Report) -> CollectedGarbage {
        let live = question.live_tables.iter().copied().map(TableId).collect();
        let last = TableId(question.last_table);
        self.0.tombstones.note_live_tables(live, last);
        let mut collected = CollectedGarbage::default();
        let dropped: Vec<TableId> = {
            let tables = self.0.tables.read();
            let ids = tables.keys().copied();
            ids.filter(|table| self.0.tombstones.check_table(*table).is_err())
                .collect()
        };
        for table in dropped {
            tracing::info!(%table, "deleting the rows of a dropped table");
            collected.failure = self.drop_table(table).err().or(collected.failure);
        }
        let aborted: BTreeSet<_> = question
            .aborted_writes
            .iter()
            .copied()
            .map(WriteId)
            .collect();
        match self.remove_writes(&aborted) {
            Ok(()) => collected.writes = aborted.into_iter().collect(),
            Err(error) => collected.failure = Some(error),
        }
        if let Some(snapshot) = &question.snapshot {
            for content in &question.contents {
                let proven = self.prove(content, snapshot);
                collected.failure = proven.err().or(collected.failure);
            }
        }
        collected
    }

    /// Returns shards with files that no manifest names, up to a maximum number. These files may or
    /// may not be garbage.
    pub fn unproven(&self) -> Vec<ShardName> {
        let tables: Vec<_> = self.0.tables.read().values().cloned().collect();
        let unproven = tables.iter().flat_map(|table| {
            let table_id = table.directory().table().0;
            let shards = table.unproven().into_iter();
            shards.map(move |shard| ShardName { table_id, shard })
        });
        unproven.take(MOST_UNPROVEN).collect()
    }

    /// Moves the rows of write `from` and of all later writes to a directory that nobody reads, and
    /// returns the number of rows. `incarnation` is the incarnation of the catalog that does not
    /// have these rows. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system. Some of the rows are then still there.
    pub fn set_aside(&self, from: WriteId, incarnation: u32) -> Result<u64> {
        let lost = LostDirectory::new(&self.0.data_dir, incarnation);
        let tables: Vec<_> = self.0.tables.read().values().cloned().collect();
        let mut rows = 0;
        for table in tables {
            rows += table.set_aside(from, &lost)?;
        }
        Ok(rows)
    }

    fn prove(&self, content: &ShardContent, snapshot: &Snapshot) -> Result<()> {
        let Some(ShardName { table_id, shard }) = content.shard else {
            return Ok(());
        };
        let table = self.0.tables.read().get(&TableId(table_id)).cloned();
        let Some(table) = table else {
            return Ok(());
        };
        let tally = content.tally.map(Tally);
        let counted = CountedRows {
            expected: tally.map_or(ExpectedRows::Rows(content.rows), ExpectedRows::Tally),
            counted_writes: snapshot,
        };
        table.prove(shard, counted)
    }

    /// Returns a list of all segments, ordered by table, shard and write.
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
        list
    }

    /// Returns how much is on disk.
    pub fn totals(&self) -> StorageTotals {
        let mut totals = StorageTotals::default();
        self.for_each(|segment| {
            totals.segments += 1;
            totals.rows += segment.rows();
            totals.bytes += segment.bytes();
            totals.damaged += u64::from(segment.is_damaged());
        });
        let tables = self.0.tables.read();
        totals.max_write = tables.values().filter_map(|table| table.max_write()).max();
        totals.shards = tables.values().map(|table| table.shards()).sum();
        totals
    }

    /// Returns all segments that exist now.
    pub(crate) fn all_segments(&self) -> Vec<Arc<Segment>> {
        let mut all = Vec::new();
        self.for_each(|segment| all.push(Arc::clone(segment)));
        all
    }

    fn for_each(&self, mut visit: impl FnMut(&Arc<Segment>)) {
        let tables: Vec<_> = self.0.tables.read().values().cloned().collect();
        for table in tables {
            table.for_each(&mut visit);
        }
    }

    fn remove_writes(&self, writes: &BTreeSet<WriteId>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        // The abort is noted first. From here on, what a running write adds is refused.
        self.0.tombstones.abort_writes(writes);
        let tables: Vec<_> = self.0.tables.read().values().cloned().collect();
        let mut result = Ok(());
        for table in tables {
            result = result.and(table.remove_writes(writes));
        }
        result
    }

    /// Returns the table. A table that is not known yet becomes known with its first rows.
    fn table_to_write(&self, id: TableId) -> Result<Arc<Table>> {
        // The lock is held for the check and the insertion. A table that is dropped meanwhile is
        // either refused here, or removed from the map afterwards.
        let mut tables = self.0.tables.write();
        self.0.tombstones.check_table(id)?;
        let table = tables.entry(id).or_insert_with(|| {
            let (root, disk) = (self.0.data_dir.join(TABLES), Arc::clone(&self.0.disk));
            let directory = Arc::new(TableDirectory::new(&root, id, disk));
            let tombstones = Arc::clone(&self.0.tombstones);
            Arc::new(Table::new(directory, BTreeMap::new(), tombstones))
        });
        Ok(Arc::clone(table))
    }
}
