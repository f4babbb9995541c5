use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::error::Result;
use datafusion::physical_expr::projection::{ProjectionExprs, Projector};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns, split_conjunction};
use datafusion::physical_expr_common::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicate;
use datafusion::physical_plan::filter::batch_filter;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricType, PruningMetrics,
};
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

use super::decoded::DecodedSegments;
use super::in_memory::{Chunk, InMemoryRowGroup, bloom_filter};
use super::layout::FileLayout;
use super::logged::LoggedBatches;
use super::pruning::{Pruning, RowGroupStatistics, bloom_filters, may_match};
use crate::segment::{
    Damage, MAX_INLINE_READ_BYTES, PageChecksums, SegmentReaders, damage_error, read_cached,
};
use crate::storage;

/// Maximum number of rows of a small segment. In a larger segment, it may pay to read only some
/// pages, or to read some columns only for some rows.
const MOST_ROWS: i64 = 32 << 10;
/// Number of rows below which a segment is tiny. Reading its rows takes less time than reading a
/// bloom filter that excludes them.
const TINY_ROWS: u64 = 1 << 10;
/// Maximum number of values of a tiny segment that stays decoded, the elements of lists included.
const MOST_KEPT_VALUES: i64 = 64 << 10;
/// Number of tiny segments that a scan reads without looking at their statistics. Reading so few of
/// them takes less time than preparing the check of their statistics.
const UNPRUNED_TINY_SEGMENTS: usize = 2;
/// Number of excluded segments after which a scan yields to other tasks.
const EXCLUDED_PER_YIELD: usize = 64;

/// The reader of the small segments of a scan, prepared once for all of them.
#[derive(Debug)]
pub(super) struct SmallSegments {
    readers: Arc<SegmentReaders>,
    decoded: Arc<DecodedSegments>,
    table_schema: SchemaRef,
    /// The columns of the table that are read, in ascending order.
    columns: Vec<usize>,
    /// The schema of these columns.
    schema: SchemaRef,
    /// The conditions that the scan applies to rows; empty if the plan above the scan applies them.
    /// They are applied one after another. A row that one condition excludes is not passed to the
    /// next condition, which may fail for that row.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    projector: Projector,
    pruning: Pruning,
    batch_rows: usize,
    layout: Mutex<Option<Arc<FileLayout>>>,
    /// Number of tiny segments that were looked at.
    tiny: AtomicUsize,
    excluded_count: AtomicUsize,
    metrics: Metrics,
}

/// The columns and rows that a scan must return, and its settings.
pub(super) struct ScanRequest<'a> {
    pub(super) table_schema: SchemaRef,
    /// The projection, over the table's columns.
    pub(super) projection: &'a ProjectionExprs,
    /// The predicate, over the table's columns.
    pub(super) predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Says whether the scan itself must apply the predicate to each row.
    pub(super) must_filter_rows: bool,
    pub(super) max_in_list: usize,
    pub(super) batch_rows: usize,
}

#[derive(Debug)]
struct Metrics {
    segments: Count,
    scanned: Count,
    by_statistics: PruningMetrics,
    by_bloom_filter: PruningMetrics,
}

/// What the scan does with one segment.
pub(super) enum OpenedSegment {
    /// The segment has no matching row. If `should_yield` is true, many segments were excluded, and
    /// the scan should yield to other tasks.
    Excluded { should_yield: bool },
    /// The rows of the segment, which are decoded in batches.
    Rows(SegmentRows),
    /// Rows that are decoded, or in no segment yet.
    Decoded(DecodedRows),
    /// The segment is not small, or the system does not have it in memory.
    Large,
}

