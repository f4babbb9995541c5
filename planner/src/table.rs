use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::fragment::{ShardScanExec, ShardSelection};
use crate::pruning::{self, ShardKey};
use volary_catalog::{Table, TableKind};

/// A table within one query.
#[derive(Debug)]
pub struct ShardedTable {
    table: Arc<Table>,
    statistics_exact: bool,
}

impl ShardedTable {
    /// Creates the table. `statistics_exact` says whether the query sees exactly the rows that the
    /// catalog has counted.
    pub fn new(table: Arc<Table>, statistics_exact: bool) -> Self {
        Self {
            table,
            statistics_exact,
        }
    }

    /// Returns the same table with inexact statistics and without the bounds of columns, for a plan
    /// that is also used when the rows have changed.
    #[must_use]
    pub fn with_inexact_statistics(&self) -> Self {
        Self::new(Arc::clone(&self.table), false)
    }

    /// Returns the table of the catalog.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

/// Returns the shards of a table that can hold rows for which all `filters` are true.
pub(crate) fn select_shards(table: &Table, filters: &[Expr]) -> ShardSelection {
    match table.kind() {
        TableKind::Reference { .. } | TableKind::Sharded { key: None, .. } => ShardSelection::All,
        TableKind::Sharded {
            key: Some(key),
            shards,
        } => {
            let field = table.schema().field(*key);
            let key = ShardKey {
                column: field.name(),
                data_type: field.data_type(),
                shards: *shards,
            };
            pruning::select_shards(key, filters)
        }
    }
}

#[async_trait]
impl TableProvider for ShardedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.table.schema())
    }

    fn table_type(&self) -> TableType {
        match self.table.name().is_temporary() {
            true => TableType::Temporary,
            false => TableType::Base,
        }
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.table.schema().fields().len()).collect(),
        };
        Ok(Arc::new(ShardScanExec::try_new(
            Arc::clone(&self.table),
            projection,
            select_shards(&self.table, filters),
            filters.into(),
            self.statistics_exact,
        )?))
    }

    /// Returns `Inexact` for all filters. The planner then passes every filter to the scan, for
    /// pruning, and also keeps it in a `FilterExec`. The `FilterExec` goes to the workers with the
    /// fragment, where it is pushed into the Parquet reader.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
