//! The shards of one table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, Result};
use volary_node::durable;

use super::departed::Departed;
use super::directory::TableDirectory;
use super::manifest::{self, Manifest};
use super::segment::Segment;

/// Manifests that are replaced at the same time: each waits for the disk, which makes several durable at once.
const MANIFESTS_AT_ONCE: usize = 8;

pub(super) type Segments = Vec<Arc<Segment>>;

#[derive(Debug)]
pub(super) struct Table {
    directory: Arc<TableDirectory>,
    departed: Arc<Departed>,
    /// Held by who replaces manifests.
    writer: Mutex<()>,
    /// What the manifests name, by write. Held for moments only.
    shards: RwLock<BTreeMap<u32, Segments>>,
}

impl Table {
    pub(super) fn new(
        root: &Path,
        id: TableId,
        shards: BTreeMap<u32, Segments>,
        departed: Arc<Departed>,
    ) -> Self {
        let directory = Arc::new(TableDirectory::new(root, id));
        Self::with_directory(directory, shards, departed)
    }

    pub(super) fn with_directory(
        directory: Arc<TableDirectory>,
        shards: BTreeMap<u32, Segments>,
        departed: Arc<Departed>,
    ) -> Self {
        Self {
            directory,
            departed,
            writer: Mutex::new(()),
            shards: RwLock::new(shards),
        }
    }

    pub(super) fn directory(&self) -> &Arc<TableDirectory> {
        &self.directory
    }

    pub(super) fn segments(&self, shard: u32, snapshot: &Snapshot) -> Result<Segments> {
        let shards = self.shards.read();
        let seen = shards
            .get(&shard)
            .into_iter()
            .flatten()
            .filter(|segment| snapshot.sees(segment.write()));
        seen.map(|segment| segment.check().map(|()| Arc::clone(segment)))
            .collect()
    }

    pub(super) fn for_each(&self, visit: &mut impl FnMut(&Segment)) {
        for segment in self.shards.read().values().flatten() {
            visit(segment);
        }
    }

    pub(super) fn add(&self, segments: Vec<Segment>) -> Result<()> {
        let mut added: BTreeMap<u32, Segments> = BTreeMap::new();
        for segment in segments {
            added
                .entry(segment.shard())
                .or_default()
                .push(Arc::new(segment));
        }
        let _writer = self.writer.lock();
        self.departed.check_table(self.directory.table())?;
        for segment in added.values().flatten() {
            self.departed.check_write(segment.write())?;
        }
        let changes: Vec<(u32, Segments)> = {
            let shards = self.shards.read();
            let with_old = |(shard, mut new): (u32, Segments)| {
                new.extend(shards.get(&shard).into_iter().flatten().cloned());
                // Stable: the segments of a write keep their order.
                new.sort_by_key(|segment| segment.write());
                (shard, new)
            };
            added.into_iter().map(with_old).collect()
        };
        self.directory
            .sync_shards(changes.iter().map(|(shard, _)| *shard))?;
        for_each_at_once(&changes, |(shard, segments)| self.replace(*shard, segments))
    }

    pub(super) fn remove_writes(&self, writes: &BTreeSet<WriteId>) -> Result<()> {
        let is_removed = |segment: &Arc<Segment>| writes.contains(&segment.write());
        let _writer = self.writer.lock();
        let mut changes = Vec::new();
        for (shard, segments) in self.shards.read().iter() {
            if segments.iter().any(is_removed) {
                let kept = segments.iter().filter(|segment| !is_removed(segment));
                changes.push((*shard, kept.cloned().collect::<Segments>()));
            }
        }
        for_each_at_once(&changes, |(shard, segments)| self.replace(*shard, segments))
    }

    /// Deletes all, now or when the last scan of it ends.
    pub(super) fn delete(&self) -> Result<()> {
        let _writer = self.writer.lock();
        let marked = self.directory.mark_dropped();
        let shards = std::mem::take(&mut *self.shards.write());
        let mut result = marked;
        for shard in shards.keys() {
            // Also where the mark could not be made, because the disk is full for example.
            let path = manifest::path(&self.directory.shard_path(*shard));
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    let error = Error::io(format!("cannot delete {}", path.display()), source);
                    result = result.and(Err(error));
                }
                _ => {}
            }
        }
        for segment in shards.values().flatten() {
            segment.mark_garbage();
        }
        result
    }

    /// Makes these the segments of a shard, on disk and then here.
    fn replace(&self, shard: u32, segments: &[Arc<Segment>]) -> Result<()> {
        let id = self.directory.table();
        let at = |error: Error| error.at(format!("shard {shard} of table {id}"));
        let directory = self.directory.shard_path(shard);
        let entries = segments.iter().map(|segment| segment.entry()).collect();
        let manifest = Manifest::new(id, shard, entries);
        // The files' names first: a manifest that survives a crash must not name what does not.
        let written = durable::sync_directory(&directory).and_then(|()| manifest.write(&directory));
        match written {
            Ok(()) => self.settle(shard, segments),
            Err(_) if manifest.is_on_disk(&directory) => self.keep_both(shard, segments),
            Err(_) => {}
        }
        written.map_err(at)
    }

    /// The manifest names these, for sure: others are garbage.
    fn settle(&self, shard: u32, segments: &[Arc<Segment>]) {
        segments.iter().for_each(|segment| segment.mark_named());
        let replaced = self.shards.write().insert(shard, segments.to_vec());
        let kept: BTreeSet<_> = segments.iter().map(Arc::as_ptr).collect();
        for segment in replaced.into_iter().flatten() {
            if !kept.contains(&Arc::as_ptr(&segment)) {
                segment.mark_garbage();
            }
        }
    }

    /// The manifest names these now, but a crash may bring the old one back: what either names is kept. So a write of which rows
    /// were added is found when it is aborted, and one of which rows were removed is not forgotten before they are gone for good.
    fn keep_both(&self, shard: u32, segments: &[Arc<Segment>]) {
        segments.iter().for_each(|segment| segment.mark_named());
        let mut shards = self.shards.write();
        let known = shards.entry(shard).or_default();
        for segment in segments {
            if !known.iter().any(|other| Arc::ptr_eq(other, segment)) {
                known.push(Arc::clone(segment));
            }
        }
        known.sort_by_key(|segment| segment.write());
    }
}

/// Does something that waits for the disk with all items, a few at a time, and returns the first error.
fn for_each_at_once<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let in_turn = &|items: &[T]| {
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
                .spawn_scoped(scope, move || in_turn(chunk));
            match thread {
                Ok(thread) => threads.push(thread),
                // The system gives no more threads: then this one does it.
                Err(_) => result = result.and(in_turn(chunk)),
            }
        }
        result = result.and(in_turn(first));
        for thread in threads {
            let ended = thread.join();
            result = result.and(ended.unwrap_or_else(|_| {
                Err(Error::internal("a thread that replaced manifests panicked"))
            }));
        }
        result
    })
}
