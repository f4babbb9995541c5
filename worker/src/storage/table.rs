use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use volary_flight_proto::fragment::ExpectedRows;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::durable;

use super::directory::TableDirectory;
use super::lost::LostDirectory;
use super::manifest::{self, Manifest};
use super::segment::Segment;
use super::shard::{CountedRows, Fault, Orphan, Segments, Shard};
use super::tombstones::Tombstones;

/// Number of manifests that are replaced at the same time. Each replacement waits for the disk, and
/// the disk makes several durable at once.
const MANIFESTS_AT_ONCE: usize = 8;

#[derive(Debug)]
pub(super) struct Table {
    directory: Arc<TableDirectory>,
    tombstones: Arc<Tombstones>,
    /// Lock that is held while manifests are replaced.
    manifest_lock: Mutex<()>,
    /// The shards. Their lock is held for moments only.
    shards: RwLock<BTreeMap<u32, Shard>>,
}

impl Table {
    pub(super) fn new(
        directory: Arc<TableDirectory>,
        shards: BTreeMap<u32, Shard>,
        tombstones: Arc<Tombstones>,
    ) -> Self {
        Self {
            directory,
            tombstones,
            manifest_lock: Mutex::new(()),
            shards: RwLock::new(shards),
        }
    }

    pub(super) fn directory(&self) -> &Arc<TableDirectory> {
        &self.directory
    }

    pub(super) fn segments(
        &self,
        shard: u32,
        snapshot: &Snapshot,
        counted: Option<CountedRows<'_>>,
    ) -> Result<Segments> {
        let was_faulty;
        let visible = {
            let shards = self.shards.read();
            let known = shards.get(&shard);
            was_faulty = known.is_some_and(|known| known.fault.is_some());
            if let Some(Fault::Damaged(damage)) = known.and_then(|known| known.fault.as_ref()) {
                return Err(self.damage_error(shard, damage));
            }
            let segments = known.map_or(&[][..], |known| &known.segments);
            match counted.and_then(|counted| Some((counted, counted.mismatched_rows(segments)?))) {
                Some((counted, rows)) => Err((counted, rows)),
                None => Ok(segments
                    .iter()
                    .filter(|segment| snapshot.sees(segment.write()))
                    .map(|segment| segment.check().map(|()| Arc::clone(segment)))
                    .collect::<Result<_>>()?),
            }
        };
        if was_faulty && counted.is_some() && visible.is_ok() {
            self.clear_row_mismatch(shard);
        }
        match visible {
            Ok(segments) => Ok(segments),
            Err((counted, rows)) => {
                // The table may have been dropped meanwhile.
                self.tombstones.check_table(self.directory.table())?;
                Err(self.note_row_mismatch(shard, counted, rows))
            }
        }
    }

    pub(super) fn for_each(&self, visit: &mut impl FnMut(&Arc<Segment>)) {
        for shard in self.shards.read().values() {
            shard.segments.iter().for_each(&mut *visit);
        }
    }

    /// Returns the number of shards that have ever had rows.
    pub(super) fn shards(&self) -> u64 {
        self.shards.read().len() as u64
    }

    /// Returns the highest write that has a file.
    pub(super) fn max_write(&self) -> Option<WriteId> {
        let shards = self.shards.read();
        let writes = shards.values().flat_map(|shard| {
            let named = shard.segments.iter().map(|segment| segment.write());
            named.chain(shard.orphans.iter().map(|orphan| orphan.write))
        });
        writes.max()
    }

    /// Returns the shards with files that may be garbage.
    pub(super) fn unproven(&self) -> Vec<u32> {
        let shards = self.shards.read();
        let unproven = shards.iter().filter(|(_, shard)| !shard.orphans.is_empty());
        unproven.map(|(shard, _)| *shard).collect()
    }

