use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, Result};
use volary_node::disk::{Disk, SharedDisk};
use volary_node::{durable, private_files};

use super::reclaimer::Reclaimer;

/// Name of the directory of all tables, in the data directory.
pub(super) const TABLES: &str = "tables";

/// The directory of a table. The table's segments hold a reference to this value. So the directory
/// of a dropped table is deleted after the last segment.
#[derive(Debug)]
pub(super) struct TableDirectory {
    table: TableId,
    root: PathBuf,
    path: PathBuf,
    disk: SharedDisk,
    reclaimer: Reclaimer,
    is_dropped: AtomicBool,
    /// Says whether this process has made the directory's name durable.
    has_durable_name: AtomicBool,
}

impl TableDirectory {
    /// Describes the directory of a table. `root` is the directory of all tables.
    pub(super) fn new(root: &Path, table: TableId, disk: SharedDisk, reclaimer: Reclaimer) -> Self {
        Self {
            table,
            path: root.join(table.0.to_string()),
            root: root.to_owned(),
            disk,
            reclaimer,
            is_dropped: AtomicBool::new(false),
            has_durable_name: AtomicBool::new(false),
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

    pub(super) fn reclaimer(&self) -> &Reclaimer {
        &self.reclaimer
    }

    /// Returns the path of a file of the table, relative to the data directory.
    pub(super) fn relative_path(&self, file: &str) -> String {
        format!("{TABLES}/{}/{file}", self.table.0)
    }

    /// Creates the directory if it does not exist. It is [made durable](Self::sync) before anything
    /// relies on it.
    pub(super) fn create(&self) -> Result<()> {
        match private_files::create_directory(&self.path) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                let what = format!("cannot create directory {}", self.path.display());
                Err(Error::io(what, source))
            }
            _ => Ok(()),
        }
    }

    /// Makes the names of the files in the directory durable, and the directory's own name once per
    /// process. A directory that exists may not be durable: the process that created it may have
    /// been killed before it synced the directory's name.
    pub(super) fn sync(&self) -> Result<()> {
        durable::sync_directory(self.disk(), &self.path)?;
        if !self.has_durable_name.load(Ordering::Acquire) {
            durable::sync_directory(self.disk(), &self.root)?;
            self.has_durable_name.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Marks the directory as garbage. It is deleted when nobody holds this value any more.
    pub(super) fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }
}

impl Drop for TableDirectory {
    fn drop(&mut self) {
        if *self.is_dropped.get_mut() {
            self.reclaimer.delete_directory(&self.path);
        }
    }
}
