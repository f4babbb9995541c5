use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use volary_flight_proto::ids::WorkerId;

use super::selection::ShardSelection;
use volary_catalog::{Table, TableKind};

/// Maximum number of partitions that the planner itself may use. Shard scans declare more
/// partitions, so that nobody mistakes one kind of partitioning for the other.
pub const MAX_TARGET_PARTITIONS: usize = 1024;

/// Reads some shards of one table. It exists on the gateway only while a query is planned. The cut
/// puts it into a fragment, and a worker replaces it by a scan of its segments.
///
/// A scan of a sharded table declares that it is hash-partitioned by its shard key. The declared
/// number of partitions stands for the number of shards. It is larger than any number of partitions
/// that the planner uses itself ([`MAX_TARGET_PARTITIONS`]). This keeps the two apart: DataFusion
/// considers two hash partitionings of equal count to be the same, but its own hash function
/// differs from the shard hash. Two tables of equal shard count declare the same number, and are
/// co-located.
#[derive(Debug, Clone)]
pub(crate) struct ShardScanExec {
    table: Arc<Table>,
    projection: Vec<usize>,
    selection: ShardSelection,
    filters: Arc<[Expr]>,
    statistics_exact: bool,
    has_statistics: bool,
    late_materialisation: bool,
    properties: Arc<PlanProperties>,
}

impl ShardScanExec {
    /// Builds a scan of `table`. `filters` are the filters that the planner keeps above the scan,
    /// and `selection` follows from them. `statistics_exact` says whether the query sees exactly
    /// the rows that the catalog has counted.
    ///
    /// # Errors
    /// An error if the projection does not fit the table.
    pub(crate) fn try_new(
        table: Arc<Table>,
        projection: Vec<usize>,
        selection: ShardSelection,
        filters: Arc<[Expr]>,
        statistics_exact: bool,
    ) -> Result<Self> {
        let schema: SchemaRef = Arc::new(table.schema().project(&projection)?);
        let partitioning = match table.kind() {
            TableKind::Reference { .. } => Partitioning::UnknownPartitioning(1),
            TableKind::Sharded { key, shards } => {
                let partitions = MAX_TARGET_PARTITIONS + *shards as usize;
                match projection.iter().position(|column| Some(*column) == *key) {
                    Some(position) => {
                        let name = schema.field(position).name();
                        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, position));
                        Partitioning::Hash(vec![key], partitions)
                    }
                    None => Partitioning::UnknownPartitioning(partitions),
                }
            }
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            partitioning,
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            table,
            projection,
            selection,
            filters,
            statistics_exact,
            has_statistics: true,
            late_materialisation: false,
            properties: Arc::new(properties),
        })
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the columns of the table that are read, in output order.
    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Returns the filters above the scan, over the columns of the table.
    pub(crate) fn filters(&self) -> &[Expr] {
        &self.filters
    }

    /// Returns the same scan of other shards.
    pub(crate) fn with_selection(&self, selection: ShardSelection) -> Self {
        Self {
            selection,
            ..self.clone()
        }
    }

    /// Returns the same scan as a worker sees it, without the statistics of the catalog.
    pub(crate) fn without_statistics(&self) -> Self {
        Self {
            has_statistics: false,
            ..self.clone()
        }
    }

    /// Returns the same scan with late materialisation: it reads the columns of the filter first,
    /// and other columns only for the rows that pass.
    pub(crate) fn with_late_materialisation(&self) -> Self {
        Self {
            late_materialisation: true,
            ..self.clone()
        }
    }

    /// Returns whether columns that the filter does not use are read only for the rows that pass
    /// it.
    pub(crate) fn has_late_materialisation(&self) -> bool {
        self.late_materialisation
    }

    /// Returns whether the scan reads a reference table, of which every worker with a copy holds
    /// all rows.
    pub(crate) fn is_reference(&self) -> bool {
        matches!(self.table.kind(), TableKind::Reference { .. })
    }

    /// Returns the shards to read, ascending. A reference table has only one.
    pub(crate) fn shards(&self) -> Vec<u32> {
        match &self.selection {
            ShardSelection::All => (0..self.table.shards()).collect(),
            ShardSelection::Some(shards) => shards.iter().copied().collect(),
        }
    }

    /// Returns the workers that hold these shards. For a reference table these are all workers with
    /// a copy.
    pub(crate) fn workers(&self) -> BTreeSet<WorkerId> {
        match self.table.kind() {
            TableKind::Reference { copies } => copies.iter().copied().collect(),
            TableKind::Sharded { .. } => self
                .shards()
                .into_iter()
                .filter_map(|shard| self.table.worker_of(shard))
                .collect(),
        }
    }

    fn statistics(&self) -> Statistics {
        if !self.has_statistics {
            return Statistics::new_unknown(self.properties.eq_properties.schema());
        }
        let whole = self.table.statistics();
        let selected = match &self.selection {
            ShardSelection::All => None,
            ShardSelection::Some(shards) => Some(shards.len()),
        };
        let rows = usize::try_from(whole.rows).unwrap_or(usize::MAX);
        let num_rows = match selected {
            // The catalog also counts rows that have expired.
            None if self.statistics_exact && self.table.retention().is_none() => {
                Precision::Exact(rows)
            }
            None => Precision::Inexact(rows),
            Some(0) => Precision::Exact(0),
            Some(selected) => Precision::Inexact(
                rows.saturating_mul(selected) / self.table.shards().max(1) as usize,
            ),
        };
        // A plan that is used again may see rows that were written since. DataFusion takes the
        // column of a filter for a constant if its bounds allow a single value, even if they are
        // estimates, and then leaves out a sort by it.
        let bound = |bound: &Option<ScalarValue>| match bound {
            Some(bound) if self.statistics_exact => Precision::Inexact(bound.clone()),
            _ => Precision::Absent,
        };
        let column_statistics = self
            .projection
            .iter()
            .map(|column| match whole.columns.get(*column) {
                Some(recorded) => ColumnStatistics {
                    null_count: recorded.nulls.map_or(Precision::Absent, |nulls| {
                        Precision::Inexact(usize::try_from(nulls).unwrap_or(usize::MAX))
                    }),
                    min_value: bound(&recorded.min),
                    max_value: bound(&recorded.max),
                    ..ColumnStatistics::new_unknown()
                },
                None => ColumnStatistics::new_unknown(),
            })
            .collect();
        Statistics {
            num_rows,
            total_byte_size: Precision::Absent,
            column_statistics,
        }
    }
}