    pub(super) fn add(&self, segments: Vec<Segment>) -> Result<()> {
        let mut added: BTreeMap<u32, Segments> = BTreeMap::new();
        for segment in segments {
            added
                .entry(segment.shard())
                .or_default()
                .push(Arc::new(segment));
        }
        let _writer = self.manifest_lock.lock();
        self.tombstones.check_table(self.directory.table())?;
        for segment in added.values().flatten() {
            self.tombstones.check_write(segment.write())?;
        }
        let changes: Vec<(u32, Segments)> = {
            let shards = self.shards.read();
            let add_known = |(shard, mut new): (u32, Segments)| {
                if let Some(known) = shards.get(&shard) {
                    self.check_fault(shard, known)?;
                    new.extend(known.segments.iter().cloned());
                }
                // The sort is stable: the segments of a write keep their order.
                new.sort_by_key(|segment| segment.write());
                Ok((shard, new))
            };
            added.into_iter().map(add_known).collect::<Result<_>>()?
        };
        self.directory
            .sync_shards(changes.iter().map(|(shard, _)| *shard))?;
        for_each_concurrently(&changes, |(shard, segments)| self.replace(*shard, segments))
    }

    /// Removes the rows of aborted writes.
    pub(super) fn remove_writes(&self, writes: &BTreeSet<WriteId>) -> Result<()> {
        let _writer = self.manifest_lock.lock();
        let mut orphans = Vec::new();
        let mut removed = Vec::new();
        let mut changes = Vec::new();
        for (shard, known) in self.shards.write().iter_mut() {
            let is_aborted_orphan = |orphan: &mut Orphan| writes.contains(&orphan.write);
            orphans.extend(known.orphans.extract_if(.., is_aborted_orphan));
            let is_aborted_segment = |segment: &&Arc<Segment>| writes.contains(&segment.write());
            let (gone, kept): (Vec<_>, Vec<_>) =
                known.segments.iter().partition(is_aborted_segment);
            if !gone.is_empty() {
                removed.extend(gone.into_iter().cloned());
                changes.push((*shard, kept.into_iter().cloned().collect::<Segments>()));
            }
        }
        let deleted = self.delete_orphans(&orphans);
        let replace = |(shard, segments): &(u32, Segments)| self.replace(*shard, segments);
        let replaced = match for_each_concurrently(&changes, replace) {
            // A full disk has no room for the manifests that would free space. So the files are
            // deleted first.
            Err(error) if error.code() == ErrorCode::ResourceExhausted => {
                removed.iter().for_each(|segment| segment.delete_early());
                for_each_concurrently(&changes, replace)
            }
            replaced => replaced,
        };
        deleted.and(replaced)
    }

    /// Compares a shard with what the catalog has counted. If they are equal, the files that no
    /// manifest names are garbage, and are deleted. This holds only for files of writes that the
    /// catalog has counted, or would have counted.
    pub(super) fn prove(&self, shard: u32, counted: CountedRows<'_>) -> Result<()> {
        let _writer = self.manifest_lock.lock();
        let (differs, garbage) = {
            let mut shards = self.shards.write();
            let Some(known) = shards.get_mut(&shard) else {
                return Ok(());
            };
            if matches!(known.fault, Some(Fault::Damaged(_))) {
                return Ok(());
            }
            let differs = counted.mismatched_rows(&known.segments);
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
            tracing::debug!(%error, "files that no manifest names are kept");
            return Ok(());
        }
        if garbage.is_empty() {
            return Ok(());
        }
        // The manifest may have been replaced just before a crash. An older manifest must not come
        // back when the files are gone.
        let path = self.directory.shard_path(shard);
        durable::sync_directory(self.directory.disk(), &path)?;
        self.delete_orphans(&garbage)
    }

