//! Shards on disk.
//!
//! ```text
//! <data directory>/tables/<table id>/<shard>/manifest.json            names the shard's segments; replaced atomically
//!                                           /<write id>-<uuid>.parquet a segment; never changed
//!                        /<table id>/dropped                           the table is gone, the rest is garbage
//! ```
//!
//! A manifest is the truth: a file that it does not name is garbage. So a write first makes its files and their directories
//! durable and then the manifests that name them, a removal first replaces the manifest and then deletes files; a crash in
//! between leaves garbage, which [`Storage::open`] removes. The file of a segment that a scan still uses is deleted when the
//! scan ends.

mod departed;
mod directory;
mod manifest;
mod open;
mod segment;
mod table;
#[cfg(test)]
mod tests;

pub use segment::{NewSegment, Segment};

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use volary_flight_proto::control::{Report, SegmentDescription, SegmentList};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, Result};
use volary_node::durable;

use departed::Departed;
use table::Table;

/// All shards of this worker. Clones are the same shards.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shards>);

#[derive(Debug)]
struct Shards {
    /// `<data directory>/tables`, absolute.
    root: PathBuf,
    tables: RwLock<BTreeMap<TableId, Arc<Table>>>,
    departed: Arc<Departed>,
}

/// What there is on disk, of all tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments.
    pub segments: u64,
    /// Rows, seen or not.
    pub rows: u64,
    /// Bytes of the segments' files.
    pub bytes: u64,
}

/// What became of a gateway's list of garbage.
#[derive(Debug, Default)]
pub struct Collected {
    /// The aborted writes of the list of which no row is here now.
    pub writes: Vec<WriteId>,
    /// Why something could not be deleted; it is tried again with the next list.
    pub failure: Option<Error>,
}

impl Storage {
    /// Opens the shards of a data directory and removes what no manifest names. A segment that is missing or has another size
    /// than its manifest says is logged; the queries that would see it fail, others do not. May block.
    ///
    /// # Errors
    /// `DATA_LOSS` for a damaged manifest, `INVALID_ARGUMENT` for one of a newer release, and those of the file system; each
    /// names the file.
    pub fn open(data_dir: &Path) -> Result<Self> {
        let root = data_dir
            .canonicalize()
            .map_err(|source| Error::io(format!("cannot open {}", data_dir.display()), source))?
            .join("tables");
        durable::create_directory(&root)?;
        let departed = Arc::new(Departed::default());
        let tables = open::read_tables(&root, &departed)?;
        Ok(Self(Arc::new(Shards {
            root,
            tables: RwLock::new(tables),
            departed,
        })))
    }

    /// The segments of a shard whose rows the snapshot sees, by write. A shard that nobody wrote to has none. The shard of a
    /// reference table is 0.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table was dropped; `DATA_LOSS`, with the file, if one of the segments is missing or damaged.
    pub fn segments(
        &self,
        table: TableId,
        shard: u32,
        snapshot: &Snapshot,
    ) -> Result<Vec<Arc<Segment>>> {
        self.0.departed.check_table(table)?;
        let table = self.0.tables.read().get(&table).cloned();
        table.map_or_else(|| Ok(Vec::new()), |table| table.segments(shard, snapshot))
    }

    /// Creates the file of a new segment. It is deleted again unless the segment is [added](Self::add). May block.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table was dropped, and those of the file system.
    pub fn create(&self, table: TableId, shard: u32, write: WriteId) -> Result<(NewSegment, File)> {
        let directory = Arc::clone(self.table_to_write(table)?.directory());
        NewSegment::create(directory, shard, write)
    }

    /// Adds segments, whose files are complete and synced, to the shards they were created in: durable when this returns. May
    /// block.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table was dropped, `CANCELLED` if the write was aborted, and those of the file system. Segments of some of
    /// the shards may have been added then: aborting the write removes them.
    pub fn add(&self, table: TableId, segments: Vec<Segment>) -> Result<()> {
        self.table_to_write(table)?.add(segments)
    }

    /// Deletes a table's rows, now or when the last scan of them ends, and refuses later ones. May block.
    ///
    /// # Errors
    /// Those of the file system. The table is gone also then; what is left of its files goes at the next start.
    pub fn drop_table(&self, table: TableId) -> Result<()> {
        self.0.departed.drop_table(table);
        let removed = self.0.tables.write().remove(&table);
        removed.map_or(Ok(()), |table| table.delete())
    }

    /// Deletes the rows of a failed write, and refuses later ones. May block.
    ///
    /// # Errors
    /// Those of the file system: some of the rows are still there.
    pub fn abort_write(&self, write: WriteId) -> Result<()> {
        self.remove_writes(&BTreeSet::from([write]))
    }

    /// Deletes what a gateway says is garbage: tables that are not live, and rows of failed writes. May block.
    pub fn collect(&self, question: &Report) -> Collected {
        let live = question.live_tables.iter().copied().map(TableId).collect();
        let last = TableId(question.last_table);
        self.0.departed.note_live_tables(live, last);
        let mut collected = Collected::default();
        let dropped: Vec<TableId> = {
            let tables = self.0.tables.read();
            let ids = tables.keys().copied();
            ids.filter(|table| self.0.departed.check_table(*table).is_err())
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
        collected
    }

    /// All segments, by table, shard and write.
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
            });
        });
        list
    }

    /// How much there is.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.for_each(|segment| {
            totals.segments += 1;
            totals.rows += segment.rows();
            totals.bytes += segment.bytes();
        });
        totals
    }

    fn for_each(&self, mut visit: impl FnMut(&Segment)) {
        let tables: Vec<_> = self.0.tables.read().values().cloned().collect();
        for table in tables {
            table.for_each(&mut visit);
        }
    }

    fn remove_writes(&self, writes: &BTreeSet<WriteId>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        // Noted first: what a write that still runs adds is refused from here on.
        self.0.departed.abort_writes(writes);
        let tables: Vec<_> = self.0.tables.read().values().cloned().collect();
        let mut result = Ok(());
        for table in tables {
            result = result.and(table.remove_writes(writes));
        }
        result
    }

    /// The table, which need not be known yet: its first rows make it known.
    fn table_to_write(&self, id: TableId) -> Result<Arc<Table>> {
        // Under the lock: a table that is dropped meanwhile is either refused here or removed from the map after this.
        let mut tables = self.0.tables.write();
        self.0.departed.check_table(id)?;
        let table = tables.entry(id).or_insert_with(|| {
            let departed = Arc::clone(&self.0.departed);
            Arc::new(Table::new(&self.0.root, id, BTreeMap::new(), departed))
        });
        Ok(Arc::clone(table))
    }
}