impl DisplayAs for ShardScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = self
            .projection
            .iter()
            .map(|column| self.table.schema().field(*column).name().as_str())
            .collect();
        write!(
            f,
            "ShardScanExec: table={}, columns=[{}]",
            self.table.name(),
            columns.join(", ")
        )?;
        if self.is_reference() {
            f.write_str(", reference")?;
        } else {
            write!(
                f,
                ", shards={}/{} workers={}/{}",
                self.shards().len(),
                self.table.shards(),
                self.workers().len(),
                self.table.workers().len(),
            )?;
            if let Some(key) = self.table.shard_key_name() {
                match self.selection {
                    ShardSelection::All => write!(f, " (no filter on shard key {key})")?,
                    ShardSelection::Some(_) => write!(f, " (pruned by shard key {key})")?,
                }
            }
        }
        if !self.filters.is_empty() {
            let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
            write!(f, ", filters=[{}]", filters.join(", "))?;
        }
        if let Some(retention) = self.table.retention() {
            let column = self.table.schema().field(retention.time_column).name();
            write!(f, ", retention={retention} by {column}")?;
        }
        if self.late_materialisation {
            f.write_str(", late materialisation")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for ShardScanExec {
    fn name(&self) -> &'static str {
        "ShardScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!(
            "the scan of table {} was not cut into a fragment",
            self.table.name()
        )
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(self.statistics()))
    }
}