impl SmallSegments {
    /// Prepares what all small segments of a scan share.
    ///
    /// # Errors
    /// Returns an error if the projection does not fit the table.
    pub(super) fn new(
        asked: ScanRequest<'_>,
        readers: Arc<SegmentReaders>,
        decoded: Arc<DecodedSegments>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Result<Self> {
        let table_schema = asked.table_schema;
        let filter = asked.predicate.as_ref().filter(|_| asked.must_filter_rows);
        let filters = filter.map(split_conjunction).unwrap_or_default();
        let mut columns = asked.projection.column_indices();
        for filter in &filters {
            columns.extend(collect_columns(filter).iter().map(|column| column.index()));
        }
        columns.sort_unstable();
        columns.dedup();
        let schema = Arc::new(table_schema.project(&columns)?);
        let over_read_columns = |expression| reassign_expr_columns(expression, &schema);
        let filters = filters
            .into_iter()
            .map(|filter| over_read_columns(Arc::clone(filter)));
        let filters = filters.collect::<Result<_>>()?;
        let projector = asked.projection.clone().try_map_exprs(over_read_columns)?;
        Ok(Self {
            readers,
            decoded,
            projector: projector.make_projector(&schema)?,
            filters,
            pruning: Pruning::new(
                asked.predicate,
                Arc::clone(&table_schema),
                asked.max_in_list,
            ),
            batch_rows: asked.batch_rows,
            layout: Mutex::default(),
            tiny: AtomicUsize::new(0),
            excluded_count: AtomicUsize::new(0),
            metrics: Metrics::new(metrics, partition),
            table_schema,
            columns,
            schema,
        })
    }

    /// Decides how the segment of this file is read, and reads it if it is small.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, or if this release does not know its format.
    pub(super) fn open(self: &Arc<Self>, file: &PartitionedFile) -> Result<OpenedSegment> {
        if let Some(logged) = file.extension::<LoggedBatches>() {
            let mut rows = Vec::new();
            for batch in logged.batches() {
                rows.extend(self.batches_of(&batch.project(&self.columns)?));
            }
            return Ok(self.decoded_rows(rows));
        }
        // DataFusion's source applies the selection.
        if file.extension::<ParquetRowSelection>().is_some() {
            return Ok(OpenedSegment::Large);
        }
        let segment = file.extension::<Arc<storage::Segment>>();
        if let Some(segment) = segment
            && segment.rows() < TINY_ROWS
            && let Some(batch) =
                self.decoded
                    .batch(segment.file_number(), &self.columns, &self.schema)
        {
            self.metrics.segments.add(1);
            return Ok(self.decoded_rows(self.batches_of(&batch)));
        }
        let metadata = self.readers.cached_metadata(file);
        let file = &file.object_meta;
        let Some(metadata) = metadata.map_err(|error| read_error(&file.location, error))? else {
            return Ok(OpenedSegment::Large);
        };
        let row_group = match metadata.row_groups() {
            [row_group] if row_group.num_rows() <= MOST_ROWS => row_group,
            _ => return Ok(OpenedSegment::Large),
        };
        let layout = self.layout(&metadata);
        let Some(columns) = &layout.columns else {
            return Ok(OpenedSegment::Large);
        };
        let ranges = columns.leaves.iter();
        let ranges = ranges.map(|leaf| row_group.column(*leaf).byte_range());
        let lengths = ranges.clone().map(|(_, length)| length);
        let bytes = lengths.fold(0, u64::saturating_add);
        if bytes > MAX_INLINE_READ_BYTES {
            return Ok(OpenedSegment::Large);
        }
        let statistics = RowGroupStatistics {
            metadata: &metadata,
            row_group,
            table_schema: &self.table_schema,
        };
        let pruning = self.pruning_of(row_group);
        if let Some(predicate) = &pruning
            && self.is_excluded_by_bounds(predicate, &statistics)
        {
            return Ok(self.count_excluded());
        }
        let Ok(opened) = self.readers.open(file) else {
            return Ok(OpenedSegment::Large);
        };
        let damaged_here = |what: Damage| read_error(&file.location, damage_error(segment, what));
        let checksums = PageChecksums::of(&metadata).map_err(damaged_here)?;
        if let Some(predicate) = &pruning
            && self.is_excluded_by_bloom_filters(
                predicate,
                &statistics,
                &opened,
                checksums.as_ref(),
            )
        {
            return Ok(self.count_excluded());
        }
        let mut chunks = Vec::with_capacity(columns.leaves.len());
        for (start, length) in ranges {
            let range = start..start.saturating_add(length);
            let Some(bytes) = read_cached(&opened, &range) else {
                return Ok(OpenedSegment::Large);
            };
            if let Some(checksums) = &checksums {
                checksums.check(&range, &bytes).map_err(damaged_here)?;
            }
            chunks.push(Arc::new(Chunk { start, bytes }));
        }
        let rows = usize::try_from(row_group.num_rows()).unwrap_or_default();
        let in_memory = InMemoryRowGroup {
            metadata: &metadata,
            row_group,
            leaves: &columns.leaves,
            chunks,
            rows,
        };
        let values = columns.leaves.iter();
        let values = values.map(|leaf| row_group.column(*leaf).num_values());
        let stays_decoded = row_group.num_rows() < TINY_ROWS as i64
            && values.fold(0, i64::saturating_add) <= MOST_KEPT_VALUES;
        let batch_rows = match stays_decoded {
            true => rows,
            false => self.batch_rows.min(rows),
        };
        let batches = ParquetRecordBatchReader::try_new_with_row_groups(
            &columns.levels,
            &in_memory,
            batch_rows.max(1),
            None,
        );
        let mut batches = batches.map_err(|error| read_error(&file.location, error))?;
        self.metrics.segments.add(1);
        self.metrics
            .scanned
            .add(usize::try_from(bytes).unwrap_or(usize::MAX));
        if stays_decoded && let Some(segment) = segment {
            let Some(batch) = batches.next() else {
                return Ok(self.decoded_rows(Vec::new()));
            };
            let batch = batch.map_err(|error| read_error(&file.location, error.into()))?;
            self.decoded
                .keep(segment.file_number(), &self.columns, &batch);
            return Ok(self.decoded_rows(self.batches_of(&batch)));
        }
        Ok(OpenedSegment::Rows(SegmentRows {
            file: file.location.clone(),
            batches,
            scan: Arc::clone(self),
        }))
    }

    /// Returns the predicate that may exclude a segment with this row group, if it is worth trying.
    fn pruning_of(&self, row_group: &RowGroupMetaData) -> Option<Arc<PruningPredicate>> {
        let is_tiny = row_group.num_rows() < TINY_ROWS as i64;
        if is_tiny && self.tiny.fetch_add(1, Ordering::Relaxed) < UNPRUNED_TINY_SEGMENTS {
            return None;
        }
        self.pruning.current()
    }

    fn is_excluded_by_bounds(
        &self,
        predicate: &PruningPredicate,
        statistics: &RowGroupStatistics<'_>,
    ) -> bool {
        let excluded = !may_match(predicate, statistics);
        count_pruning(&self.metrics.by_statistics, excluded);
        excluded
    }

    fn is_excluded_by_bloom_filters(
        &self,
        predicate: &PruningPredicate,
        statistics: &RowGroupStatistics<'_>,
        file: &File,
        checksums: Option<&PageChecksums>,
    ) -> bool {
        if statistics.row_group.num_rows() < TINY_ROWS as i64 {
            return false;
        }
        let read = |column: &ColumnChunkMetaData| bloom_filter(column, file, checksums);
        let Some(filters) = bloom_filters(predicate, statistics, read) else {
            return false;
        };
        let excluded = !may_match(predicate, &filters);
        count_pruning(&self.metrics.by_bloom_filter, excluded);
        excluded
    }

    fn count_excluded(&self) -> OpenedSegment {
        let before = self.excluded_count.fetch_add(1, Ordering::Relaxed);
        OpenedSegment::Excluded {
            should_yield: (before + 1).is_multiple_of(EXCLUDED_PER_YIELD),
        }
    }

    /// Returns rows in memory as the scan returns them. `batches` have the columns that are read.
    fn decoded_rows(self: &Arc<Self>, batches: Vec<RecordBatch>) -> OpenedSegment {
        OpenedSegment::Decoded(DecodedRows {
            batches: batches.into_iter(),
            scan: Arc::clone(self),
        })
    }

    /// Divides rows into batches of the size that the scan returns.
    fn batches_of(&self, rows: &RecordBatch) -> Vec<RecordBatch> {
        let (all, most) = (rows.num_rows(), self.batch_rows.max(1));
        let starts = (0..all).step_by(most);
        starts
            .map(|start| rows.slice(start, most.min(all - start)))
            .collect()
    }

    fn layout(&self, metadata: &Arc<ParquetMetaData>) -> Arc<FileLayout> {
        let mut cached = self.layout.lock();
        let file = metadata.file_metadata().schema_descr();
        if let Some(layout) = &*cached
            && layout.fits(file)
        {
            return Arc::clone(layout);
        }
        let layout = Arc::new(FileLayout::new(metadata, &self.table_schema, &self.columns));
        *cached = Some(Arc::clone(&layout));
        layout
    }
}

impl Metrics {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let builder = || MetricBuilder::new(metrics).with_type(MetricType::Summary);
        Self {
            segments: builder().counter("small_segments", partition),
            scanned: builder()
                .with_category(MetricCategory::Bytes)
                .counter("bytes_scanned", partition),
            by_statistics: builder().pruning_metrics("row_groups_pruned_statistics", partition),
            by_bloom_filter: builder().pruning_metrics("row_groups_pruned_bloom_filter", partition),
        }
    }
}

