use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result as DfResult};
use futures::future::BoxFuture;
use volary_flight_proto::Result;

use super::column::Column;
use super::made_table::RowMaker;
use super::sources::SystemTableSources;

/// A table of the schema `system`.
pub(super) trait SystemTable: 'static {
    /// The value that a row of the table describes.
    type Row: Send + 'static;

    /// Name of the table within the schema `system`.
    const NAME: &'static str;

    /// The columns, each with the function that takes its value from a row.
    const COLUMNS: &'static [Column<Self::Row>];

    /// Returns the rows that the user may see.
    ///
    /// # Errors
    /// The errors of asking another node for the rows, if the table needs them from there.
    fn rows(sources: &SystemTableSources) -> impl Future<Output = Result<Vec<Self::Row>>> + Send;
}

/// An entry of the list of all tables. It does not show the type of the table's rows, because this
/// type differs between tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableEntry {
    pub(super) name: &'static str,
    schema: fn() -> SchemaRef,
    read: for<'a> fn(&'a SystemTableSources) -> BoxFuture<'a, Result<RecordBatch>>,
}

impl TableEntry {
    pub(super) const fn new<T: SystemTable>() -> Self {
        Self {
            name: T::NAME,
            schema: schema::<T>,
            read: |sources| Box::pin(read::<T>(sources)),
        }
    }

    pub(super) fn schema(self) -> SchemaRef {
        (self.schema)()
    }
}

fn schema<T: SystemTable>() -> SchemaRef {
    let fields: Vec<_> = T::COLUMNS.iter().map(Column::field).collect();
    Arc::new(Schema::new(fields))
}

async fn read<T: SystemTable>(sources: &SystemTableSources) -> Result<RecordBatch> {
    let rows = T::rows(sources).await?;
    let columns = T::COLUMNS.iter().map(|column| column.values(&rows));
    let batch = RecordBatch::try_new(schema::<T>(), columns.collect());
    Ok(batch.map_err(DataFusionError::from)?)
}

/// Makes the rows of a system table from their sources.
#[derive(Debug)]
pub(super) struct SystemRows {
    pub(super) table: TableEntry,
    pub(super) sources: Arc<SystemTableSources>,
}

#[async_trait]
impl RowMaker for SystemRows {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    async fn rows(&self) -> DfResult<RecordBatch> {
        Ok((self.table.read)(&self.sources).await?)
    }
}
