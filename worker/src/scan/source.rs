use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr_common::physical_expr::PhysicalExpr;
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::ObjectStore;

use super::decoded::DecodedSegments;
use super::small::{DecodedRows, OpenedSegment, ScanRequest, SegmentRows, SmallSegments};
use crate::segment::SegmentReaders;

/// A Parquet source that reads small segments by itself. It leaves large segments and all planning
/// to DataFusion's Parquet source.
#[derive(Clone)]
pub(crate) struct SegmentSource {
    parquet: Arc<dyn FileSource>,
    readers: Arc<SegmentReaders>,
    decoded: Arc<DecodedSegments>,
    batch_rows: usize,
}

impl SegmentSource {
    /// Builds the source over DataFusion's Parquet source, which reads with `readers`. `decoded`
    /// keeps the rows of tiny segments.
    pub(crate) fn new(
        parquet: ParquetSource,
        readers: Arc<SegmentReaders>,
        decoded: Arc<DecodedSegments>,
    ) -> Self {
        Self {
            parquet: Arc::new(parquet),
            readers,
            decoded,
            batch_rows: usize::MAX,
        }
    }

    fn with_parquet(&self, parquet: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self {
            parquet,
            ..self.clone()
        })
    }

    fn small_segments(&self, partition: usize) -> Result<Option<SmallSegments>> {
        let Some(parquet) = self.parquet.downcast_ref::<ParquetSource>() else {
            return Ok(None);
        };
        let Some(projection) = parquet.projection() else {
            return Ok(None);
        };
        let options = &parquet.table_parquet_options().global;
        let request = ScanRequest {
            table_schema: Arc::clone(parquet.table_schema().table_schema()),
            projection,
            predicate: parquet.filter(),
            must_filter_rows: options.pushdown_filters,
            max_in_list: parquet.max_in_list_size(),
            batch_rows: self.batch_rows,
        };
        let (readers, decoded) = (Arc::clone(&self.readers), Arc::clone(&self.decoded));
        SmallSegments::new(request, readers, decoded, parquet.metrics(), partition).map(Some)
    }
}

impl FileSource for SegmentSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.parquet.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let large = self.parquet.create_morselizer(store, config, partition)?;
        Ok(Box::new(SegmentMorselizer {
            small: self.small_segments(partition)?.map(Arc::new),
            large: Arc::from(large),
        }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.parquet.table_schema()
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        Arc::new(Self {
            parquet: self.parquet.with_batch_size(batch_rows),
            batch_rows,
            ..self.clone()
        })
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.parquet.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.parquet.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.parquet.metrics()
    }

    fn file_type(&self) -> &str {
        self.parquet.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parquet.fmt_extra(format, f)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let pushed = self.parquet.try_pushdown_filters(filters, config)?;
        Ok(FilterPushdownPropagation {
            filters: pushed.filters,
            updated_node: pushed
                .updated_node
                .map(|parquet| self.with_parquet(parquet)),
        })
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let pushed = self.parquet.try_pushdown_projection(projection)?;
        Ok(pushed.map(|parquet| self.with_parquet(parquet)))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.parquet.apply_expressions(visit)
    }
}

/// Plans how each segment of a partition is read.
#[derive(Debug)]
struct SegmentMorselizer {
    small: Option<Arc<SmallSegments>>,
    large: Arc<dyn Morselizer>,
}

impl Morselizer for SegmentMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        match &self.small {
            Some(small) => Ok(Box::new(SegmentPlanner {
                small: Arc::clone(small),
                large: Arc::clone(&self.large),
                file,
            })),
            None => self.large.plan_file(file),
        }
    }
}

/// Plans one segment, which was not looked at yet.
#[derive(Debug)]
struct SegmentPlanner {
    small: Arc<SmallSegments>,
    large: Arc<dyn Morselizer>,
    file: PartitionedFile,
}

impl MorselPlanner for SegmentPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        // A range of a file is left to DataFusion's source.
        let segment = match &self.file.range {
            None => self.small.open(&self.file)?,
            Some(_) => OpenedSegment::Large,
        };
        Ok(match segment {
            OpenedSegment::Excluded {
                should_yield: false,
            } => None,
            OpenedSegment::Excluded { should_yield: true } => {
                let yielding = async {
                    tokio::task::yield_now().await;
                    Ok(Box::new(EmptyPlanner) as Box<dyn MorselPlanner>)
                };
                Some(MorselPlan::new().with_pending_planner(yielding))
            }
            OpenedSegment::Rows(rows) => {
                Some(MorselPlan::new().with_morsels(vec![Box::new(SmallSegmentMorsel(rows))]))
            }
            OpenedSegment::Decoded(rows) => {
                Some(MorselPlan::new().with_morsels(vec![Box::new(DecodedMorsel(rows))]))
            }
            OpenedSegment::Large => {
                let planner = self.large.plan_file(self.file)?;
                Some(MorselPlan::new().with_planners(vec![planner]))
            }
        })
    }
}

/// Plans nothing, for a segment without matching rows.
#[derive(Debug)]
struct EmptyPlanner;

impl MorselPlanner for EmptyPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        Ok(None)
    }
}

/// Rows that are in memory.
#[derive(Debug)]
struct DecodedMorsel(DecodedRows);

impl Morsel for DecodedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        futures::stream::iter(self.0).boxed()
    }
}

/// The rows of a small segment.
#[derive(Debug)]
struct SmallSegmentMorsel(SegmentRows);

impl Morsel for SmallSegmentMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        futures::stream::iter(self.0).boxed()
    }
}
