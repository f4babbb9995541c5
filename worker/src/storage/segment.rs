use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::error::DataFusionError;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use uuid::Uuid;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::{durable, private_files};

use super::checksums::SegmentChecksums;
use super::directory::TableDirectory;
use super::record::{SegmentRecord, SettledRows};
use super::segment_rows::SegmentRows;
use crate::expiry::TimeRange;

/// One immutable Parquet file of a shard. The file exists as long as this value lives.
#[derive(Debug)]
pub struct Segment {
    file: Arc<SegmentFile>,
    shard: u32,
    rows: SegmentRows,
    bytes: u64,
    /// Checksums of the file; `None` if the release that wrote it took none.
    checksums: Option<SegmentChecksums>,
    /// What is wrong with the file, once that is known.
    damage: OnceLock<String>,
    /// Says whether the file was written, or compared with its checksum, since the worker started.
    is_checked: AtomicBool,
    /// The times of the rows, once they are known, and the column that has them.
    times: OnceLock<(usize, TimeRange)>,
}

/// A segment whose file is being written. Dropping it deletes the file.
#[derive(Debug)]
pub struct NewSegment {
    file: SegmentFile,
    shard: u32,
    write: WriteId,
}

/// The number that the next file gets.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

/// A file that is deleted after this value is dropped, unless the store names the file.
#[derive(Debug)]
struct SegmentFile {
    /// A number that no other file has while the process runs.
    number: u64,
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
        let name = file_name(shard, write);
        directory.create()?;
        let path = directory.path().join(&name);
        let file = private_files::file_options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| Error::io(format!("cannot create {}", path.display()), source))?;
        let segment = Self {
            file: SegmentFile {
                number: NEXT_FILE.fetch_add(1, Ordering::Relaxed),
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
            file: Arc::new(self.file),
            shard: self.shard,
            rows: SegmentRows::of_write(self.write, rows),
            bytes: metadata.len(),
            checksums: Some(checksums),
            damage: OnceLock::new(),
            is_checked: AtomicBool::new(true),
            times: OnceLock::new(),
        })
    }
}

/// Returns a name for the file of a segment of this shard and write.
fn file_name(shard: u32, write: WriteId) -> String {
    format!("{shard}-{}-{}.parquet", write.0, Uuid::now_v7().simple())
}

/// Returns the shard and the write of a segment's file, by the path of the file in the directory of
/// its table. Returns `None` if the file is not a segment's. Earlier releases had a directory for
/// each shard.
pub(super) fn parse_file(file: &str) -> Option<(u32, WriteId)> {
    let (shard, rest) = file.split_once(['-', '/'])?;
    let (write, id) = rest.strip_suffix(".parquet")?.split_once('-')?;
    Uuid::try_parse(id).ok()?;
    Some((shard.parse().ok()?, WriteId(write.parse().ok()?)))
}

impl Segment {
    /// Builds a segment that the store names.
    pub(super) fn open(directory: &Arc<TableDirectory>, record: SegmentRecord) -> Self {
        let path = directory.path().join(&record.file);
        let damage = OnceLock::new();
        let found = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() == record.bytes => Ok(()),
            Ok(metadata) => damage.set(format!(
                "it has {} bytes instead of {}",
                metadata.len(),
                record.bytes
            )),
            Err(error) => damage.set(format!("it cannot be opened: {error}")),
        };
        debug_assert!(found.is_ok(), "nothing was set before");
        let segment = Self {
            file: Arc::new(SegmentFile {
                number: NEXT_FILE.fetch_add(1, Ordering::Relaxed),
                directory: Arc::clone(directory),
                name: record.file,
                path,
                is_named: AtomicBool::new(true),
            }),
            shard: record.shard,
            bytes: record.bytes,
            checksums: record.checksums,
            rows: if record.writes.is_empty() && record.settled.is_none() {
                SegmentRows::of_write(record.write, record.rows)
            } else {
                let SegmentRecord {
                    write,
                    writes,
                    settled,
                    hidden,
                    ..
                } = record;
                SegmentRows::of_several(write, writes, settled, hidden)
            },
            damage,
            is_checked: AtomicBool::new(false),
            times: OnceLock::new(),
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

    /// Returns the number of the file. No other file has it while the process runs, so it names
    /// what is cached of the file.
    pub(crate) fn file_number(&self) -> u64 {
        self.file.number
    }

    /// Returns the write that made the segment. If it has rows of several writes, the last of them.
    pub fn write(&self) -> WriteId {
        self.rows.write()
    }

    /// Returns the writes that have rows in the segment, with the number of their rows, except
    /// those of settled rows.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (WriteId, u64)> {
        self.rows.writes()
    }

    /// Returns the number of writes that have rows in the file. It is too large if some of them are
    /// not listed any more, because then it is not known.
    pub(crate) fn write_count(&self) -> usize {
        let settled = self.rows.settled();
        let settled = settled.map_or(0, |settled| {
            usize::try_from(settled.rows).unwrap_or(usize::MAX)
        });
        settled.saturating_add(self.rows.writes().count())
    }

    /// Returns the tally of the rows that count.
    pub(crate) fn tally(&self) -> Tally {
        self.rows.tally()
    }

