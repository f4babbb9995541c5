use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::in_memory::{Chunk, InMemoryRowGroup};
use super::layout::FileLayout;
use crate::segment::PageChecksums;

/// Size of a column above which it is not read whole, in bytes of the file.
const MAX_COLUMN_BYTES: u64 = 64 << 20;

/// A row group of a segment's file.
pub(crate) struct RowGroup<'a> {
    pub(crate) file: &'a File,
    pub(crate) metadata: &'a Arc<ParquetMetaData>,
    pub(crate) row_group: &'a RowGroupMetaData,
    pub(crate) checksums: Option<&'a PageChecksums>,
    /// The columns of the segments of the table.
    pub(crate) table_schema: &'a SchemaRef,
    /// Reads a range of the file. It may refuse to wait for the disk.
    pub(crate) read: fn(&File, &Range<u64>) -> Option<Bytes>,
}

/// Returns whether all columns of the table can be read from files like this one in their types.
pub(crate) fn has_columns(metadata: &Arc<ParquetMetaData>, table_schema: &SchemaRef) -> bool {
    FileLayout::new(metadata, table_schema, &[])
        .columns
        .is_some()
}

/// Reads all values of a column of the table from a row group. Returns `None` if it was not read,
/// or if it is too large.
///
/// # Errors
/// Returns an error if the file is damaged.
pub(crate) fn read_column(group: &RowGroup<'_>, column: usize) -> Result<Option<ArrayRef>> {
    let layout = FileLayout::new(group.metadata, group.table_schema, &[column]);
    let Some(columns) = &layout.columns else {
        return Ok(None);
    };
    let rows = usize::try_from(group.row_group.num_rows()).unwrap_or_default();
    let mut chunks = Vec::with_capacity(columns.leaves.len());
    for leaf in &columns.leaves {
        let (start, length) = group.row_group.column(*leaf).byte_range();
        if length > MAX_COLUMN_BYTES {
            return Ok(None);
        }
        let range = start..start.saturating_add(length);
        let Some(bytes) = (group.read)(group.file, &range) else {
            return Ok(None);
        };
        if let Some(checksums) = group.checksums {
            let compared = checksums.check(&range, &bytes);
            compared.map_err(|damage| ParquetError::External(Box::new(damage)))?;
        }
        chunks.push(Arc::new(Chunk { start, bytes }));
    }
    let in_memory = InMemoryRowGroup {
        metadata: group.metadata,
        row_group: group.row_group,
        leaves: &columns.leaves,
        chunks,
        rows,
    };
    let batches = ParquetRecordBatchReader::try_new_with_row_groups(
        &columns.levels,
        &in_memory,
        rows.max(1),
        None,
    )?;
    let mut read = Vec::with_capacity(1);
    for batch in batches {
        read.push(batch?);
    }
    match &read[..] {
        [batch] if batch.num_rows() == rows => Ok(Some(Arc::clone(batch.column(0)))),
        _ => Err(ParquetError::General(format!(
            "a column of a row group of {rows} rows came in {} batches",
            read.len()
        ))),
    }
}
