//! The paths of lost rows are relative to the data directory:
//!
//! ```text
//! lost/<incarnation>/tables/<table id>/<shard>-<write id>-<uuid>.parquet
//! lost/<incarnation>/tables/<table id>/<shard>-log.parquet                 rows of the log
//! lost/<incarnation>/tables/<table id>/part-of-<name of a segment>         some rows of a segment
//! ```
//!
//! No query reads the directory `lost`, and the worker never deletes it. Any Parquet tool can read
//! the segments in it, and an operator removes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch, RecordBatchReader};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::durable;

use super::directory::{TABLES, TableDirectory};
use super::segment::Segment;

/// The directory of the rows that one incarnation of the catalog does not have.
#[derive(Debug, Clone)]
pub(super) struct LostDirectory {
    path: PathBuf,
}

impl LostDirectory {
    /// Builds the path of the directory. `data_dir` is the worker's data directory.
    pub(super) fn new(data_dir: &Path, incarnation: u32) -> Self {
        Self {
            path: data_dir.join("lost").join(format!("{incarnation:08x}")),
        }
    }

    /// Creates durable hard links to files of a table in this directory. The caller removes the
    /// original names.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub(super) fn link_files(&self, from: &TableDirectory, files: &[PathBuf]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let directory = self.directory_of(from);
        durable::create_directory(from.disk(), &directory)?;
        for file in files {
            // Files of earlier releases are in a directory for each shard.
            let name = file.strip_prefix(from.path()).unwrap_or(file);
            let link = directory.join(name.to_string_lossy().replace('/', "-"));
            match fs::hard_link(file, &link) {
                // The file was set aside before a crash, or is gone already.
                Err(source)
                    if matches!(
                        source.kind(),
                        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotFound
                    ) => {}
                linked => linked.map_err(|source| {
                    Error::io(format!("cannot set {} aside", file.display()), source)
                })?,
            }
        }
        durable::sync_directory(from.disk(), &directory)
    }

    /// Durably writes rows of a shard, which are in no file, into a file in this directory.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub(super) fn write_rows(
        &self,
        from: &TableDirectory,
        shard: u32,
        batches: &[RecordBatch],
    ) -> Result<()> {
        let Some(first) = batches.first() else {
            return Ok(());
        };
        let rows = batches.iter().cloned().map(Ok);
        self.write_file(from, &format!("{shard}-log.parquet"), first.schema(), rows)
    }

    /// Durably writes those rows of a segment that are of these writes into a file in this
    /// directory. The segment has rows of several writes.
    ///
    /// # Errors
    /// Returns `DATA_LOSS` if the segment is damaged, and the errors of the file system, with the
    /// file.
    pub(super) fn write_part(
        &self,
        from: &TableDirectory,
        segment: &Segment,
        writes: &WriteSet,
    ) -> Result<()> {
        segment.check_content(|_| ())?;
        let failed = |error: ParquetError| {
            let what = format!("cannot read segment {}", segment.relative_path());
            Error::io_within(what, error)
        };
        let file = File::open(segment.path())
            .map_err(ParquetError::from)
            .map_err(failed)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
        let reader = reader.build().map_err(failed)?;
        let columns: Vec<_> = (0..reader.schema().fields().len() - 1).collect();
        let kept = reader
            .schema()
            .project(&columns)
            .map_err(ParquetError::from);
        let schema = Arc::new(kept.map_err(failed)?);
        let rows = reader.map(|batch| {
            let batch = batch?;
            let its_writes = batch.column(columns.len()).as_primitive::<UInt64Type>();
            let is_lost = its_writes.values().iter();
            let is_lost: Vec<_> = is_lost.map(|it| writes.contains(WriteId(*it))).collect();
            let rows = filter_record_batch(&batch, &BooleanArray::from(is_lost))?;
            rows.project(&columns)
        });
        self.write_file(from, &format!("part-of-{}", segment.name()), schema, rows)
    }

    fn write_file(
        &self,
        from: &TableDirectory,
        name: &str,
        schema: SchemaRef,
        rows: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    ) -> Result<()> {
        let directory = self.directory_of(from);
        durable::create_directory(from.disk(), &directory)?;
        let path = directory.join(name);
        let failed = |source: ParquetError| {
            let what = format!("cannot write {}", path.display());
            Error::with_source(ErrorCode::Internal, what, source)
        };
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).map_err(failed)?;
        for batch in rows {
            let batch = batch.map_err(ParquetError::from).map_err(failed)?;
            writer.write(&batch).map_err(failed)?;
        }
        let content = writer.into_inner().map_err(failed)?;
        durable::replace_file(from.disk(), &path, &content)
    }

    fn directory_of(&self, from: &TableDirectory) -> PathBuf {
        self.path.join(TABLES).join(from.table().0.to_string())
    }
}
