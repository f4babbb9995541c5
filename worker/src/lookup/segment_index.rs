//! A key whose rows are cold is left to the ordinary scan, which reads the one page of each column
//! that has the key. Decoding a row group costs as much as reading each of its pages once. So a row
//! group is decoded when as many keys were asked of it as it has pages: by then, reading single
//! pages has cost as much as decoding would have. Whatever is asked next, the cost is at most twice
//! that of the better choice (this is the rule for renting or buying skis). A small row group is
//! decoded at once, because the ordinary scan would decode all of it, too.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::physical_plan::parquet::BloomFilterStatistics;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;

use super::search::keys_within;
use crate::scan::{RowGroup, bloom_filter, has_columns, read_column};
use crate::segment::{ORDER, PageChecksums, stored_schema};

/// Number of rows of a page. A page may have fewer rows; then decoding begins a little later.
const PAGE_ROWS: u32 = 20_000;
/// Number of rows up to which the ordinary scan decodes a row group whole.
const SMALL_ROWS: u32 = 32 << 10;
/// Number of keys up to which they are looked for in a bloom filter. Many keys are rarely all
/// absent.
pub(super) const MOST_BLOOM_KEYS: usize = 16;

/// Bytes of a text besides its characters.
const VIEW_BYTES: usize = 16;
/// Bytes of a block of a bloom filter.
const BLOOM_BLOCK_BYTES: usize = 32;
/// Name of the only column of a [`Bloom`].
const BLOOM_COLUMN: &str = "key";

/// The bloom filter of the sorted column of a row group.
pub(super) type Bloom = Arc<BloomFilterStatistics>;

/// The row groups of a segment.
#[derive(Debug)]
pub(super) struct SegmentIndex {
    metadata: Arc<ParquetMetaData>,
    checksums: Option<PageChecksums>,
    /// The column of the table that the rows are sorted by first.
    sorted_by: usize,
    /// The bounds of that column in each row group.
    mins: ArrayRef,
    maxes: ArrayRef,
    /// How many keys were asked of each row group since its columns were last decoded.
    asked: Vec<AtomicU32>,
}

impl SegmentIndex {
    /// Describes the file of a segment. Returns `None` if the file does not say that its rows are
    /// sorted as this release sorts them, or if it has no bounds.
    ///
    /// # Errors
    /// Returns an error if the metadata is damaged.
    pub(super) fn of(
        metadata: &Arc<ParquetMetaData>,
        table_schema: &SchemaRef,
    ) -> Result<Option<Self>> {
        let Some(sorted_by) = sorted_by(metadata) else {
            return Ok(None);
        };
        let Some(field) = table_schema.fields().get(sorted_by) else {
            return Ok(None);
        };
        if !has_columns(metadata, &stored_schema(table_schema)) {
            return Ok(None);
        }
        let schema = metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(field.name(), table_schema, schema)?;
        let groups = metadata.row_groups();
        let checksums = PageChecksums::of(metadata)
            .map_err(|damage| ParquetError::External(Box::new(damage)))?;
        Ok(Some(Self {
            sorted_by,
            checksums,
            mins: converter.row_group_mins(groups)?,
            maxes: converter.row_group_maxes(groups)?,
            asked: groups.iter().map(|_| AtomicU32::new(0)).collect(),
            metadata: Arc::clone(metadata),
        }))
    }

