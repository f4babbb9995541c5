use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// Makes the rows of a table.
#[async_trait]
pub(super) trait RowMaker: fmt::Debug + Send + Sync + 'static {
    /// Returns the columns of the table.
    fn schema(&self) -> SchemaRef;

    /// Returns the rows that the user may see.
    async fn rows(&self) -> DfResult<RecordBatch>;
}

/// A table as DataFusion reads it. Its rows are made when it is scanned.
#[derive(Debug)]
pub(super) struct MadeTable<M>(pub(super) M);

#[async_trait]
impl<M: RowMaker> TableProvider for MadeTable<M> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let batch = self.0.rows().await?;
        Ok(MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            self.schema(),
            projection.cloned(),
        )?)
    }
}
