use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, Result};
use volary_node::disk::{Disk, SharedDisk};
use volary_node::{durable, private_files};

/// Name of the directory of all tables, in the data directory.
pub(super) const TABLES: &str = "tables";

/// Name of the file that marks a table as dropped. What is left of a dropped table is deleted when
/// a gateway says that the table was dropped.
pub(super) const DROPPED_FILE: &str = "dropped";

/// The directory of a table. The table's segments hold a reference to this value. So the directory
/// of a dropped table is deleted with the last segment.
#[derive(Debug)]
pub(super) struct TableDirectory {
    table: TableId,
    root: PathBuf,
    path: PathBuf,
    disk: SharedDisk,
    is_dropped: AtomicBool,
    /// The shards whose directories this process has made durable, whoever created them.
    synced: Mutex<BTreeSet<u32>>,
}

impl TableDirectory {
    pub(super) fn new(root: &Path, table: TableId, disk: SharedDisk) -> Self {
        Self {
            table,
            disk,
            root: root.to_owned(),
            path: root.join(table.0.to_string()),
            is_dropped: AtomicBool::new(false),
            synced: Mutex::default(),
        }
    }

    pub(super) fn table(&self) -> TableId {
        self.table
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    /// Returns the path of a file of a shard, relative to the data directory.
    pub(super) fn relative_path(&self, shard: u32, file: &str) -> String {
        format!("{TABLES}/{}/{shard}/{file}", self.table.0)
    }

    pub(super) fn shard_path(&self, shard: u32) -> PathBuf {
        self.path.join(shard.to_string())
    }

    /// Creates the directory of a shard, and returns its path. The directory is
    /// [made durable](Self::sync_shards) before anything relies on it.
    pub(super) fn create_shard(&self, shard: u32) -> Result<PathBuf> {
        let path = self.shard_path(shard);
        for directory in [&self.path, &path] {
            match private_files::create_directory(directory) {
                Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                    let what = format!("cannot create directory {}", directory.display());
                    return Err(Error::io(what, source));
                }
                _ => {}
            }
        }
        Ok(path)
    }

    /// Makes the directories of shards durable, once per process. A directory that exists may not
    /// be durable: the process that created it may have been killed before it synced the
    /// directory's name.
    pub(super) fn sync_shards(&self, shards: impl Iterator<Item = u32>) -> Result<()> {
        let mut synced = self.synced.lock();
        let new: Vec<_> = shards.filter(|shard| !synced.contains(shard)).collect();
        if new.is_empty() {
            return Ok(());
        }
        durable::sync_directory(self.disk(), &self.root)?;
        durable::sync_directory(self.disk(), &self.path)?;
        synced.extend(new);
        Ok(())
    }

    /// Marks the directory as garbage, durably. The directory is deleted when nobody holds this
    /// value any more.
    pub(super) fn mark_dropped(&self) -> Result<()> {
        self.is_dropped.store(true, Ordering::Release);
        if !self.path.exists() {
            return Ok(());
        }
        durable::replace_file(self.disk(), &self.path.join(DROPPED_FILE), b"")
    }
}

impl Drop for TableDirectory {
    fn drop(&mut self) {
        if !*self.is_dropped.get_mut() {
            return;
        }
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(
                    path = %self.path.display(), %error,
                    "the directory of a dropped table cannot be deleted; the worker tries again after its next start"
                );
            }
            _ => {}
        }
    }
}
