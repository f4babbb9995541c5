use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use uuid::Uuid;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::{durable, private_files};

use super::checksums::SegmentChecksums;
use super::directory::TableDirectory;
use super::manifest::Entry;

/// One immutable Parquet file of a shard. The file exists as long as this value lives.
#[derive(Debug)]
pub struct Segment {
    file: SegmentFile,
    shard: u32,
    write: WriteId,
    rows: u64,
    bytes: u64,
    /// Checksums of the file; `None` if the release that wrote it took none.
    checksums: Option<SegmentChecksums>,
    /// What is wrong with the file, once that is known.
    damage: OnceLock<String>,
    /// Says whether the file was written, or compared with its checksum, since the worker started.
    is_checked: AtomicBool,
}

/// A segment whose file is being written. Dropping it deletes the file.
#[derive(Debug)]
pub struct NewSegment {
    file: SegmentFile,
    shard: u32,
    write: WriteId,
}

/// A file that is deleted when this value is dropped, unless a manifest names the file.
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
        let name = file_name(write);
        let path = directory.create_shard(shard)?.join(&name);
        let file = private_files::file_options()
            .read(true)
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

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Makes a segment of the file, once the file is complete. `rows` and `checksums` describe the
    /// file. Makes the file durable. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub fn complete(self, file: &File, rows: u64, checksums: SegmentChecksums) -> Result<Segment> {
        let disk = self.file.directory.disk();
        let synced = disk.sync_file(file, &self.file.path);
        let metadata = synced.and_then(|()| file.metadata()).map_err(|source| {
            let what = format!("cannot write segment {}", self.file.path.display());
            Error::io(what, source)
        })?;
        Ok(Segment {
            file: self.file,
            shard: self.shard,
            write: self.write,
            rows,
            bytes: metadata.len(),
            checksums: Some(checksums),
            damage: OnceLock::new(),
            is_checked: AtomicBool::new(true),
        })
    }
}

/// Returns a name for the file of a segment of this write.
fn file_name(write: WriteId) -> String {
    format!("{}-{}.parquet", write.0, Uuid::now_v7().simple())
}

/// Returns the write of a segment's file, by the name of the file. Returns `None` if the file is
/// not a segment's.
pub(super) fn parse_write_id(file_name: &str) -> Option<WriteId> {
    let (write, id) = file_name.strip_suffix(".parquet")?.split_once('-')?;
    Uuid::try_parse(id).ok()?;
    write.parse().ok().map(WriteId)
}

