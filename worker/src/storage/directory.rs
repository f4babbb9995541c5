//! The directory of a table.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use volary_flight_proto::Result;
use volary_flight_proto::ids::TableId;
use volary_node::durable;

/// The file that says that a table is dropped.
pub(super) const DROPPED_FILE: &str = "dropped";

/// The directory of a table. Its segments hold it, so that the directory of a dropped table goes with the last of them.
#[derive(Debug)]
pub(super) struct TableDirectory {
    table: TableId,
    path: PathBuf,
    dropped: AtomicBool,
}

impl TableDirectory {
    pub(super) fn new(root: &Path, table: TableId) -> Self {
        Self {
            table,
            path: root.join(table.0.to_string()),
            dropped: AtomicBool::new(false),
        }
    }

    pub(super) fn table(&self) -> TableId {
        self.table
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn shard_path(&self, shard: u32) -> PathBuf {
        self.path.join(shard.to_string())
    }

    /// Creates the directory of a shard, and returns it.
    pub(super) fn create_shard(&self, shard: u32) -> Result<PathBuf> {
        let path = self.shard_path(shard);
        // One level after the other, because only the last one's name is made durable.
        durable::create_directory(&self.path)?;
        durable::create_directory(&path)?;
        Ok(path)
    }

    /// Marks it as garbage, durably. It is deleted when the last one who holds this lets go.
    pub(super) fn mark_dropped(&self) -> Result<()> {
        self.dropped.store(true, Ordering::Release);
        if !self.path.exists() {
            return Ok(());
        }
        durable::replace_file(&self.path.join(DROPPED_FILE), b"")
    }
}

impl Drop for TableDirectory {
    fn drop(&mut self) {
        if !*self.dropped.get_mut() {
            return;
        }
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(
                    path = %self.path.display(), %error,
                    "the directory of a dropped table cannot be deleted; it is tried again at the next start"
                );
            }
            _ => {}
        }
    }
}
