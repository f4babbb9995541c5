use std::fs::File;
use std::iter::repeat;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use volary_exec::batches::compact_column;
use volary_flight_proto::Error;
use volary_node::runtimes::continue_on_cpu;

use super::cache::{GroupColumns, LookupCache};
use super::search::{find_in_sorted, find_in_unsorted, is_sorted};
use super::segment_index::{MOST_BLOOM_KEYS, SegmentIndex, excludes};
use crate::background::run_blocking;
use crate::fragment::bind::file_of_segment;
use crate::segment::{SegmentReaders, read_cached, read_waiting};
use crate::storage::{Segment, VisibleRows};

/// Largest number of rows that are collected. More rows are better streamed.
const MOST_ROWS: usize = 32 << 10;
/// Largest size of rows from columns that were decoded for them, in bytes.
const MOST_DECODED_BYTES: usize = 16 << 20;

/// The columns and keys that are looked up.
pub(super) struct Lookup<'a> {
    pub(super) cache: &'a LookupCache,
    pub(super) runtime_env: &'a RuntimeEnv,
    pub(super) table_schema: &'a SchemaRef,
    /// The column with the keys, by position in the table.
    pub(super) key_column: usize,
    /// The sorted keys to look for in each shard.
    pub(super) keys: &'a [ArrayRef],
    /// The columns of the table that are collected.
    pub(super) columns: &'a [usize],
}

/// Rows with the keys, in one place.
struct Found {
    /// The columns that are collected, with the rows of the place.
    columns: Vec<ArrayRef>,
    /// The rows that have one of the keys.
    rows: Vec<u32>,
}

/// The row groups that may have rows with the keys.
struct RowGroups<'a> {
    /// Rows of row groups whose columns are all decoded.
    found: Vec<Found>,
    /// Row groups of which some columns are not decoded yet, and are worth decoding.
    to_decode: Vec<Candidate<'a>>,
}

/// A row group that may have rows with some keys.
struct Candidate<'a> {
    segment: Arc<Segment>,
    index: Arc<SegmentIndex>,
    group: u32,
    /// The keys of the shard, and those of them that may be in the row group.
    shard_keys: &'a ArrayRef,
    keys: Range<usize>,
}

/// The reason why rows are not collected here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Some rows are in row groups that are not worth decoding yet.
    Cold,
    /// Something is not supported, or failed. The ordinary way of running the fragment says what.
    Unfit,
}

impl<'a> Lookup<'a> {
    /// Returns the visible rows with the keys, with the columns `schema`.
    ///
    /// # Errors
    /// Returns the reason why the rows are to be read in another way.
    pub(super) async fn collect(
        &self,
        visible: &[VisibleRows],
        schema: &SchemaRef,
    ) -> Result<RecordBatch, Refusal> {
        if visible.iter().any(|rows| !rows.partly.is_empty()) {
            return Err(Refusal::Unfit);
        }
        // Nothing is decoded unless everything is worth decoding.
        let shards = || {
            let shards = visible.iter().zip(self.keys);
            shards.filter(|(_, keys)| !keys.is_empty())
        };
        let RowGroups {
            mut found,
            to_decode,
        } = self.row_groups(shards())?;
        if !to_decode.is_empty() {
            self.decode_all(to_decode, &mut found).await?;
        }
        for (rows, keys) in shards() {
            for batch in &rows.logged {
                found.extend(self.find_logged(keys, batch).ok_or(Refusal::Unfit)?);
            }
        }
        let count: usize = found.iter().map(|found| found.rows.len()).sum();
        if count > MOST_ROWS {
            return Err(Refusal::Unfit);
        }
        self.gather(&found, count, schema).ok_or(Refusal::Unfit)
    }

    /// Finds rows that are in no segment yet.
    fn find_logged(&self, keys: &ArrayRef, batch: &RecordBatch) -> Option<Option<Found>> {
        let rows = find_in_unsorted(keys, batch.columns().get(self.key_column)?)?;
        if rows.is_empty() {
            return Some(None);
        }
        let columns = self.columns.iter();
        let columns = columns.map(|column| batch.columns().get(*column).cloned());
        Some(Some(Found {
            columns: columns.collect::<Option<_>>()?,
            rows,
        }))
    }

