use std::fs::File;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::RowGroups;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{PageIterator, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use crate::segment::{MAX_INLINE_READ_BYTES, PageChecksums, read_cached};

/// The columns of a row group that are read.
pub(super) struct InMemoryRowGroup<'a> {
    pub(super) metadata: &'a ParquetMetaData,
    pub(super) row_group: &'a RowGroupMetaData,
    /// The leaf columns of the file that are read, in ascending order.
    pub(super) leaves: &'a [usize],
    /// The column chunks, in the order of `leaves`.
    pub(super) chunks: Vec<Arc<Chunk>>,
    pub(super) rows: usize,
}

impl RowGroups for InMemoryRowGroup<'_> {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>> {
        let position = self.leaves.binary_search(&leaf);
        let chunk = position.ok().and_then(|position| self.chunks.get(position));
        let chunk =
            chunk.ok_or_else(|| ParquetError::General(format!("column {leaf} was not read")))?;
        let column = self.row_group.column(leaf);
        let pages = SerializedPageReader::new(Arc::clone(chunk), column, self.rows, None)?;
        Ok(Box::new(Pages(Some(Box::new(pages)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.row_group))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

/// The pages of the only chunk of a column.
struct Pages(Option<Box<dyn PageReader>>);

impl Iterator for Pages {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for Pages {}

/// A part of a file.
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Chunk {
    fn bytes_from(&self, start: u64) -> Result<Bytes> {
        let skipped = start.checked_sub(self.start);
        let skipped = skipped.and_then(|skipped| usize::try_from(skipped).ok());
        match skipped.filter(|skipped| *skipped <= self.bytes.len()) {
            Some(skipped) => Ok(self.bytes.slice(skipped..)),
            None => Err(ParquetError::EOF(format!("nothing was read at {start}"))),
        }
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.bytes_from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.bytes_from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} were not read"
            )));
        }
        Ok(bytes.slice(..length))
    }
}

/// Reads the bloom filter of a column. Returns `None` if the system does not have it in memory, or
/// if it is damaged. Then the bloom filter excludes nothing.
pub(crate) fn bloom_filter(
    column: &ColumnChunkMetaData,
    file: &File,
    checksums: Option<&PageChecksums>,
) -> Option<Sbbf> {
    let start = u64::try_from(column.bloom_filter_offset()?).ok()?;
    let length = u64::try_from(column.bloom_filter_length()?).ok()?;
    if length > MAX_INLINE_READ_BYTES {
        return None;
    }
    let range = start..start.saturating_add(length);
    let bytes = read_cached(file, &range)?;
    if checksums.is_some_and(|checksums| checksums.check(&range, &bytes).is_err()) {
        return None;
    }
    Sbbf::read_from_column_chunk(column, &Chunk { start, bytes })
        .ok()
        .flatten()
}
