use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::durable;

use super::directory::TableDirectory;
use super::log_use::LogUse;
use super::logged::Run;
use super::lost::LostDirectory;
use super::record::SettledRows;
use super::segment::Segment;
use super::segment_rows::{SegmentRows, Visibility};
use super::shard::{CountedRows, Fault, Orphan, Segments, Shard};
use super::store::{self, Delta, Outcome};
use super::tombstones::Tombstones;
use super::totals::Totals;
use super::write_column::read_writes;

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

/// New segments with the rows of others, or with rows of the log.
#[derive(Debug)]
pub(super) struct Replacement {
    /// The segments that go. There are none if the rows were in the log.
    pub(super) old: Segments,
    /// The segments that come.
    pub(super) new: Segments,
    /// The rows that have expired, and that the new segments do not have.
    pub(super) expired: Option<SettledRows>,
}

/// Segments, each with another one of the same file that takes its place.
pub(super) type Changed = Vec<(Arc<Segment>, Arc<Segment>)>;

/// Segments with rows that belong to another history of writes than the catalog's.
#[derive(Debug, Default)]
pub(super) struct LostRows {
    /// The segments with such rows only.
    pub(super) segments: Segments,
    /// The segments that have other rows, too, and what is left of them.
    pub(super) partly: Changed,
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

    /// Returns the shards with files that may be garbage.
    pub(super) fn unproven(&self) -> Vec<u32> {
        let shards = self.shards.read();
        let unproven = shards.iter().filter(|(_, shard)| !shard.orphans.is_empty());
        unproven.map(|(shard, _)| *shard).collect()
    }

    /// Decides to add segments, whose files are durable.
    pub(super) fn decide_addition(&self, segments: &[Arc<Segment>]) -> Result<Delta> {
        self.check_shards(segments.iter().map(|segment| segment.shard()))?;
        for segment in segments {
            self.tombstones.check_write(segment.write())?;
        }
        let mut delta = self.decide_removal(&[]);
        let records = segments.iter().map(|segment| (self.id(), segment.record()));
        delta.added.extend(records);
        delta.directories.push(Arc::clone(&self.directory));
        Ok(delta)
    }

    /// Decides to remove segments. What the store may have made of earlier replacements is undone:
    /// their old segments are those that are read.
    pub(super) fn decide_removal(&self, segments: &[Arc<Segment>]) -> Delta {
        let mut delta = Delta::default();
        let file = |segment: &Arc<Segment>| (self.id(), segment.name().to_owned());
        for uncertain in self.uncertain.lock().iter() {
            let old = uncertain.old.iter();
            delta
                .added
                .extend(old.map(|segment| (self.id(), segment.record())));
            delta.removed.extend(uncertain.new.iter().map(file));
            if uncertain.expired.is_some() {
                let shards = self.shards.read();
                let shard = uncertain.old.first().map_or(0, |segment| segment.shard());
                let expired = shards.get(&shard).and_then(|known| known.expired);
                delta.expired.push(((self.id(), shard), expired));
            }
        }
        delta.removed.extend(segments.iter().map(file));
        delta
    }

    /// Decides to replace segments of a shard by others with the same rows.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, `CANCELLED` if some of the segments are not
    /// there any more, and the errors for a shard with a fault.
    pub(super) fn decide_replacement(&self, replacement: &Replacement) -> Result<Delta> {
        let Replacement { old, new, expired } = replacement;
        self.check_shards(old.iter().chain(new).map(|segment| segment.shard()))?;
        {
            let shards = self.shards.read();
            let is_here = |segment: &Arc<Segment>| {
                let known = shards.get(&segment.shard());
                known.is_some_and(|known| known.segments.iter().any(|it| Arc::ptr_eq(it, segment)))
            };
            if !old.iter().all(is_here) {
                return Err(Error::new(
                    ErrorCode::Cancelled,
                    format!(
                        "segments of table {} were removed while they were merged",
                        self.id()
                    ),
                ));
            }
        }
        let mut delta = self.decide_removal(old);
        let records = new.iter().map(|segment| (self.id(), segment.record()));
        delta.added.extend(records);
        delta.directories.push(Arc::clone(&self.directory));
        if let (Some(expired), Some(segment)) = (expired, old.first()) {
            let shard = segment.shard();
            let shards = self.shards.read();
            let before = shards.get(&shard).and_then(|known| known.expired);
            let all = SettledRows::sum(before.into_iter().chain([*expired]));
            delta.expired.push(((self.id(), shard), all));
        }
        Ok(delta)
    }