    /// Returns the row groups that may have rows with the keys of their shard.
    fn row_groups<'s>(
        &self,
        shards: impl Iterator<Item = (&'s VisibleRows, &'a ArrayRef)>,
    ) -> Result<RowGroups<'a>, Refusal> {
        let (mut found, mut to_decode) = (Vec::new(), Vec::new());
        let (mut count, mut bytes) = (0, 0_usize);
        let mut is_cold = false;
        let segments = shards.flat_map(|(rows, keys)| rows.segments.iter().zip(repeat(keys)));
        for (segment, shard_keys) in segments {
            let index = self.index(segment)?;
            if index.sorted_by() != self.key_column {
                return Err(Refusal::Unfit);
            }
            let groups = index.candidates(shard_keys).ok_or(Refusal::Unfit)?;
            for (group, keys) in groups {
                let decoded = self.cache.columns(segment.file_number(), group);
                let key_values = held(decoded.as_ref(), self.key_column);
                if let Some(values) = &key_values {
                    let rows = find_in_sorted(shard_keys, keys.clone(), values, MOST_ROWS);
                    let rows = rows.ok_or(Refusal::Unfit)?;
                    if rows.is_empty() {
                        self.cache.totals.hits.inc();
                        continue;
                    }
                    count += rows.len();
                    if count > MOST_ROWS {
                        return Err(Refusal::Unfit);
                    }
                    let columns = self.columns.iter();
                    let columns = columns.map(|column| held(decoded.as_ref(), *column));
                    if let Some(columns) = columns.collect() {
                        self.cache.totals.hits.inc_by(self.columns.len() as u64);
                        found.push(Found { columns, rows });
                        continue;
                    }
                }
                let candidate = Candidate {
                    segment: Arc::clone(segment),
                    index: Arc::clone(&index),
                    group,
                    shard_keys,
                    keys,
                };
                if key_values.is_none() && self.is_excluded(&candidate) {
                    continue;
                }
                // All columns that this lookup decodes must have room together. Otherwise the next
                // lookup would decode them again.
                let estimated = index.estimated_bytes(group, self.columns, self.table_schema);
                bytes = bytes.saturating_add(estimated);
                is_cold |= !index.ask(group, candidate.keys.len()) || !self.cache.has_room(bytes);
                to_decode.push(candidate);
            }
        }
        if is_cold {
            return Err(Refusal::Cold);
        }
        Ok(RowGroups { found, to_decode })
    }

    /// Returns what is known of the row groups of a segment.
    fn index(&self, segment: &Arc<Segment>) -> Result<Arc<SegmentIndex>, Refusal> {
        if let Some(index) = self.cache.index(segment.file_number()) {
            return Ok(index);
        }
        // The ordinary scan reads metadata that is not in memory, and compares it with its
        // checksum.
        let store = ObjectStoreUrl::local_filesystem();
        let store = self.runtime_env.object_store(&store);
        let readers = SegmentReaders::new(
            store.map_err(unfit)?,
            self.runtime_env.cache_manager.get_file_metadata_cache(),
        );
        let file = file_of_segment(segment).map_err(unfit)?;
        let metadata = readers.cached_metadata(&file).map_err(unfit)?;
        let metadata = metadata.ok_or(Refusal::Cold)?;
        // Without room for what is known of the file, none of its columns would be kept, either.
        if !self.cache.has_room(metadata.memory_size()) {
            return Err(Refusal::Cold);
        }
        let index = SegmentIndex::of(&metadata, self.table_schema).map_err(unfit)?;
        let index = Arc::new(index.ok_or(Refusal::Unfit)?);
        self.cache.keep_index(segment.file_number(), &index);
        Ok(index)
    }

    /// Returns whether the bloom filter of a row group excludes the keys.
    fn is_excluded(&self, candidate: &Candidate<'_>) -> bool {
        if candidate.keys.len() > MOST_BLOOM_KEYS {
            return false;
        }
        let (file, group) = (candidate.segment.file_number(), candidate.group);
        let filter = self.cache.bloom(file, group).or_else(|| {
            let opened = File::open(candidate.segment.path()).ok()?;
            let (filter, bytes) = candidate.index.read_bloom(group, &opened)?;
            self.cache.keep_bloom(file, group, &filter, bytes);
            Some(filter)
        });
        filter.is_some_and(|filter| excludes(&filter, candidate.shard_keys, candidate.keys.clone()))
    }

    /// Finds the rows of row groups whose columns have to be decoded, and adds them to `found`. The
    /// cache may forget a column while others are decoded. So this holds no column, but only the
    /// rows that were found in it.
    async fn decode_all(
        &self,
        candidates: Vec<Candidate<'_>>,
        found: &mut Vec<Found>,
    ) -> Result<(), Refusal> {
        for found in found.iter_mut() {
            let columns = found.columns.iter();
            let columns = columns.map(|values| rows_of(values, &found.rows));
            *found = Found::whole(columns.collect::<Result<_, _>>()?, found.rows.len());
        }
        let mut count: usize = found.iter().map(|found| found.rows.len()).sum();
        // The rows are counted before more than their keys is decoded.
        let mut with_rows = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let values = self.column(&candidate, self.key_column).await?;
            let (keys, range) = (candidate.shard_keys, candidate.keys.clone());
            let rows = find_in_sorted(keys, range, &values, MOST_ROWS).ok_or(Refusal::Unfit)?;
            count += rows.len();
            if count > MOST_ROWS {
                return Err(Refusal::Unfit);
            }
            if !rows.is_empty() {
                with_rows.push((candidate, rows));
            }
        }
        let mut bytes = 0;
        for (candidate, rows) in with_rows {
            let mut columns = Vec::with_capacity(self.columns.len());
            for column in self.columns {
                let values = self.column(&candidate, *column).await?;
                let values = rows_of(&values, &rows)?;
                bytes += values.get_array_memory_size();
                if bytes > MOST_DECODED_BYTES {
                    return Err(Refusal::Unfit);
                }
                columns.push(values);
            }
            found.push(Found::whole(columns, rows.len()));
        }
        Ok(())
    }

    /// Returns a column of a row group, which is decoded if it is not kept.
    async fn column(&self, candidate: &Candidate<'_>, column: usize) -> Result<ArrayRef, Refusal> {
        let (file, group) = (candidate.segment.file_number(), candidate.group);
        let kept = || {
            let values = held(self.cache.columns(file, group).as_ref(), column)?;
            self.cache.totals.hits.inc();
            Some(values)
        };
        if let Some(values) = kept() {
            return Ok(values);
        }
        let _lock = self.cache.lock(file, group).await;
        match kept() {
            Some(values) => Ok(values),
            None => self.decode(candidate, column).await,
        }
    }

    /// Decodes a column of a row group, and keeps it. The caller must hold the lock of the row
    /// group.
    async fn decode(&self, candidate: &Candidate<'_>, column: usize) -> Result<ArrayRef, Refusal> {
        // Decoding takes about a millisecond. Others may compute between two columns.
        continue_on_cpu().await;
        tokio::task::yield_now().await;
        let Candidate {
            segment,
            index,
            group,
            ..
        } = candidate;
        let (group, opened) = (*group, File::open(segment.path()).map_err(unfit)?);
        let read = index.read_column(group, column, &opened, self.table_schema, read_cached);
        let read = match read.map_err(unfit)? {
            Some(values) => Some(values),
            None => {
                let (index, schema) = (Arc::clone(index), Arc::clone(self.table_schema));
                let reading = move || {
                    let read = index.read_column(group, column, &opened, &schema, read_waiting);
                    read.map_err(|error| Error::from(DataFusionError::from(error)))
                };
                run_blocking(reading).await.map_err(unfit)?
            }
        };
        let values = read.ok_or(Refusal::Unfit)?;
        // This release writes sorted files, but the search must not rely on that.
        if column == self.key_column && !is_sorted(&values) {
            return Err(Refusal::Unfit);
        }
        self.cache.totals.misses.inc();
        let file = segment.file_number();
        let column = u32::try_from(column).map_err(unfit)?;
        self.cache.keep_column(file, group, column, &values);
        index.note_decoded(group);
        Ok(values)
    }

    /// Makes one batch of the rows that were found.
    fn gather(&self, found: &[Found], count: usize, schema: &SchemaRef) -> Option<RecordBatch> {
        let mut positions = Vec::with_capacity(count);
        for (place, found) in found.iter().enumerate() {
            positions.extend(found.rows.iter().map(|row| (place, *row as usize)));
        }
        let columns = schema.fields().iter().enumerate().map(|(column, field)| {
            let values: Vec<&dyn Array> = found
                .iter()
                .map(|found| found.columns.get(column).map(AsRef::as_ref))
                .collect::<Option<_>>()?;
            if values.is_empty() {
                return Some(arrow::array::new_empty_array(field.data_type()));
            }
            if values
                .iter()
                .any(|values| values.data_type() != field.data_type())
            {
                return None;
            }
            interleave(&values, &positions).ok()
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).ok()
    }
}

impl Found {
    /// Creates rows from columns of this length.
    fn whole(columns: Vec<ArrayRef>, length: usize) -> Self {
        Self {
            columns,
            rows: (0..).take(length).collect(),
        }
    }
}

/// Returns some rows of a column. They do not share the memory of the column.
fn rows_of(values: &ArrayRef, rows: &[u32]) -> Result<ArrayRef, Refusal> {
    let rows = UInt32Array::from(rows.to_vec());
    let values = take(values, &rows, None).map_err(unfit)?;
    Ok(compact_column(values))
}

/// Returns a column of a row group if it is decoded.
fn held(decoded: Option<&GroupColumns>, column: usize) -> Option<ArrayRef> {
    let mut columns = decoded?.iter();
    let found = columns.find(|(number, _)| usize::try_from(*number) == Ok(column))?;
    Some(Arc::clone(&found.1))
}

/// Turns an error into a refusal. The ordinary way of running the fragment fails, too, and reports
/// the error.
pub(super) fn unfit<E: std::fmt::Display>(error: E) -> Refusal {
    tracing::debug!(%error, "rows are not looked up in decoded columns");
    Refusal::Unfit
}
