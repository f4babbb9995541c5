use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use volary_flight_proto::Error;

use super::intervals::{has_intervals, to_stored};
use super::page_checksums::PageChecksums;
use super::pages::WrittenPages;
use super::properties::SegmentProperties;
use crate::storage::{ChecksummedFile, SegmentChecksums};

/// A Parquet file that is being written.
pub(super) struct SegmentFileWriter {
    parquet: ArrowWriter<ChecksummedFile>,
    /// The columns of the file.
    schema: SchemaRef,
    pages: WrittenPages,
    /// The file that `parquet` writes. Bloom filters are read from it again.
    file: File,
}

impl SegmentFileWriter {
    /// Begins to write an empty file. The file must be readable, too.
    pub(super) fn new(properties: &SegmentProperties, file: File) -> Result<Self> {
        let pages = WrittenPages::default();
        let checksummed = ChecksummedFile::new(file.try_clone()?);
        Ok(Self {
            parquet: properties.writer(checksummed, Arc::new(pages.clone()))?,
            schema: Arc::clone(properties.schema()),
            pages,
            file,
        })
    }

    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        if !has_intervals(rows) {
            return self.parquet.write(rows);
        }
        let rows = to_stored(rows, &self.schema)?;
        self.parquet.write(&rows)
    }

    /// Returns the memory of the rows that are not in the file yet, in bytes.
    pub(super) fn memory_size(&self) -> usize {
        self.parquet.memory_size()
    }

    /// Returns the estimated size that the file would have if it ended here, in bytes.
    pub(super) fn size(&self) -> usize {
        self.parquet.bytes_written() + self.parquet.in_progress_size()
    }

    /// Writes the rest of the file. The file is then complete, but not durable.
    pub(super) fn finish(mut self) -> Result<(File, SegmentChecksums)> {
        self.parquet.flush()?;
        self.parquet.sync()?;
        let checksums = self.page_checksums()?;
        self.parquet
            .append_key_value_metadata(checksums.into_key_value());
        self.parquet.inner_mut().begin_tail();
        // `into_inner` would turn an error of the last flush, such as a full disk, into mere text.
        self.parquet.finish()?;
        Ok((self.file, self.parquet.inner().checksums()))
    }

    fn page_checksums(&self) -> Result<PageChecksums> {
        let mut checksums = PageChecksums::default();
        let mut pages = self.pages.take().into_iter();
        for row_group in self.parquet.flushed_row_groups() {
            for column in row_group.columns() {
                let (mut start, length) = column.byte_range();
                let end = start + length;
                while start < end {
                    let page = pages.next().ok_or_else(|| miscounted(row_group))?;
                    checksums.add(start, page.crc32, to_u32(page.bytes)?);
                    start += page.bytes as u64;
                }
                if start != end {
                    return Err(miscounted(row_group));
                }
                self.add_bloom_filter(&mut checksums, column)?;
            }
        }
        Ok(checksums)
    }

    /// Adds the checksum of a column's bloom filter. Bloom filters do not pass through the store of
    /// pages. So they are read again, from the page cache.
    fn add_bloom_filter(
        &self,
        checksums: &mut PageChecksums,
        column: &parquet::file::metadata::ColumnChunkMetaData,
    ) -> Result<()> {
        let (Some(start), Some(length)) =
            (column.bloom_filter_offset(), column.bloom_filter_length())
        else {
            return Ok(());
        };
        let start = u64::try_from(start).map_err(io::Error::other)?;
        let mut filter = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut filter, start)?;
        checksums.add(start, crc32fast::hash(&filter), to_u32(filter.len())?);
        Ok(())
    }
}

/// Returns the error for a segment whose file cannot be written.
pub(super) fn write_error(path: &Path, error: ParquetError) -> Error {
    Error::io_within(format!("cannot write segment {}", path.display()), error)
}

fn miscounted(row_group: &RowGroupMetaData) -> ParquetError {
    ParquetError::General(format!(
        "the pages of a row group of {} rows differ from those that were written; please report this",
        row_group.num_rows()
    ))
}

/// Converts the size of a page or bloom filter. These sizes are smaller than 2³² bytes, because
/// Parquet has 31 bits for them.
fn to_u32(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|source| ParquetError::External(Box::new(source)))
}