impl Segment {
    /// Builds a segment that a manifest names.
    pub(super) fn open(directory: &Arc<TableDirectory>, shard: u32, entry: Entry) -> Self {
        let path = directory.shard_path(shard).join(&entry.file);
        let damage = OnceLock::new();
        let found = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() == entry.bytes => Ok(()),
            Ok(metadata) => damage.set(format!(
                "it has {} bytes instead of {}",
                metadata.len(),
                entry.bytes
            )),
            Err(error) => damage.set(format!("it cannot be opened: {error}")),
        };
        debug_assert!(found.is_ok(), "nothing was set before");
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
            checksums: entry.checksums,
            damage,
            is_checked: AtomicBool::new(false),
        };
        if let Err(error) = segment.check() {
            tracing::error!(%error, "a segment is damaged: queries that need it will fail");
        }
        segment
    }

    /// Returns the table of the segment.
    pub fn table(&self) -> TableId {
        self.file.directory.table()
    }

    /// Returns the shard of the segment.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Returns the write that made the segment.
    pub fn write(&self) -> WriteId {
        self.write
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the size of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns the path of the file, relative to the data directory.
    pub(crate) fn relative_path(&self) -> String {
        self.file
            .directory
            .relative_path(self.shard, &self.file.name)
    }

    /// Returns the checksums of the file, or `None` if the release that wrote it took none.
    pub fn checksums(&self) -> Option<&SegmentChecksums> {
        self.checksums.as_ref()
    }

    /// Returns what is known to be wrong with the file.
    pub fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Compares the file with its checksum, if it has at most `most_bytes` bytes and was not
    /// compared since the worker started. May block.
    ///
    /// # Errors
    /// Returns `DATA_LOSS`, with the file, if the file is missing, or has another content than when
    /// it was written. Returns the errors of the file system if the file cannot be read for another
    /// reason.
    pub(crate) fn check_once(&self, most_bytes: u64) -> Result<()> {
        if self.bytes > most_bytes || self.is_checked.load(Ordering::Acquire) {
            return self.check();
        }
        self.check_content(|_| ())
    }

    /// Compares the file with its checksum. `pace` is called with the number of bytes of each step,
    /// and may wait. May block.
    ///
    /// # Errors
    /// Returns the same errors as `Self::check_once`.
    pub(crate) fn check_content(&self, pace: impl FnMut(usize)) -> Result<()> {
        self.check()?;
        let Some(checksums) = &self.checksums else {
            return Ok(());
        };
        let damage = match checksums.matches_file(&self.file.path, pace) {
            Ok(true) => {
                self.is_checked.store(true, Ordering::Release);
                return Ok(());
            }
            Ok(false) => "its BLAKE3 hash does not match".to_owned(),
            // The segment became garbage while it was read, for example because its table was
            // dropped.
            Err(_) if !self.file.is_named.load(Ordering::Acquire) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("it cannot be opened: {error}")
            }
            // Another error, for example too many open files, says nothing about this file.
            Err(error) => {
                let what = format!("cannot read segment {}", self.relative_path());
                return Err(Error::io(what, error));
            }
        };
        Err(self.note_damage(damage))
    }

    /// Notes that the file is not as it was written. Returns the error that all queries of the
    /// segment get from now on.
    pub(crate) fn note_damage(&self, damage: String) -> Error {
        let is_news = self.damage.set(damage).is_ok();
        let error = self.check().err();
        let error = error.unwrap_or_else(|| {
            Error::internal("the damage of a segment was noted and is not there")
        });
        if is_news {
            tracing::error!(%error, "a segment is damaged: queries that need it fail");
        }
        error
    }

    /// Returns the path of the file in the form that the object store of the local file system
    /// uses.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the data directory has a name that object stores do not allow.
    pub(crate) fn object_path(&self) -> Result<object_store::path::Path> {
        object_store::path::Path::from_absolute_path(&self.file.path).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!(
                    "{} contains unsupported characters; rename the data directory",
                    self.path().display()
                ),
                source,
            )
        })
    }

    /// Refuses a segment with known damage.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the file is known to be missing or damaged.
    pub(super) fn check(&self) -> Result<()> {
        self.damage.get().map_or(Ok(()), |damage| {
            Err(Error::new(
                ErrorCode::DataLoss,
                format!(
                    "shard {} of table {}: segment {} is damaged or missing ({damage}); restore the file from a backup and restart the worker",
                    self.shard,
                    self.table(),
                    self.relative_path()
                ),
            ))
        })
    }

    /// Returns whether it is known that the file is not as it was written.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// Returns the entry of the segment in a manifest.
    pub(super) fn entry(&self) -> Entry {
        Entry {
            file: self.file.name.clone(),
            write_id: self.write,
            rows: self.rows,
            bytes: self.bytes,
            checksums: self.checksums.clone(),
        }
    }

    /// Deletes the file of an aborted write before the manifest is replaced. On a full disk, the
    /// new manifest may need the space. Until then, the old manifest names a missing file. That
    /// does no harm, because no query reads rows of the write.
    pub(super) fn delete_early(&self) {
        self.mark_garbage();
        if let Err(error) = self.file.remove() {
            tracing::debug!(%error, "the file of an aborted write cannot be deleted yet");
        }
    }

    /// Keeps the file, because a manifest names it.
    pub(super) fn mark_named(&self) {
        self.file.is_named.store(true, Ordering::Release);
    }

    /// Lets the file be deleted when nobody uses it any more, because no manifest names it.
    pub(super) fn mark_garbage(&self) {
        self.file.is_named.store(false, Ordering::Release);
    }
}

impl SegmentFile {
    fn remove(&self) -> Result<()> {
        durable::remove_file(self.directory.disk(), &self.path)
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if *self.is_named.get_mut() {
            return;
        }
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "a segment that is no longer needed cannot be deleted; the worker tries again after its next start");
        }
    }
}
