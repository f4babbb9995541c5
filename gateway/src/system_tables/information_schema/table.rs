use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{CatalogProviderList, Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use volary_catalog::Declarations;
use volary_planner::table::ShardedTable;

use super::super::column::Column;
use crate::sql::names::INFORMATION_SCHEMA;

/// A table of the schema `information_schema`.
pub(super) trait InformationTable: 'static {
    /// The value that a row of the table describes.
    type Row: 'static;

    /// Name of the table within the schema.
    const NAME: &'static str;

    /// The columns, each with the function that takes its value from a row.
    const COLUMNS: &'static [Column<Self::Row>];

    /// Returns the rows that describe these tables.
    fn rows(listed: &[ListedTable]) -> Vec<Self::Row>;
}

/// A table or view that the user may see.
pub(super) struct ListedTable {
    pub(super) catalog: String,
    pub(super) schema: String,
    pub(super) name: String,
    provider: Arc<dyn TableProvider>,
}

impl ListedTable {
    /// Returns the columns.
    pub(super) fn columns(&self) -> SchemaRef {
        self.provider.schema()
    }

    /// Returns whether this is a table or a view.
    pub(super) fn table_type(&self) -> TableType {
        self.provider.table_type()
    }

    /// Returns the declarations. Returns `None` for a view and for a table of the system.
    pub(super) fn declarations(&self) -> Option<&Declarations> {
        let table = self.provider.downcast_ref::<ShardedTable>()?;
        Some(table.table().declarations())
    }
}

/// An entry of the list of tables. It does not show the type of the table's rows, because this type
/// differs between tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct InformationTableEntry {
    pub(super) name: &'static str,
    schema: fn() -> SchemaRef,
    read: fn(&[ListedTable]) -> DfResult<RecordBatch>,
}

impl InformationTableEntry {
    pub(super) const fn new<T: InformationTable>() -> Self {
        Self {
            name: T::NAME,
            schema: schema::<T>,
            read: read::<T>,
        }
    }
}

fn schema<T: InformationTable>() -> SchemaRef {
    let fields: Vec<_> = T::COLUMNS.iter().map(Column::field).collect();
    Arc::new(Schema::new(fields))
}

fn read<T: InformationTable>(listed: &[ListedTable]) -> DfResult<RecordBatch> {
    let rows = T::rows(listed);
    let columns = T::COLUMNS.iter().map(|column| column.values(&rows));
    Ok(RecordBatch::try_new(schema::<T>(), columns.collect())?)
}

/// A table as DataFusion reads it. Its rows are made when it is scanned.
pub(super) struct InformationTableProvider {
    pub(super) table: InformationTableEntry,
    pub(super) catalogs: Arc<dyn CatalogProviderList>,
}

impl fmt::Debug for InformationTableProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformationTableProvider")
            .field("table", &self.table.name)
            .finish_non_exhaustive()
    }
}

impl InformationTableProvider {
    /// Returns all tables and views, except those of `information_schema`.
    async fn listed_tables(&self) -> DfResult<Vec<ListedTable>> {
        let mut listed = Vec::new();
        for catalog in self.catalogs.catalog_names() {
            let Some(schemas) = self.catalogs.catalog(&catalog) else {
                continue;
            };
            for schema in schemas.schema_names() {
                let Some(tables) = schemas
                    .schema(&schema)
                    .filter(|_| schema != INFORMATION_SCHEMA)
                else {
                    continue;
                };
                for name in tables.table_names() {
                    if let Some(provider) = tables.table(&name).await? {
                        listed.push(ListedTable {
                            catalog: catalog.clone(),
                            schema: schema.clone(),
                            name,
                            provider,
                        });
                    }
                }
            }
        }
        Ok(listed)
    }
}

#[async_trait]
impl TableProvider for InformationTableProvider {
    fn schema(&self) -> SchemaRef {
        (self.table.schema)()
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
        let batch = (self.table.read)(&self.listed_tables().await?)?;
        Ok(MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            self.schema(),
            projection.cloned(),
        )?)
    }
}
