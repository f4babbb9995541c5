/// Finds and proves shards whose rows are not those that were counted.
mod faults;
/// Keeps the rows that are in the log and in no segment yet.
mod log_rows;
/// Sets rows aside that belong to another history of writes than the catalog's.
mod lost_rows;
/// Deletes files that the store does not name.
mod orphans;
/// Decides which segments the store names, and follows what it has done.
mod segments;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use volary_flight_proto::Result;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;

use super::directory::TableDirectory;
use super::log_use::LogUse;
use super::segment::Segment;
use super::segment_rows::Visibility;
use super::shard::{CountedRows, Segments, Shard};
use super::store::Outcome;
use super::tombstones::Tombstones;
use super::totals::Totals;
pub(super) use faults::row_mismatch_error;
pub(crate) use log_rows::UnflushedShard;
pub(super) use segments::Replacement;

/// What all tables share.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    pub(super) tombstones: Arc<Tombstones>,
    pub(super) totals: Arc<Totals>,
    pub(super) log_use: Arc<LogUse>,
}

impl Shared {
    /// Creates what all tables share. The log begins with the file `log_floor`.
    pub(super) fn new(log_floor: &Arc<AtomicU64>) -> Self {
        Self {
            log_use: Arc::new(LogUse::new(log_floor)),
            ..Self::default()
        }
    }
}

/// The rows of a shard that a snapshot sees.
#[derive(Debug, Default)]
pub(crate) struct VisibleRows {
    /// The segments of which all rows are visible, ordered by write.
    pub(crate) segments: Segments,
    /// The segments of which some rows are visible. A [`WRITE_COLUMN`](super::WRITE_COLUMN) tells
    /// which.
    pub(crate) partly: Segments,
    /// The rows that are in no segment yet, with the columns of segments.
    pub(crate) logged: Vec<RecordBatch>,
}

impl VisibleRows {
    fn of(shard: &Shard, snapshot: &Snapshot) -> Result<Self> {
        let mut rows = Self {
            logged: shard.logged.visible(snapshot)?,
            ..Self::default()
        };
        for segment in &shard.segments {
            let visible = match segment.by_write().visibility(snapshot) {
                Visibility::None => continue,
                Visibility::Some => &mut rows.partly,
                Visibility::All => &mut rows.segments,
            };
            segment.check()?;
            visible.push(Arc::clone(segment));
        }
        Ok(rows)
    }
}

/// The shards of one table. Segments are changed only by operations of the
/// [`store`](super::store), which decides and settles them one after another.
#[derive(Debug)]
pub(super) struct Table {
    directory: Arc<TableDirectory>,
    tombstones: Arc<Tombstones>,
    totals: Arc<Totals>,
    log_use: Arc<LogUse>,
    /// The replacements of which it is unknown whether the store has made them.
    uncertain: Mutex<Vec<Replacement>>,
    /// The shards. Their lock is held for moments only.
    shards: RwLock<BTreeMap<u32, Shard>>,
}

impl Table {
    pub(super) fn new(
        directory: Arc<TableDirectory>,
        shards: BTreeMap<u32, Shard>,
        shared: &Shared,
    ) -> Self {
        let Shared {
            tombstones, totals, ..
        } = shared.clone();
        for shard in shards.values() {
            totals.add_expired(shard.expired.map_or(0, |expired| expired.rows));
            shard
                .segments
                .iter()
                .for_each(|segment| totals.add(segment));
            shard
                .orphans
                .iter()
                .for_each(|orphan| totals.add_orphan(orphan.write));
        }
        totals.add_shards(shards.len());
        Self {
            directory,
            tombstones,
            totals,
            log_use: Arc::clone(&shared.log_use),
            uncertain: Mutex::default(),
            shards: RwLock::new(shards),
        }
    }

    pub(super) fn id(&self) -> TableId {
        self.directory.table()
    }

    pub(super) fn directory(&self) -> &Arc<TableDirectory> {
        &self.directory
    }