    /// Moves the rows of write `from` and of all later writes to a directory that nobody reads, and
    /// returns the number of rows.
    pub(super) fn set_aside(&self, from: WriteId, lost: &LostDirectory) -> Result<u64> {
        let _writer = self.manifest_lock.lock();
        let mut found = Vec::new();
        for (shard, known) in self.shards.read().iter() {
            let (gone, kept): (Segments, Segments) = known
                .segments
                .iter()
                .cloned()
                .partition(|segment| segment.write() >= from);
            let orphans = known.orphans.iter().filter(|orphan| orphan.write >= from);
            found.push((*shard, gone, kept, orphans.cloned().collect::<Vec<_>>()));
        }
        let mut changes = Vec::new();
        let mut rows = 0;
        for (shard, gone, kept, orphans) in found {
            lost.link_files(&self.directory, shard, &gone, &orphans)?;
            rows += gone.iter().map(|segment| segment.rows()).sum::<u64>();
            if !gone.is_empty() {
                changes.push((shard, kept));
            }
        }
        for_each_concurrently(&changes, |(shard, segments)| self.replace(*shard, segments))?;
        let mut orphans = Vec::new();
        for known in self.shards.write().values_mut() {
            let is_later = |orphan: &mut Orphan| orphan.write >= from;
            orphans.extend(known.orphans.extract_if(.., is_later));
        }
        self.delete_orphans(&orphans)?;
        Ok(rows)
    }

    /// Deletes all rows, now or when the last scan of them ends.
    pub(super) fn delete(&self) -> Result<()> {
        let _writer = self.manifest_lock.lock();
        let marked = self.directory.mark_dropped();
        let shards = std::mem::take(&mut *self.shards.write());
        let mut result = marked;
        for shard in shards.keys() {
            // The manifests are deleted even if the mark could not be made, for example because the
            // disk is full.
            let path = manifest::path(&self.directory.shard_path(*shard));
            result = result.and(durable::remove_file(self.directory.disk(), &path));
        }
        for segment in shards.values().flat_map(|shard| &shard.segments) {
            segment.mark_garbage();
        }
        result
    }

    /// Deletes files that have no acknowledged rows.
    fn delete_orphans(&self, orphans: &[Orphan]) -> Result<()> {
        let mut result = Ok(());
        for Orphan { path, .. } in orphans {
            tracing::info!(file = %path.display(), "deleting a segment that no manifest names");
            result = result.and(durable::remove_file(self.directory.disk(), path));
        }
        result
    }

    fn check_fault(&self, shard: u32, known: &Shard) -> Result<()> {
        match &known.fault {
            None => Ok(()),
            Some(Fault::Damaged(damage)) => Err(self.damage_error(shard, damage)),
            Some(Fault::RowMismatch(difference)) => {
                Err(Error::new(ErrorCode::DataLoss, difference.clone()))
            }
            Some(Fault::NoManifest) => Err(Error::unavailable(format!(
                "shard {shard} of table {}: {} is missing, and the gateway has not said yet whether the shard had rows; retry",
                self.directory.table(),
                self.directory.relative_path(shard, manifest::FILE),
            ))),
        }
    }

    fn damage_error(&self, shard: u32, damage: &str) -> Error {
        let table = self.directory.table();
        Error::new(
            ErrorCode::DataLoss,
            format!("shard {shard} of table {table} cannot be used: {damage}"),
        )
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
        let path = self.directory.shard_path(shard);
        let file = self.directory.relative_path(shard, manifest::FILE);
        let error = row_mismatch_error(
            &format!("shard {shard} of table {}", self.directory.table()),
            &file,
            manifest::path(&path).exists(),
            counted.expected,
            rows,
        );
        let mut shards = self.shards.write();
        let known = shards.entry(shard).or_default();
        if !matches!(known.fault, Some(Fault::RowMismatch(_))) {
            tracing::error!(%error, "acknowledged rows are missing: queries that need them fail");
            known.fault = Some(Fault::RowMismatch(error.message().to_owned()));
        }
        error
    }

