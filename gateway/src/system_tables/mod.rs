//! Provides the tables about the cluster itself, in the schema `system`.
//!
//! Each table is a file, in which each column stands beside the expression of its value. To add a
//! table, add its file, its `mod` line and a line to `TABLES`.

/// Describes a column.
mod column;
/// Holds what the rows of the tables are made from.
mod sources;
/// Describes a table, and makes its rows when it is scanned.
mod table;

mod grants;
mod limits;
mod loads;
mod nodes;
mod queries;
mod query_log;
mod saved_queries;
mod segments;
mod shards;
mod tables;
mod tokens;
mod users;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result as DfResult};
use volary_catalog::CatalogState;
use volary_catalog::access::Rights;

use crate::cluster::Cluster;
use crate::load::LoadRegistry;
use crate::statements::Statements;

pub(crate) use limits::LimitUsage;
pub use limits::{GatewayLimit, gateway_limits};
use sources::SystemTableSources;
use table::{SystemTableProvider, TableEntry};

/// All tables, in the order in which they are listed.
const TABLES: &[TableEntry] = &[
    TableEntry::new::<nodes::Nodes>(),
    TableEntry::new::<tables::Tables>(),
    TableEntry::new::<shards::Shards>(),
    TableEntry::new::<segments::Segments>(),
    TableEntry::new::<loads::LoadsTable>(),
    TableEntry::new::<queries::Queries>(),
    TableEntry::new::<query_log::QueryLog>(),
    TableEntry::new::<saved_queries::SavedQueries>(),
    TableEntry::new::<users::Users>(),
    TableEntry::new::<grants::Grants>(),
    TableEntry::new::<tokens::Tokens>(),
    TableEntry::new::<limits::LimitsTable>(),
];

/// Returns the names of the tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

/// Returns the names and the columns of the tables.
pub fn all() -> Vec<(&'static str, SchemaRef)> {
    let tables = TABLES.iter();
    tables.map(|table| (table.name, table.schema())).collect()
}

/// The schema `system`, as of one state of the catalog.
#[derive(Debug)]
pub(crate) struct SystemSchema(Arc<SystemTableSources>);

impl SystemSchema {
    /// Creates the schema from the sources of the tables' rows. `rights` are the rights of the user
    /// who reads the tables. The tables show only what these rights allow.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        loads: LoadRegistry,
        statements: Arc<Statements>,
        usage: Arc<LimitUsage>,
        catalog: Arc<CatalogState>,
        rights: Arc<Rights>,
    ) -> Self {
        Self(Arc::new(SystemTableSources {
            cluster,
            loads,
            statements,
            usage,
            catalog,
            rights,
        }))
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        names().map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let table = TABLES.iter().find(|table| table.name == name);
        Ok(table.map(|table| {
            Arc::new(SystemTableProvider {
                table: *table,
                sources: Arc::clone(&self.0),
            }) as _
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}