    /// Learns what became of a replacement.
    pub(super) fn settle_replacement(&self, replacement: Replacement, outcome: Outcome) {
        self.settle_uncertain(outcome);
        let Replacement { old, new, expired } = replacement;
        match outcome {
            // The new files are deleted with their segments.
            Outcome::NotMade(_) => {}
            Outcome::Unknown => {
                new.iter().for_each(|segment| segment.mark_named());
                let uncertain = Replacement { old, new, expired };
                self.uncertain.lock().push(uncertain);
            }
            Outcome::Made => {
                let mut shards = self.shards.write();
                for segment in new {
                    segment.mark_named();
                    self.totals.add(&segment);
                    let known = shards.entry(segment.shard()).or_default();
                    known.segments.push(segment);
                    known.segments.sort_by_key(|segment| segment.write());
                }
                if let (Some(expired), Some(segment)) = (expired, old.first()) {
                    let known = shards.entry(segment.shard()).or_default();
                    self.totals.add_expired(expired.rows);
                    known.expired = SettledRows::sum(known.expired.into_iter().chain([expired]));
                }
                self.remove_from(&mut shards, &old);
            }
        }
    }

    /// Learns what became of a change. If it was made, earlier replacements were not.
    fn settle_uncertain(&self, outcome: Outcome) {
        if outcome == Outcome::Made {
            let mut uncertain = self.uncertain.lock();
            let new = uncertain.drain(..).flat_map(|replacement| replacement.new);
            new.for_each(|segment| segment.mark_garbage());
        }
    }

    /// Learns what became of an addition.
    pub(super) fn settle_addition(&self, segments: Vec<Arc<Segment>>, outcome: Outcome) {
        self.settle_uncertain(outcome);
        if matches!(outcome, Outcome::NotMade(_)) {
            return; // The files are deleted with the segments.
        }
        // If it is unknown whether the store names the files, they are kept, and an abort of their
        // write finds them.
        let mut shards = self.shards.write();
        let mut changed = BTreeSet::new();
        for segment in segments {
            segment.mark_named();
            self.totals.add(&segment);
            changed.insert(segment.shard());
            let is_new = !shards.contains_key(&segment.shard());
            self.totals.add_shards(usize::from(is_new));
            let known = shards.entry(segment.shard()).or_default();
            known.segments.push(segment);
        }
        for shard in changed {
            if let Some(known) = shards.get_mut(&shard) {
                // The sort is stable: the segments of a write keep their order.
                known.segments.sort_by_key(|segment| segment.write());
            }
        }
    }

    /// Adds rows of a write that are durable in a file of the log. `shards` are the rows of each
    /// shard, which take `bytes` together.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and `CANCELLED` if the write was aborted.
    pub(super) fn add_logged(
        &self,
        write: WriteId,
        file: u64,
        bytes: u64,
        shards: Vec<(u32, RecordBatch)>,
    ) -> Result<()> {
        // An abort or a drop is noted before this lock is taken to remove rows. So either it is
        // seen here, or it finds these rows.
        let mut known = self.shards.write();
        self.tombstones.check_table(self.id())?;
        self.tombstones.check_write(write)?;
        let rows = shards.iter().map(|(_, rows)| rows.num_rows() as u64).sum();
        self.log_use.add(file, rows, bytes);
        self.totals.add_logged(rows, write);
        for (shard, rows) in shards {
            let is_new = !known.contains_key(&shard);
            self.totals.add_shards(usize::from(is_new));
            known
                .entry(shard)
                .or_default()
                .logged
                .push(rows, write, file)?;
        }
        Ok(())
    }