    /// Returns the sum of all rows that count. Returns `None` if there are none.
    pub(crate) fn sum(&self) -> Option<SettledRows> {
        self.rows.sum()
    }

    /// Returns the rows by the writes that added them.
    pub(super) fn by_write(&self) -> &SegmentRows {
        &self.rows
    }

    /// Returns whether the segment was made of rows in the log, and has the rows of this write.
    pub(super) fn has_flushed(&self, write: WriteId) -> bool {
        let listed = self.rows.listed();
        listed
            .binary_search_by_key(&write, |(write, _)| *write)
            .is_ok()
    }

    /// Returns a segment of the same file, which says something else about its rows.
    pub(super) fn with_rows(&self, rows: SegmentRows) -> Self {
        let damage = OnceLock::new();
        if let Some(known) = self.damage() {
            // Nothing was set before.
            let _ = damage.set(known.to_owned());
        }
        Self {
            file: Arc::clone(&self.file),
            shard: self.shard,
            rows,
            bytes: self.bytes,
            checksums: self.checksums.clone(),
            damage,
            is_checked: AtomicBool::new(self.is_checked.load(Ordering::Acquire)),
            times: self.times.clone(),
        }
    }

    /// Returns the writes whose rows are in the file, but do not count any more.
    pub(crate) fn hidden(&self) -> &WriteSet {
        self.rows.hidden()
    }

    /// Returns whether the rows are of several writes. Then the file has a
    /// [`WRITE_COLUMN`](super::WRITE_COLUMN).
    pub(crate) fn has_several_writes(&self) -> bool {
        self.rows.are_of_several()
    }

    /// Returns the number of rows that count.
    pub fn rows(&self) -> u64 {
        self.rows.rows()
    }

    /// Returns the size of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the times of the rows. `column` is the position of the column with the times, and
    /// `name` its name. May block.
    ///
    /// # Errors
    /// Returns the errors of reading the metadata of the file.
    pub(crate) fn times(&self, column: usize, name: &str) -> Result<TimeRange> {
        if let Some((known, times)) = self.times.get()
            && *known == column
        {
            return Ok(*times);
        }
        let failed = |error: DataFusionError| {
            let what = format!(
                "cannot read the metadata of segment {}",
                self.relative_path()
            );
            Error::io_within(what, error)
        };
        let options = ArrowReaderOptions::new();
        let metadata = File::open(self.path())
            .map_err(ParquetError::from)
            .and_then(|file| ArrowReaderMetadata::load(&file, options))
            .map_err(|error| failed(error.into()))?;
        let times = TimeRange::of_file(&metadata, name).map_err(failed)?;
        // If the table has another time column now, its times are read each time.
        let _ = self.times.set((column, times));
        Ok(times)
    }

    /// Returns the absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns the path of the file, relative to the data directory.
    pub(crate) fn relative_path(&self) -> String {
        self.file.directory.relative_path(&self.file.name)
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

    /// Returns the record of the segment for the store.
    pub(super) fn record(&self) -> SegmentRecord {
        SegmentRecord {
            file: self.file.name.clone(),
            shard: self.shard,
            write: self.rows.write(),
            rows: self.rows.rows(),
            bytes: self.bytes,
            checksums: self.checksums.clone(),
            writes: self.rows.listed().to_vec(),
            hidden: self.rows.hidden().clone(),
            settled: self.rows.settled(),
        }
    }

    /// Says that the rows are of several writes. Each row has a
    /// [`WRITE_COLUMN`](super::WRITE_COLUMN) then. The writes
    /// are ascending, with the number of their rows.
    pub(crate) fn with_writes(self, writes: Vec<(WriteId, u64)>) -> Self {
        let rows = SegmentRows::of_several(self.write(), writes, None, WriteSet::default());
        self.with_rows(rows)
    }

    /// Returns the path of the file in the directory of its table.
    pub(super) fn name(&self) -> &str {
        &self.file.name
    }

    /// Deletes the file of an aborted write while the store still names it. On a full disk, the
    /// store may need the space to forget the file. Until then, it names a missing file. That does
    /// no harm, because no query reads rows of the write.
    pub(super) fn delete_early(&self) {
        self.mark_garbage();
        let deleted = durable::remove_file(self.file.directory.disk(), &self.file.path);
        if let Err(error) = deleted {
            tracing::debug!(%error, "the file of an aborted write cannot be deleted yet");
        }
    }

    /// Keeps the file, because the store names it.
    pub(super) fn mark_named(&self) {
        self.file.is_named.store(true, Ordering::Release);
    }

    /// Lets the file be deleted when nobody uses it any more, because the store does not name it.
    pub(super) fn mark_garbage(&self) {
        self.file.is_named.store(false, Ordering::Release);
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if !*self.is_named.get_mut() {
            self.directory.reclaimer().delete_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_says_its_shard_and_its_write() {
        let name = file_name(3, WriteId(7));
        assert_eq!(parse_file(&name), Some((3, WriteId(7))));
        let earlier = name.replacen('-', "/", 1);
        assert_eq!(parse_file(&earlier), Some((3, WriteId(7))));
        for other in [
            "",
            "notes.txt",
            "3/manifest.json",
            "3-7-x.parquet",
            "x-7.parquet",
        ] {
            assert_eq!(parse_file(other), None, "{other}");
        }
    }
}