    /// Replaces the segments of a shard, first on disk and then in memory.
    fn replace(&self, shard: u32, segments: &[Arc<Segment>]) -> Result<()> {
        let id = self.directory.table();
        let at = |error: Error| error.at(format!("shard {shard} of table {id}"));
        let directory = self.directory.shard_path(shard);
        let entries = segments.iter().map(|segment| segment.entry()).collect();
        let manifest = Manifest::new(id, shard, entries);
        // The names of the files are synced first. A manifest that survives a crash must not name a
        // file that does not survive it.
        let disk = self.directory.disk();
        let written = durable::sync_directory(disk, &directory)
            .and_then(|()| manifest.write(disk, &directory));
        match written {
            Ok(()) => self.install_segments(shard, segments),
            Err(_) if manifest.is_on_disk(&directory) => self.keep_old_and_new(shard, segments),
            Err(_) => {}
        }
        written.map_err(at)
    }

    /// Makes these the segments of the shard, after the manifest that names them is durable. The
    /// segments that they replace become garbage.
    fn install_segments(&self, shard: u32, segments: &[Arc<Segment>]) {
        segments.iter().for_each(|segment| segment.mark_named());
        let replaced = {
            let mut shards = self.shards.write();
            let known = shards.entry(shard).or_default();
            std::mem::replace(&mut known.segments, segments.to_vec())
        };
        let new_segments: BTreeSet<_> = segments.iter().map(Arc::as_ptr).collect();
        for segment in replaced {
            if !new_segments.contains(&Arc::as_ptr(&segment)) {
                segment.mark_garbage();
            }
        }
    }

    /// Keeps these segments and the former ones. The manifest on disk names these segments, but a
    /// crash may bring the old manifest back. So the segments of both manifests are kept. Then an
    /// abort finds the rows that were added, and rows that were removed stay known until they are
    /// gone for good.
    fn keep_old_and_new(&self, shard: u32, segments: &[Arc<Segment>]) {
        segments.iter().for_each(|segment| segment.mark_named());
        let mut shards = self.shards.write();
        let known = &mut shards.entry(shard).or_default().segments;
        for segment in segments {
            if !known.iter().any(|other| Arc::ptr_eq(other, segment)) {
                known.push(Arc::clone(segment));
            }
        }
        known.sort_by_key(|segment| segment.write());
    }
}

/// Returns the error for a shard that holds other rows than the catalog has counted.
pub(super) fn row_mismatch_error(
    what: &str,
    manifest: &str,
    has_manifest: bool,
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
    let state = if has_manifest {
        "is outdated, or belongs to another shard"
    } else {
        "is missing"
    };
    Error::new(
        ErrorCode::DataLoss,
        format!(
            "{what}: {rows_text}, because {manifest} {state}; restore the shard's files from a backup and restart the worker (docs/repair.md)"
        ),
    )
}

/// Runs `work`, which waits for the disk, on all items, a few at a time. Returns the first error.
fn for_each_concurrently<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let work_in_turn = &|items: &[T]| {
        let mut result = Ok(());
        for item in items {
            result = result.and(work(item));
        }
        result
    };
    let per_thread = items.len().div_ceil(MANIFESTS_AT_ONCE).max(1);
    let mut chunks = items.chunks(per_thread);
    let first = chunks.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let mut result = Ok(());
        let mut threads = Vec::new();
        for chunk in chunks {
            let thread = std::thread::Builder::new()
                .name("volary-manifest".to_owned())
                .spawn_scoped(scope, move || work_in_turn(chunk));
            match thread {
                Ok(thread) => threads.push(thread),
                // The system gives no more threads. So this thread does the work.
                Err(_) => result = result.and(work_in_turn(chunk)),
            }
        }
        result = result.and(work_in_turn(first));
        for thread in threads {
            let ended = thread.join();
            result = result.and(ended.unwrap_or_else(|_| {
                Err(Error::internal("a thread that replaced manifests panicked"))
            }));
        }
        result
    })
}
