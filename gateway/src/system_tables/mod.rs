//! Each system table has its own file, which lists its columns, each with the function that returns
//! its value. To add a table, add its file, its `mod` line and a line in `TABLES`.

/// Describes a column of a system table: its name, its type, and the function that takes its value
/// from a row.
mod column;
/// Provides tables whose rows are made when they are scanned.
mod made_table;
/// Holds the sources of the rows of system tables.
mod sources;
/// Describes a system table, and makes its rows.
mod table;

/// Provides system.grants: the privileges and roles that were granted directly.
mod grants;
/// Provides the schema `information_schema`.
mod information_schema;
/// Provides system.limits: the limits of this gateway, and how much of each is in use.
mod limits;
/// Provides system.loads: the loads that run on this gateway.
mod loads;
/// Provides system.nodes: this gateway, and all workers that have ever joined.
mod nodes;
/// Provides system.producers: the last batch of each producer of a table.
mod producers;
/// Provides system.queries: the statements that this gateway works on.
mod queries;
/// Provides system.query_log: the statements that have ended on this gateway.
mod query_log;
/// Provides system.saved_queries: the saved queries of the catalog.
mod saved_queries;
/// Provides system.schemas: the schemas of users' tables.
mod schemas;
/// Provides system.segments: the segments that the workers report when they are asked.
mod segments;
/// Provides system.shards: the shards of sharded tables, and the copies of reference tables.
mod shards;
/// Provides system.storage: what each worker stores, and what it has written for it.
mod storage;
/// Provides system.tables: the tables of the catalog.
mod tables;
/// Provides system.tokens: the tokens, without the secrets that clients show.
mod tokens;
/// Provides system.users: the users and roles.
mod users;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result as DfResult};
use volary_catalog::CatalogState;
use volary_catalog::access::Rights;
use volary_flight_proto::ids::SessionId;

use crate::cluster::Cluster;
use crate::load::LoadRegistry;
use crate::statements::Statements;

pub(crate) use information_schema::{InformationSchema, InformationSources};
pub(crate) use limits::LimitUsageSources;
pub use limits::{GatewayLimit, gateway_limits};
use made_table::MadeTable;
use sources::SystemTableSources;
use table::{SystemRows, TableEntry};

/// All tables, in the order in which they are listed.
const TABLES: &[TableEntry] = &[
    TableEntry::new::<nodes::Nodes>(),
    TableEntry::new::<tables::Tables>(),
    TableEntry::new::<shards::Shards>(),
    TableEntry::new::<segments::Segments>(),
    TableEntry::new::<storage::Storage>(),
    TableEntry::new::<loads::LoadsTable>(),
    TableEntry::new::<producers::Producers>(),
    TableEntry::new::<queries::Queries>(),
    TableEntry::new::<query_log::QueryLog>(),
    TableEntry::new::<saved_queries::SavedQueries>(),
    TableEntry::new::<schemas::Schemas>(),
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
    /// who reads the tables. The tables show only what these rights allow. `session` is the session
    /// whose temporary tables they show.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        loads: LoadRegistry,
        statements: Arc<Statements>,
        usage: Arc<LimitUsageSources>,
        catalog: Arc<CatalogState>,
        rights: Arc<Rights>,
        session: Option<SessionId>,
    ) -> Self {
        Self(Arc::new(SystemTableSources {
            cluster,
            loads,
            statements,
            usage,
            catalog,
            rights,
            session,
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
            Arc::new(MadeTable(SystemRows {
                table: *table,
                sources: Arc::clone(&self.0),
            })) as _
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}
