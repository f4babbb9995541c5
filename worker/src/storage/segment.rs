//! Segments: immutable Parquet files.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::directory::TableDirectory;
use super::manifest::Entry;

/// One immutable Parquet file of a shard. The file exists as long as this does.
#[derive(Debug)]
pub struct Segment {
    file: SegmentFile,
    shard: u32,
    write: WriteId,
    rows: u64,
    bytes: u64,
    /// What is wrong with the file.
    damage: Option<String>,
}

/// A segment whose file is being written. Dropping it deletes the file.
#[derive(Debug)]
pub struct NewSegment {
    file: SegmentFile,
    shard: u32,
    write: WriteId,
}

/// A file that is deleted when it is dropped, unless a manifest names it.
#[derive(Debug)]
struct SegmentFile {
    directory: Arc<TableDirectory>,
    name: String,
    path: PathBuf,
    is_named: AtomicBool,
}

impl NewSegment {
    pub(super) fn create(
        directory: Arc<TableDirectory>,
        shard: u32,
        write: WriteId,
    ) -> Result<(Self, File)> {
        let name = format!("{}-{}.parquet", write.0, Uuid::now_v7().simple());
        let path = directory.create_shard(shard)?.join(&name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| Error::io(format!("cannot create {}", path.display()), source))?;
        let segment = Self {
            file: SegmentFile {
                directory,
                name,
                path,
                is_named: AtomicBool::new(false),
            },
            shard,
            write,
        };
        Ok((segment, file))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The segment, when its file is complete and has so many rows and bytes.
    pub fn complete(self, rows: u64, bytes: u64) -> Segment {
        Segment {
            file: self.file,
            shard: self.shard,
            write: self.write,
            rows,
            bytes,
            damage: None,
        }
    }
}

impl Segment {
    /// A segment that a manifest names.
    pub(super) fn open(directory: &Arc<TableDirectory>, shard: u32, entry: Entry) -> Self {
        let path = directory.shard_path(shard).join(&entry.file);
        let damage = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() == entry.bytes => None,
            Ok(metadata) => Some(format!(
                "has {} bytes instead of {}",
                metadata.len(),
                entry.bytes
            )),
            Err(error) => Some(format!("cannot be opened ({error})")),
        };
        let segment = Self {
            file: SegmentFile {
                directory: Arc::clone(directory),
                name: entry.file,
                path,
                is_named: AtomicBool::new(true),
            },
            shard,
            write: entry.write_id,
            rows: entry.rows,
            bytes: entry.bytes,
            damage,
        };
        if let Err(error) = segment.check() {
            tracing::error!(%error, "a segment is damaged: queries that need it will fail");
        }
        segment
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.file.directory.table()
    }

    /// The shard.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// The write that made it.
    pub fn write(&self) -> WriteId {
        self.write
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file; absolute.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The file, relative to the data directory.
    pub fn relative_path(&self) -> String {
        format!(
            "tables/{}/{}/{}",
            self.table().0,
            self.shard,
            self.file.name
        )
    }

    /// The file, as the object store of the local file system names it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the data directory has a name that object stores do not have.
    pub fn object_path(&self) -> Result<object_store::path::Path> {
        object_store::path::Path::from_absolute_path(&self.file.path).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!(
                    "{} is not a path of an object store; rename the data directory",
                    self.path().display()
                ),
                source,
            )
        })
    }

    /// # Errors
    /// `DATA_LOSS` if the file was missing or had another size when the worker started.
    pub(super) fn check(&self) -> Result<()> {
        self.damage.as_ref().map_or(Ok(()), |damage| {
            Err(Error::new(
                ErrorCode::DataLoss,
                format!(
                    "shard {} of table {}: segment {} {damage}; restore it from a backup and restart the worker",
                    self.shard,
                    self.table(),
                    self.relative_path()
                ),
            ))
        })
    }

    /// As the manifest has it.
    pub(super) fn entry(&self) -> Entry {
        Entry {
            file: self.file.name.clone(),
            write_id: self.write,
            rows: self.rows,
            bytes: self.bytes,
        }
    }

    /// Keeps the file: a manifest names it.
    pub(super) fn mark_named(&self) {
        self.file.is_named.store(true, Ordering::Release);
    }

    /// Lets the file be deleted when nobody uses it any more: no manifest names it.
    pub(super) fn mark_garbage(&self) {
        self.file.is_named.store(false, Ordering::Release);
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if *self.is_named.get_mut() {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(
                    path = %self.path.display(), %error,
                    "a file that is not needed any more cannot be deleted; it is tried again at the next start"
                );
            }
            _ => {}
        }
    }
}
