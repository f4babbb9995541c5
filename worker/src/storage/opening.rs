use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use volary_flight_proto::{Error, Result};
use volary_node::disk::SharedDisk;
use volary_node::{DataDir, durable};

use super::changed_shards::ChangedShards;
use super::directory::{TABLES, TableDirectory};
use super::layouts::Layouts;
use super::reclaimer::Reclaimer;
use super::store::{Store, damage_error};
use super::table::{Shared, Table};
use super::{Shards, Storage, manifests, startup};
use crate::log::{Log, LogSize};

/// Size of the log if the settings do not say it, in bytes.
const DEFAULT_LOG_BYTES: u64 = 256 << 20;

/// Size of a file of the log, in bytes. Frames of the largest groups fit into it.
const LOG_FILE_BYTES: u64 = 8 << 20;

impl Storage {
    /// Opens the shards of a worker's data directory on this disk. The log has about this size, in
    /// bytes. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the store is missing or belongs to another directory, and the errors
    /// of [`Self::open`].
    pub fn of_worker(data_dir: &DataDir, disk: SharedDisk, log_bytes: u64) -> Result<Self> {
        let path = Store::path_in(data_dir.path());
        let known_id = data_dir.identity().store_id;
        if known_id.is_some() && !path.exists() {
            return Err(damage_error(&path, "is missing"));
        }
        let storage = Self::open_with_log(data_dir.path(), disk, log_bytes)?;
        let id = storage.0.store.id();
        match known_id {
            Some(known) if known == id => {}
            Some(_) => return Err(damage_error(&path, "belongs to another data directory")),
            None => data_dir.record_store(id)?,
        }
        Ok(storage)
    }

    /// Opens the shards of a data directory on this disk. If it has no store, one is made from the
    /// manifests of an earlier release, which are deleted then. A segment that is missing or
    /// damaged is logged. Queries that need it fail, and other queries do not. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the store or a manifest is damaged, `INVALID_ARGUMENT` if a newer
    /// release wrote it, and the errors of the file system. Each error names the file.
    pub fn open(data_dir: &Path, disk: SharedDisk) -> Result<Self> {
        Self::open_with_log(data_dir, disk, DEFAULT_LOG_BYTES)
    }

    fn open_with_log(data_dir: &Path, disk: SharedDisk, log_bytes: u64) -> Result<Self> {
        let data_dir = data_dir
            .canonicalize()
            .map_err(|source| Error::io(format!("cannot open {}", data_dir.display()), source))?;
        let root = data_dir.join(TABLES);
        durable::create_directory(disk.as_ref(), &root)?;
        let store = Store::open(&data_dir, Arc::clone(&disk), || {
            manifests::read_all(&data_dir)
        })?;
        let layouts = Layouts::of_stored(store.load_descriptions()?);
        let horizon = store.horizon();
        let reclaimer = Reclaimer::new(Arc::clone(&disk));
        let shared = Shared::new(store.log_floor());
        let (log, frames) = Log::open(
            &data_dir,
            Arc::clone(&disk),
            store.id(),
            log_size(log_bytes),
            store.log_floor().load(Ordering::Acquire),
        )?;
        let mut tables = BTreeMap::new();
        let mut expired = store.load_expired()?;
        let mut records = store.load()?;
        for table in expired.keys() {
            records.entry(*table).or_default();
        }
        for (id, records) in startup::with_all_directories(&root, records)? {
            let directory = TableDirectory::new(&root, id, Arc::clone(&disk), reclaimer.clone());
            let directory = Arc::new(directory);
            let expired = expired.remove(&id).unwrap_or_default();
            let shards = startup::read_shards(&directory, records, expired)?;
            let table = Table::new(directory, shards, &shared);
            tables.insert(id, Arc::new(table));
        }
        let storage = Self(Arc::new(Shards {
            data_dir,
            disk,
            reclaimer,
            store,
            tables: Arc::new(RwLock::new(tables)),
            shared,
            log,
            log_bytes,
            layouts,
            committed: Mutex::default(),
            horizon: Mutex::new(horizon),
            expiries: Mutex::default(),
            expiries_noted: Notify::default(),
            filled: Arc::default(),
            is_log_full: AtomicBool::default(),
            arrangement: RwLock::default(),
            flush_turn: tokio::sync::Mutex::default(),
            changed_shards: ChangedShards::default(),
        }));
        storage.replay(frames)?;
        for table in storage.tables() {
            storage.0.changed_shards.note(table.id(), table.shards());
        }
        Ok(storage)
    }

    /// Opens a data directory with a log of this size, in bytes.
    #[cfg(test)]
    pub(crate) fn with_log(data_dir: &Path, log_bytes: u64) -> Self {
        let disk = Arc::new(volary_node::disk::LocalDisk);
        Self::open_with_log(data_dir, disk, log_bytes).unwrap()
    }
}

/// Returns the size of a log whose files have about this size together, in bytes.
fn log_size(bytes: u64) -> LogSize {
    LogSize {
        file_bytes: LOG_FILE_BYTES,
        bytes: bytes.max(2 * LOG_FILE_BYTES),
    }
}
