use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::physical_plan::parquet::BloomFilterStatistics;
use datafusion::physical_expr_common::physical_expr::{PhysicalExpr, snapshot_generation};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

/// The predicate that excludes segments by their statistics. It is built once for all segments, and
/// again when a filter of a join or top-k changes while the query runs.
#[derive(Debug)]
pub(super) struct Pruning {
    predicate: Option<Arc<dyn PhysicalExpr>>,
    table_schema: SchemaRef,
    max_in_list: usize,
    cached: Mutex<CachedPruning>,
}

#[derive(Debug, Default)]
struct CachedPruning {
    /// Generation of the predicate that `pruning` was made of; `None` if nothing was made yet.
    generation: Option<u64>,
    pruning: Option<Arc<PruningPredicate>>,
}

impl Pruning {
    pub(super) fn new(
        predicate: Option<Arc<dyn PhysicalExpr>>,
        table_schema: SchemaRef,
        max_in_list: usize,
    ) -> Self {
        Self {
            predicate,
            table_schema,
            max_in_list,
            cached: Mutex::default(),
        }
    }

    /// Returns the pruning predicate for the current state of the predicate. Returns `None` if it
    /// excludes nothing.
    pub(super) fn current(&self) -> Option<Arc<PruningPredicate>> {
        let predicate = self.predicate.as_ref()?;
        let generation = Some(snapshot_generation(predicate));
        let mut cached = self.cached.lock();
        if cached.generation != generation {
            cached.generation = generation;
            cached.pruning = PruningPredicateBuilder::new()
                .with_file_schema(Arc::clone(&self.table_schema))
                .with_max_in_list_size(self.max_in_list)
                .build(Arc::clone(predicate));
        }
        cached.pruning.clone()
    }
}

/// Returns whether the statistics allow for a row that the predicate accepts.
pub(super) fn may_match(predicate: &PruningPredicate, statistics: &impl PruningStatistics) -> bool {
    let matches = predicate.prune(statistics);
    matches.map_or(true, |matches| matches.into_iter().any(|matches| matches))
}

/// Bounds and counts of the only row group of a segment.
pub(super) struct RowGroupStatistics<'a> {
    pub(super) metadata: &'a ParquetMetaData,
    pub(super) row_group: &'a RowGroupMetaData,
    pub(super) table_schema: &'a SchemaRef,
}

impl RowGroupStatistics<'_> {
    fn with_converter<T>(
        &self,
        column: &Column,
        read: impl FnOnce(StatisticsConverter<'_>) -> parquet::errors::Result<T>,
    ) -> Option<T> {
        let parquet_schema = self.metadata.file_metadata().schema_descr();
        let converter =
            StatisticsConverter::try_new(&column.name, self.table_schema, parquet_schema);
        converter.and_then(read).ok()
    }
}

impl PruningStatistics for RowGroupStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.with_converter(column, |converter| {
            converter.row_group_mins([self.row_group])
        })
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.with_converter(column, |converter| {
            converter.row_group_maxes([self.row_group])
        })
    }

    fn num_containers(&self) -> usize {
        1
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts = self.with_converter(column, |converter| {
            converter.row_group_null_counts([self.row_group])
        });
        counts.map(|counts| Arc::new(counts) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = u64::try_from(self.row_group.num_rows()).ok()?;
        Some(Arc::new(UInt64Array::from(vec![rows])))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Returns the bloom filters of the columns that the predicate compares with values, if there are
/// any.
pub(super) fn bloom_filters(
    predicate: &PruningPredicate,
    segment: &RowGroupStatistics<'_>,
    read: impl Fn(&ColumnChunkMetaData) -> Option<Sbbf>,
) -> Option<BloomFilterStatistics> {
    let mut filters = None;
    for name in predicate.literal_columns() {
        let leaf = segment.with_converter(&Column::new_unqualified(&name), |converter| {
            Ok(converter.parquet_column_index())
        });
        let Some(column) = leaf.flatten().map(|leaf| segment.row_group.column(leaf)) else {
            continue;
        };
        if column.bloom_filter_offset().is_some()
            && let Some(filter) = read(column)
        {
            let described = column.column_descr();
            filters
                .get_or_insert_with(BloomFilterStatistics::new)
                .insert(
                    name,
                    filter,
                    described.physical_type(),
                    described.type_length(),
                );
        }
    }
    filters
}