    /// Returns the memory of the index, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let checksums = self.checksums.as_ref().map_or(0, PageChecksums::bytes);
        self.metadata.memory_size()
            + checksums
            + self.mins.get_array_memory_size()
            + self.maxes.get_array_memory_size()
            + self.asked.len() * size_of::<AtomicU32>()
    }

    /// Returns the column of the table that the rows are sorted by first.
    pub(super) fn sorted_by(&self) -> usize {
        self.sorted_by
    }

    /// Returns the row groups that may have some of the sorted keys, each with these keys. Returns
    /// `None` if the keys have another type than the column.
    pub(super) fn candidates(&self, keys: &dyn Array) -> Option<Vec<(u32, Range<usize>)>> {
        let ranges = keys_within(keys, &self.mins, &self.maxes)?;
        let ranges = (0..).zip(ranges);
        Some(ranges.filter(|(_, range)| !range.is_empty()).collect())
    }

    /// Returns about the memory that these columns of a row group take when they are decoded.
    pub(super) fn estimated_bytes(&self, group: u32, columns: &[usize], schema: &Schema) -> usize {
        let file = self.metadata.file_metadata().schema_descr();
        let Some(group) = self.metadata.row_groups().get(group as usize) else {
            return usize::MAX;
        };
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        let bytes = group.columns().iter().enumerate().map(|(leaf, chunk)| {
            let root = file.get_column_root_idx(leaf);
            if root != self.sorted_by && !columns.contains(&root) {
                return 0;
            }
            // Equal values are stored only once, but decoded each time.
            let field = schema.fields().get(root);
            let width = field.and_then(|field| field.data_type().primitive_width());
            let decoded = rows.saturating_mul(width.unwrap_or(VIEW_BYTES));
            let stored = usize::try_from(chunk.uncompressed_size()).unwrap_or(usize::MAX);
            decoded.max(stored)
        });
        bytes.fold(0, usize::saturating_add)
    }

    /// Counts keys that are asked of a row group that is not decoded. Returns whether the row group
    /// should be decoded now.
    pub(super) fn ask(&self, group: u32, keys: usize) -> bool {
        let rows = self.metadata.row_groups().get(group as usize);
        let rows = rows.and_then(|group| u32::try_from(group.num_rows()).ok());
        let (Some(rows), Some(asked)) = (rows, self.asked.get(group as usize)) else {
            return false;
        };
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        // More than this number of keys makes no difference, so that the sum cannot overflow.
        let pages = rows.div_ceil(PAGE_ROWS);
        let asked = asked.fetch_add(keys.min(pages), Ordering::Relaxed);
        rows <= SMALL_ROWS || asked.saturating_add(keys) >= pages
    }

    /// Notes that columns of a row group were decoded. If they are forgotten, keys are counted
    /// again.
    pub(super) fn note_decoded(&self, group: u32) {
        if let Some(asked) = self.asked.get(group as usize) {
            asked.store(0, Ordering::Relaxed);
        }
    }

    /// Reads the bloom filter of the sorted column, and returns it with its memory in bytes.
    /// Returns `None` if there is none, or if the system does not have it in memory.
    pub(super) fn read_bloom(&self, group: u32, file: &File) -> Option<(Bloom, usize)> {
        let column = self.metadata.row_groups().get(group as usize)?;
        let column = column.columns().get(self.leaf()?)?;
        let filter = bloom_filter(column, file, self.checksums.as_ref())?;
        let bytes = filter.num_blocks() * BLOOM_BLOCK_BYTES;
        let described = column.column_descr();
        let mut statistics = BloomFilterStatistics::with_capacity(1);
        statistics.insert(
            BLOOM_COLUMN,
            filter,
            described.physical_type(),
            described.type_length(),
        );
        Some((Arc::new(statistics), bytes))
    }

    /// Reads a column of a row group with a function that reads ranges of the file. Returns `None`
    /// if the function did not read the column.
    ///
    /// # Errors
    /// Returns an error if the file is damaged.
    pub(super) fn read_column(
        &self,
        group: u32,
        column: usize,
        file: &File,
        table_schema: &SchemaRef,
        read: fn(&File, &Range<u64>) -> Option<Bytes>,
    ) -> Result<Option<ArrayRef>> {
        let Some(row_group) = self.metadata.row_groups().get(group as usize) else {
            return Ok(None);
        };
        let group = RowGroup {
            file,
            metadata: &self.metadata,
            row_group,
            checksums: self.checksums.as_ref(),
            table_schema,
            read,
        };
        read_column(&group, column)
    }

    fn leaf(&self) -> Option<usize> {
        let schema = self.metadata.file_metadata().schema_descr();
        (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == self.sorted_by)
    }
}

/// Returns the column that all row groups are sorted by first, in the order of this release.
fn sorted_by(metadata: &ParquetMetaData) -> Option<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let mut columns = metadata.row_groups().iter().map(|group| {
        let first = group.sorting_columns()?.first()?;
        let leaf = usize::try_from(first.column_idx).ok()?;
        (first.descending == ORDER.descending && first.nulls_first == ORDER.nulls_first)
            .then_some(leaf)
    });
    let leaf = columns.next()??;
    let all_alike = columns.all(|column| column == Some(leaf));
    (all_alike && leaf < schema.num_columns()).then(|| schema.get_column_root_idx(leaf))
}

/// Returns whether a bloom filter excludes all of some keys.
pub(super) fn excludes(filter: &Bloom, keys: &dyn Array, range: Range<usize>) -> bool {
    let values = range.map(|key| ScalarValue::try_from_array(keys, key));
    let Ok(values) = values.collect::<std::result::Result<_, _>>() else {
        return false;
    };
    let contained = filter.contained(&Column::new_unqualified(BLOOM_COLUMN), &values);
    // NULL means that some value may be there.
    contained.is_some_and(|contained| contained.iter().eq([Some(false)]))
}
