//! The leaf: rows of some shards of a table.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics, internal_err};
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

use super::selection::Selection;
use volary_catalog::{Table, TableKind};

/// The planner's partition numbers for shard scans start above it, so that the two can never be mistaken for each other.
pub const MAX_TARGET_PARTITIONS: usize = 1024;

/// Reads some shards of one table. It exists on the gateway only while a query is planned: the cut puts it into a
/// fragment, and a worker binds it to its segments.
///
/// A scan of a sharded table declares to be hash-partitioned by its shard key. The number of partitions it declares stands for the
/// number of shards, and is larger than any number that the planner partitions by itself
/// ([`MAX_TARGET_PARTITIONS`]): DataFusion takes two hash partitionings of equal count for equal, and its own hash
/// function is another one. Two tables of equal shard count declare the same number, and are co-located.
#[derive(Debug, Clone)]
pub struct ShardScanExec {
    table: Arc<Table>,
    projection: Vec<usize>,
    selection: Selection,
    filters: Arc<[Expr]>,
    statistics_exact: bool,
    has_statistics: bool,
    late_materialisation: bool,
    properties: Arc<PlanProperties>,
}

impl ShardScanExec {
    /// A scan of `table`. `filters` are those that the planner keeps above it, which `selection` follows from. `statistics_exact` says whether the
    /// query sees exactly the rows that the catalog has counted.
    ///
    /// # Errors
    /// If the projection is not one of the table's.
    pub fn try_new(
        table: Arc<Table>,
        projection: Vec<usize>,
        selection: Selection,
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

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Columns of the table, in output order.
    pub fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// The filters above it, over the table's columns.
    pub fn filters(&self) -> &[Expr] {
        &self.filters
    }

    /// The same, of other shards.
    pub fn with_selection(&self, selection: Selection) -> Self {
        Self {
            selection,
            ..self.clone()
        }
    }

    /// The same, as a worker sees it: without what the catalog knows of the rows.
    pub fn without_statistics(&self) -> Self {
        Self {
            has_statistics: false,
            ..self.clone()
        }
    }

    /// The same, reading the filter's columns first, and the others only for rows that pass.
    pub fn with_late_materialisation(&self) -> Self {
        Self {
            late_materialisation: true,
            ..self.clone()
        }
    }

    /// Whether other columns than the filter's are read only for rows that pass it.
    pub fn has_late_materialisation(&self) -> bool {
        self.late_materialisation
    }

    /// Whether every worker that has a copy holds all rows.
    pub fn is_reference(&self) -> bool {
        matches!(self.table.kind(), TableKind::Reference { .. })
    }

    /// The shards to read, ascending; of a reference table the only one.
    pub fn shards(&self) -> Vec<u32> {
        match &self.selection {
            Selection::All => (0..self.table.shards()).collect(),
            Selection::Some(shards) => shards.iter().copied().collect(),
        }
    }

    /// The workers that hold these shards; of a reference table all that have a copy.
    pub fn workers(&self) -> BTreeSet<WorkerId> {
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
            Selection::All => None,
            Selection::Some(shards) => Some(shards.len()),
        };
        let rows = usize::try_from(whole.rows).unwrap_or(usize::MAX);
        let num_rows = match selected {
            None if self.statistics_exact => Precision::Exact(rows),
            None => Precision::Inexact(rows),
            Some(0) => Precision::Exact(0),
            Some(selected) => Precision::Inexact(
                rows.saturating_mul(selected) / self.table.shards().max(1) as usize,
            ),
        };
        let column_statistics = self
            .projection
            .iter()
            .map(|column| match whole.columns.get(*column) {
                Some(known) => ColumnStatistics {
                    null_count: known.nulls.map_or(Precision::Absent, |nulls| {
                        Precision::Inexact(usize::try_from(nulls).unwrap_or(usize::MAX))
                    }),
                    min_value: known
                        .min
                        .clone()
                        .map_or(Precision::Absent, Precision::Inexact),
                    max_value: known
                        .max
                        .clone()
                        .map_or(Precision::Absent, Precision::Inexact),
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
                    Selection::All => write!(f, " (no filter on shard key {key})")?,
                    Selection::Some(_) => write!(f, " (pruned by shard key {key})")?,
                }
            }
        }
        if !self.filters.is_empty() {
            let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
            write!(f, ", filters=[{}]", filters.join(", "))?;
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
