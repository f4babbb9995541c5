use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{CatalogProviderList, TableProvider};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::TableType;
use volary_catalog::{CatalogState, Declarations, RelationName, TEMPORARY_SCHEMA, Table};
use volary_flight_proto::ids::SessionId;
use volary_planner::table::ShardedTable;

use super::super::column::Column;
use super::super::made_table::RowMaker;

/// A table of the schema `information_schema`.
pub(super) trait InformationTable: 'static {
    /// The value that a row of the table describes.
    type Row: 'static;

    /// Name of the table within the schema.
    const NAME: &'static str;

    /// The columns, each with the function that takes its value from a row.
    const COLUMNS: &'static [Column<Self::Row>];

    /// Returns the rows that describe what is listed.
    fn rows(listed: &Listed) -> Vec<Self::Row>;
}

/// A table or view that the user may see.
pub(super) struct ListedTable {
    pub(super) catalog: String,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) comment: Option<String>,
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

    /// Returns the query of a view. Returns `None` for a table.
    pub(super) fn view_definition(&self) -> Option<&str> {
        self.provider.get_table_definition()
    }

    /// Returns the table of users. Returns `None` for a view and for a table of the system.
    pub(super) fn table(&self) -> Option<&Table> {
        let table = self.provider.downcast_ref::<ShardedTable>()?;
        Some(table.table())
    }

    /// Returns the declarations. Returns `None` for a view and for a table of the system.
    pub(super) fn declarations(&self) -> Option<&Declarations> {
        Some(self.table()?.declarations())
    }
}

/// An entry of the list of tables. It does not show the type of the table's rows, because this type
/// differs between tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct InformationTableEntry {
    pub(super) name: &'static str,
    schema: fn() -> SchemaRef,
    read: fn(&Listed) -> DfResult<RecordBatch>,
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

fn read<T: InformationTable>(listed: &Listed) -> DfResult<RecordBatch> {
    let rows = T::rows(listed);
    let columns = T::COLUMNS.iter().map(|column| column.values(&rows));
    Ok(RecordBatch::try_new(schema::<T>(), columns.collect())?)
}

/// What the tables of the schema describe.
pub(super) struct Listed {
    /// All schemas, without `information_schema`.
    pub(super) schemas: Vec<ListedSchema>,
    /// All tables and views, without those of `information_schema`.
    pub(super) tables: Vec<ListedTable>,
}

/// A schema that the user may see.
pub(super) struct ListedSchema {
    pub(super) catalog: String,
    pub(super) name: String,
    pub(super) owner: Option<String>,
    pub(super) comment: Option<String>,
}

/// Makes the rows of a table of the schema.
pub(super) struct InformationRows {
    pub(super) table: InformationTableEntry,
    pub(super) sources: Arc<InformationSources>,
}

impl fmt::Debug for InformationRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformationRows")
            .field("table", &self.table.name)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl RowMaker for InformationRows {
    fn schema(&self) -> SchemaRef {
        (self.table.schema)()
    }

    async fn rows(&self) -> DfResult<RecordBatch> {
        (self.table.read)(&self.sources.list().await?)
    }
}

/// The sources of the rows of all tables of the schema.
pub(crate) struct InformationSources {
    /// The catalogs with the schemas, tables and views that the user may see.
    pub(crate) catalogs: Arc<dyn CatalogProviderList>,
    /// The catalog as of the start of the statement, which knows the comments.
    pub(crate) state: Arc<CatalogState>,
    /// The session whose temporary tables are shown.
    pub(crate) session: Option<SessionId>,
}

impl InformationSources {
    async fn list(&self) -> DfResult<Listed> {
        let mut listed = Listed {
            schemas: Vec::new(),
            tables: Vec::new(),
        };
        for catalog in self.catalogs.catalog_names() {
            let Some(schemas) = self.catalogs.catalog(&catalog) else {
                continue;
            };
            for name in schemas.schema_names() {
                let Some(schema) = schemas.schema(&name) else {
                    continue;
                };
                listed.schemas.push(ListedSchema {
                    catalog: catalog.clone(),
                    owner: schema.owner_name().map(str::to_owned),
                    comment: self.state.schema(&name).and_then(|it| it.comment.clone()),
                    name: name.clone(),
                });
                for table in schema.table_names() {
                    if let Some(provider) = schema.table(&table).await? {
                        listed.tables.push(ListedTable {
                            catalog: catalog.clone(),
                            comment: self.comment(&name, &table),
                            schema: name.clone(),
                            name: table,
                            provider,
                        });
                    }
                }
            }
        }
        Ok(listed)
    }

    /// Returns the comment on a table or view.
    fn comment(&self, schema: &str, name: &str) -> Option<String> {
        let name = match self.session {
            Some(session) if schema == TEMPORARY_SCHEMA => RelationName::temporary(session, name),
            _ => RelationName::new(schema, name),
        };
        match self.state.table(&name) {
            Some(table) => table.declarations().comment.clone(),
            None => Some(self.state.view(&name)?.comment()?.to_owned()),
        }
    }
}