    /// Returns the rows of a shard that the snapshot sees. `check` refuses queries that are too old
    /// for the state of the shard.
    pub(super) fn rows(
        &self,
        shard: u32,
        snapshot: &Snapshot,
        counted: Option<CountedRows<'_>>,
        check: impl FnOnce(&Shard) -> Result<()>,
    ) -> Result<VisibleRows> {
        let was_faulty;
        let visible = {
            let shards = self.shards.read();
            let known = shards.get(&shard);
            was_faulty = known.is_some_and(|known| known.fault.is_some());
            known.map_or(Ok(()), check)?;
            match counted.and_then(|counted| Some((counted, counted.mismatched_rows(known)?))) {
                Some((counted, rows)) => Err((counted, rows)),
                None => Ok(known.map_or_else(
                    || Ok(VisibleRows::default()),
                    |known| VisibleRows::of(known, snapshot),
                )?),
            }
        };
        if was_faulty && counted.is_some() && visible.is_ok() {
            self.clear_row_mismatch(shard);
        }
        match visible {
            Ok(rows) => Ok(rows),
            Err((counted, rows)) => {
                // The table may have been dropped meanwhile.
                self.tombstones.check_table(self.id())?;
                Err(self.note_row_mismatch(shard, counted, rows))
            }
        }
    }

    pub(super) fn for_each(&self, visit: &mut impl FnMut(&Arc<Segment>)) {
        for shard in self.shards.read().values() {
            shard.segments.iter().for_each(&mut *visit);
        }
    }

    /// Returns the segments of a shard that may be merged: the snapshot sees all of their rows, and
    /// no row of their writes is in the log only. Otherwise a restart could not tell which rows of
    /// the log the merged segment has.
    pub(super) fn mergeable(&self, shard: u32, committed: &Snapshot) -> Segments {
        let shards = self.shards.read();
        let Some(known) = shards.get(&shard).filter(|known| known.fault.is_none()) else {
            return Segments::new();
        };
        let logged: WriteSet = known.logged.runs().map(|run| run.write).collect();
        let is_logged = |segment: &Segment| {
            !logged.is_empty() && segment.writes().any(|(write, _)| logged.contains(write))
        };
        let mergeable = known.segments.iter().filter(|segment| {
            !segment.is_damaged()
                && segment.by_write().are_committed(committed)
                && !is_logged(segment)
        });
        mergeable.cloned().collect()
    }

    /// Returns the number of writes that are listed for the segments of a shard.
    pub(super) fn listed_writes(&self, shard: u32) -> usize {
        let shards = self.shards.read();
        let segments = shards.get(&shard).map_or(&[][..], |known| &known.segments);
        segments
            .iter()
            .map(|segment| segment.by_write().listed().len())
            .sum()
    }

    /// Returns the sizes of the segments of a shard that are not known to be damaged, in bytes.
    pub(super) fn sizes_of(&self, shard: u32) -> Vec<u64> {
        let shards = self.shards.read();
        let segments = shards.get(&shard).map_or(&[][..], |known| &known.segments);
        let whole = segments.iter().filter(|segment| !segment.is_damaged());
        whole.map(|segment| segment.bytes()).collect()
    }

    /// Returns the largest number of segments of at most this size that a shard has.
    pub(super) fn most_small_segments(&self, bytes: u64) -> usize {
        let shards = self.shards.read();
        let counts = shards.values().map(|shard| {
            let small = shard.segments.iter().filter(|it| it.bytes() <= bytes);
            small.count()
        });
        counts.max().unwrap_or_default()
    }

    /// Returns the shards that have segments.
    pub(super) fn shards(&self) -> Vec<u32> {
        let shards = self.shards.read();
        let filled = shards
            .iter()
            .filter(|(_, shard)| !shard.segments.is_empty());
        filled.map(|(shard, _)| *shard).collect()
    }

    /// Returns all segments.
    pub(super) fn all(&self) -> Segments {
        let mut all = Segments::new();
        self.for_each(&mut |segment| all.push(Arc::clone(segment)));
        all
    }

    /// Forgets all shards of a table that was dropped. Its directory is deleted when nobody uses
    /// its files.
    pub(super) fn forget_all(&self) {
        self.settle_uncertain(Outcome::Made);
        let shards = std::mem::take(&mut *self.shards.write());
        self.totals.remove_shards(shards.len());
        for shard in shards.into_values() {
            self.totals
                .remove_expired(shard.expired.map_or(0, |expired| expired.rows));
            for segment in shard.segments {
                segment.mark_garbage();
                self.totals.remove(&segment);
            }
            let orphans = shard.orphans.iter();
            orphans.for_each(|orphan| self.totals.remove_orphan(orphan.write));
            let runs: Vec<_> = shard.logged.runs().copied().collect();
            self.forget_runs(&runs);
        }
        self.directory.mark_dropped();
    }
}