fn count_pruning(metric: &PruningMetrics, excluded: bool) {
    if excluded {
        metric.add_pruned(1);
    } else {
        metric.add_matched(1);
    }
}

fn read_error(file: &Path, error: ParquetError) -> DataFusionError {
    DataFusionError::from(error).context(format!("segment /{file} cannot be read"))
}

/// The rows of a segment, in batches.
pub(super) struct SegmentRows {
    file: Path,
    batches: ParquetRecordBatchReader,
    scan: Arc<SmallSegments>,
}

impl std::fmt::Debug for SegmentRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentRows").finish_non_exhaustive()
    }
}

/// Rows that are in memory, in batches with the columns that are read.
#[derive(Debug)]
pub(super) struct DecodedRows {
    batches: std::vec::IntoIter<RecordBatch>,
    scan: Arc<SmallSegments>,
}

impl Iterator for DecodedRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(self.scan.filter_and_project(batch))
    }
}

impl SmallSegments {
    /// Applies the filters and the projection to rows with the columns that are read.
    fn filter_and_project(&self, mut batch: RecordBatch) -> Result<RecordBatch> {
        for filter in &self.filters {
            if batch.num_rows() == 0 {
                break;
            }
            batch = batch_filter(&batch, filter)?;
        }
        self.projector.project_batch(&batch)
    }
}

impl Iterator for SegmentRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(
            batch
                .map_err(|error| read_error(&self.file, error.into()))
                .and_then(|batch| self.scan.filter_and_project(batch)),
        )
    }
}