    /// Refuses rows for shards that cannot take any.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and `DATA_LOSS` or `UNAVAILABLE` for a shard
    /// with a fault.
    pub(super) fn check_shards(&self, shards: impl Iterator<Item = u32>) -> Result<()> {
        self.tombstones.check_table(self.id())?;
        let known = self.shards.read();
        for shard in shards {
            if let Some(fault) = known.get(&shard).and_then(|it| it.fault.as_ref()) {
                return Err(self.fault_error(shard, fault));
            }
        }
        Ok(())
    }

    /// Returns the rows of each shard that are in no segment yet, and that the snapshot sees, with
    /// their writes.
    pub(super) fn logged(&self, snapshot: &Snapshot) -> Result<Vec<UnflushedShard>> {
        let mut unflushed = Vec::new();
        for (shard, known) in self.shards.read().iter() {
            let rows = known.logged.of(|write| snapshot.sees(write))?;
            if !rows.is_empty() {
                unflushed.push(UnflushedShard {
                    shard: *shard,
                    rows,
                });
            }
        }
        Ok(unflushed)
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

    /// Returns segments of a shard whose rows can be settled, with what they become.
    pub(super) fn settle(&self, shard: u32, horizon: &Snapshot, logged: &WriteSet) -> Changed {
        let shards = self.shards.read();
        let segments = shards.get(&shard).map_or(&[][..], |known| &known.segments);
        let settled = segments.iter().filter_map(|segment| {
            let rows = segment.by_write().settle(horizon, logged)?;
            Some((Arc::clone(segment), Arc::new(segment.with_rows(rows))))
        });
        settled.collect()
    }

    /// Decides to say something else about the rows of segments.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped.
    pub(super) fn decide_changes(&self, changed: &Changed) -> Result<Delta> {
        self.tombstones.check_table(self.id())?;
        let records = changed.iter().map(|(_, new)| (self.id(), new.record()));
        Ok(Delta {
            added: records.collect(),
            ..Delta::default()
        })
    }

    /// Replaces segments by others of the same files.
    pub(super) fn change(&self, changed: Changed) {
        let mut shards = self.shards.write();
        for (old, new) in changed {
            let known = shards.get_mut(&old.shard());
            let segments = known.map(|known| &mut known.segments);
            let segments = segments.into_iter().flatten();
            for segment in segments.filter(|segment| Arc::ptr_eq(segment, &old)) {
                self.totals.remove(&old);
                self.totals.add(&new);
                *segment = Arc::clone(&new);
            }
        }
        for known in shards.values_mut() {
            known.segments.sort_by_key(|segment| segment.write());
        }
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

    /// Returns whether a segment has rows of several writes, and this write among them. Then it has
    /// all rows of the write in this shard.
    pub(super) fn has_flushed(&self, shard: u32, write: WriteId) -> bool {
        let shards = self.shards.read();
        let segments = shards.get(&shard).map_or(&[][..], |known| &known.segments);
        segments.iter().any(|segment| segment.has_flushed(write))
    }

    /// Returns the number of rows that are in no segment, by shard, write and log file.
    pub(super) fn logged_runs(&self) -> BTreeMap<(u32, WriteId, u64), u64> {
        let mut runs = BTreeMap::new();
        for (shard, known) in self.shards.read().iter() {
            for run in known.logged.runs() {
                *runs.entry((*shard, run.write, run.file)).or_default() += run.rows as u64;
            }
        }
        runs
    }

    /// Returns the oldest file of the log with rows that are in no segment yet.
    pub(super) fn oldest_log_file(&self) -> Option<u64> {
        let shards = self.shards.read();
        let runs = shards.values().flat_map(|shard| shard.logged.runs());
        runs.map(|run| run.file).min()
    }

    /// Decides to add segments with rows that are in the log only.
    ///
    /// # Errors
    /// Returns the errors of [`Self::decide_addition`]. Returns `CANCELLED` if some of the rows are
    /// not in the log only any more: they were set aside meanwhile.
    pub(super) fn decide_flush(&self, segments: &[Arc<Segment>]) -> Result<Delta> {
        for segment in segments {
            let mut logged: BTreeMap<WriteId, u64> = BTreeMap::new();
            if let Some(known) = self.shards.read().get(&segment.shard()) {
                for run in known.logged.runs() {
                    *logged.entry(run.write).or_default() += run.rows as u64;
                }
            }
            let is_logged = |(write, rows): (WriteId, u64)| logged.get(&write) == Some(&rows);
            if !segment.writes().all(is_logged) {
                return Err(Error::new(
                    ErrorCode::Cancelled,
                    format!(
                        "rows of table {} were removed while they were flushed",
                        self.id()
                    ),
                ));
            }
        }
        self.decide_addition(segments)
    }

    /// Learns what became of segments with rows that were in the log only. These rows are not
    /// needed in memory any more.
    pub(super) fn settle_flush(&self, segments: Segments, outcome: Outcome) -> Result<()> {
        if matches!(outcome, Outcome::NotMade(_)) {
            return Ok(()); // The files are deleted with the segments.
        }
        self.settle_uncertain(outcome);
        segments.iter().for_each(|segment| segment.mark_named());
        if outcome == Outcome::Unknown {
            // The rows stay in memory.
            self.uncertain.lock().push(Replacement {
                old: Segments::new(),
                new: segments,
                expired: None,
            });
            return Ok(());
        }
        let mut shards = self.shards.write();
        let mut result = Ok(());
        for segment in segments {
            self.totals.add(&segment);
            let known = shards.entry(segment.shard()).or_default();
            let flushed: WriteSet = segment.writes().map(|(write, _)| write).collect();
            match known.logged.remove(|write| flushed.contains(write)) {
                Ok(runs) => self.forget_runs(&runs),
                Err(error) => result = Err(error),
            }
            known.segments.push(segment);
            known.segments.sort_by_key(|segment| segment.write());
        }
        result
    }

    fn forget_runs(&self, runs: &[Run]) {
        self.log_use.remove(runs);
        for run in runs {
            self.totals.remove_logged(run.rows as u64, run.write);
        }
    }

    /// Removes the rows of these writes that are in no segment, and returns their number.
    pub(super) fn remove_logged(&self, writes: &WriteSet) -> Result<u64> {
        let mut rows = 0;
        for known in self.shards.write().values_mut() {
            let runs = known.logged.remove(|write| writes.contains(write))?;
            self.forget_runs(&runs);
            rows += runs.iter().map(|run| run.rows as u64).sum::<u64>();
        }
        Ok(rows)
    }

    /// Returns the segments and takes the orphans that belong to these writes.
    pub(super) fn take_aborted(&self, writes: &WriteSet) -> (Segments, Vec<Orphan>) {
        let mut segments = Segments::new();
        let mut orphans = Vec::new();
        for known in self.shards.write().values_mut() {
            let is_aborted = |segment: &&Arc<Segment>| writes.contains(segment.write());
            segments.extend(known.segments.iter().filter(is_aborted).cloned());
            let taken = known
                .orphans
                .extract_if(.., |orphan| writes.contains(orphan.write));
            orphans.extend(taken.inspect(|orphan| self.totals.remove_orphan(orphan.write)));
        }
        (segments, orphans)
    }

    /// Removes segments, which the store does not name any more. Their files are deleted when
    /// nobody uses them.
    pub(super) fn forget(&self, segments: &[Arc<Segment>]) {
        self.settle_uncertain(Outcome::Made);
        self.remove_from(&mut self.shards.write(), segments);
    }

    fn remove_from(&self, shards: &mut BTreeMap<u32, Shard>, segments: &[Arc<Segment>]) {
        let gone: BTreeSet<_> = segments.iter().map(Arc::as_ptr).collect();
        let changed: BTreeSet<_> = segments.iter().map(|segment| segment.shard()).collect();
        for shard in changed {
            let Some(known) = shards.get_mut(&shard) else {
                continue;
            };
            let removed = known
                .segments
                .extract_if(.., |segment| gone.contains(&Arc::as_ptr(segment)));
            for segment in removed {
                segment.mark_garbage();
                self.totals.remove(&segment);
            }
        }
    }

    /// Compares a shard with what the catalog has counted. If they are equal, the files that the
    /// store does not name are garbage, and are deleted. This holds only for files of writes that
    /// the catalog has counted, or would have counted.
    pub(super) fn prove(&self, shard: u32, counted: CountedRows<'_>) -> Result<()> {
        let (differs, garbage) = {
            let mut shards = self.shards.write();
            let Some(known) = shards.get_mut(&shard) else {
                return Ok(());
            };
            let differs = counted.mismatched_rows(Some(known));
            let mut garbage = Vec::new();
            if differs.is_none() {
                known.fault = None;
                let is_garbage = |orphan: &mut Orphan| counted.counted_writes.sees(orphan.write);
                garbage.extend(known.orphans.extract_if(.., is_garbage));
            }
            (differs, garbage)
        };
        if let Some(rows) = differs {
            let error = self.note_row_mismatch(shard, counted, rows);
            tracing::debug!(%error, "files that the store does not name are kept");
        }
        garbage
            .iter()
            .for_each(|orphan| self.totals.remove_orphan(orphan.write));
        self.delete_orphans(&garbage)
    }

    /// Keeps the rows of these writes in a directory that nobody reads, and returns what becomes of
    /// their segments.
    pub(super) fn keep_lost(&self, writes: &WriteSet, lost: &LostDirectory) -> Result<LostRows> {
        let mut rows = LostRows::default();
        let mut files = Vec::new();
        for known in self.shards.read().values() {
            for segment in &known.segments {
                let by_write = listed_rows(segment, writes)?;
                let kept = by_write.without(writes);
                if kept.rows() == 0 {
                    rows.segments.push(Arc::clone(segment));
                    files.push(segment.path().to_owned());
                } else if kept != by_write {
                    let kept = Arc::new(segment.with_rows(kept));
                    rows.partly.push((Arc::clone(segment), kept));
                }
            }
            let found = known.orphans.iter();
            let found = found.filter(|orphan| writes.contains(orphan.write));
            files.extend(found.map(|orphan| orphan.path.clone()));
        }
        lost.link_files(&self.directory, &files)?;
        for (segment, _) in &rows.partly {
            lost.write_part(&self.directory, segment, writes)?;
        }
        for (shard, known) in self.shards.read().iter() {
            let logged = known.logged.of(|write| writes.contains(write))?;
            let logged: Vec<_> = logged.into_iter().map(|(rows, _)| rows).collect();
            lost.write_rows(&self.directory, *shard, &logged)?;
        }
        Ok(rows)
    }

    /// Forgets rows that the store does not have any more, and returns their number.
    pub(super) fn forget_lost(&self, rows: LostRows) -> u64 {
        let mut count: u64 = rows.segments.iter().map(|segment| segment.rows()).sum();
        let partly = rows.partly.iter();
        count += partly
            .map(|(whole, kept)| whole.rows() - kept.rows())
            .sum::<u64>();
        self.forget(&rows.segments);
        self.change(rows.partly);
        count
    }

    /// Deletes the files of these writes that the store does not name.
    pub(super) fn delete_orphans_of(&self, writes: &WriteSet) -> Result<()> {
        let mut orphans = Vec::new();
        for known in self.shards.write().values_mut() {
            let found = known
                .orphans
                .extract_if(.., |orphan| writes.contains(orphan.write));
            orphans.extend(found.inspect(|orphan| self.totals.remove_orphan(orphan.write)));
        }
        self.delete_orphans(&orphans)
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

    /// Deletes files that have no acknowledged rows.
    pub(super) fn delete_orphans(&self, orphans: &[Orphan]) -> Result<()> {
        let mut result = Ok(());
        for Orphan { path, .. } in orphans {
            tracing::info!(file = %path.display(), "deleting a segment that the store does not name");
            result = result.and(durable::remove_file(self.directory.disk(), path));
        }
        result
    }

    fn fault_error(&self, shard: u32, fault: &Fault) -> Error {
        match fault {
            Fault::RowMismatch(difference) => Error::new(ErrorCode::DataLoss, difference.clone()),
            Fault::NothingNamed => Error::unavailable(format!(
                "shard {shard} of table {}: there are files of rows that {} does not name, and the gateway has not said yet whether the shard had rows; retry",
                self.id(),
                store::FILE,
            )),
        }
    }

    /// Notes that the shard now holds the rows that were counted.
    fn clear_row_mismatch(&self, shard: u32) {
        if let Some(known) = self.shards.write().get_mut(&shard)
            && matches!(known.fault, Some(Fault::RowMismatch(_)))
        {
            known.fault = None;
        }
    }

    /// Notes that the shard does not hold the rows that were counted, and returns the error. From
    /// now on, rows that are written to the shard are refused: they could be lost with it.
    fn note_row_mismatch(&self, shard: u32, counted: CountedRows<'_>, rows: u64) -> Error {
        let error = row_mismatch_error(self.id(), shard, counted.expected, rows);
        let mut shards = self.shards.write();
        let is_new = !shards.contains_key(&shard);
        self.totals.add_shards(usize::from(is_new));
        let known = shards.entry(shard).or_default();
        if !matches!(known.fault, Some(Fault::RowMismatch(_))) {
            tracing::error!(%error, "acknowledged rows are missing: queries that need them fail");
            known.fault = Some(Fault::RowMismatch(error.message().to_owned()));
        }
        error
    }
}

/// The rows of a shard that are in no segment yet.
#[derive(Debug)]
pub(crate) struct UnflushedShard {
    pub(crate) shard: u32,
    /// Batches of rows with the writes of their rows.
    pub(super) rows: Vec<(RecordBatch, Vec<Run>)>,
}

/// Returns the rows of a segment by write, so that those of these writes are listed.
fn listed_rows(segment: &Segment, writes: &WriteSet) -> Result<SegmentRows> {
    let known = segment.by_write();
    let Some(settled) = known.settled() else {
        return Ok(known.clone());
    };
    let settled = WriteSet::of_range(settled.first, settled.last);
    if settled.intersection(writes).is_empty() {
        return Ok(known.clone());
    }
    let mut listed: BTreeMap<WriteId, u64> = BTreeMap::new();
    read_writes(segment, |writes| {
        for write in writes.iter().copied().map(WriteId) {
            if !known.hidden().contains(write) {
                *listed.entry(write).or_default() += 1;
            }
        }
    })?;
    let listed = listed.into_iter().collect();
    Ok(SegmentRows::of_several(
        segment.write(),
        listed,
        None,
        known.hidden().clone(),
    ))
}

/// Returns the error for a shard that holds other rows than the catalog has counted.
pub(super) fn row_mismatch_error(
    table: TableId,
    shard: u32,
    expected: ExpectedRows,
    rows: u64,
) -> Error {
    let rows_text = match expected {
        ExpectedRows::Rows(expected) => {
            format!("it has {rows} of its {expected} acknowledged rows")
        }
        ExpectedRows::Tally(_) => {
            format!("it has {rows} rows, which are not the acknowledged ones")
        }
    };
    Error::new(
        ErrorCode::DataLoss,
        format!(
            "shard {shard} of table {table}: {rows_text}, because {} in the worker's data directory is outdated, or belongs to another worker; restore the data directory from its newest backup and restart the worker (docs/repair.md)",
            store::FILE
        ),
    )
}
