//! Provides the tables about the cluster itself, in the schema `system`.

/// Makes the rows of the tables about users, grants and tokens.
mod access;
/// Lists the tables and their columns.
mod kind;
/// Makes the rows of system.limits.
mod limits;
/// Makes the rows of the tables about statements.
mod queries;
/// Makes the rows of tables for which the gateway asks no other node.
mod rows;
/// Makes the rows of system.saved_queries.
mod saved_queries;
/// Makes the rows of system.segments, for which the gateway asks the workers.
mod segments;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use volary_catalog::State;
use volary_catalog::access::Rights;

use crate::cluster::Cluster;
use crate::load::Loads;
use crate::statements::Statements;

use kind::{KINDS, Kind};
pub use limits::{Limit, Usage, limits_of};

/// Returns the names of the tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(Kind::name)
}

/// Returns the names and the columns of the tables.
pub fn all() -> Vec<(&'static str, SchemaRef)> {
    KINDS
        .into_iter()
        .map(|kind| (kind.name(), kind.schema()))
        .collect()
}

/// The schema `system`, as of one state of the catalog.
#[derive(Debug)]
pub struct SystemSchema {
    cluster: Arc<Cluster>,
    loads: Loads,
    statements: Arc<Statements>,
    usage: Arc<Usage>,
    catalog: Arc<State>,
    rights: Arc<Rights>,
}

impl SystemSchema {
    /// Creates the schema from the sources of the tables' rows. `rights` are the rights of the user
    /// who reads the tables. The tables show only what these rights allow.
    pub fn new(
        cluster: Arc<Cluster>,
        loads: Loads,
        statements: Arc<Statements>,
        usage: Arc<Usage>,
        catalog: Arc<State>,
        rights: Arc<Rights>,
    ) -> Self {
        Self {
            cluster,
            loads,
            statements,
            usage,
            catalog,
            rights,
        }
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        names().map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let kind = KINDS.into_iter().find(|kind| kind.name() == name);
        Ok(kind.map(|kind| {
            Arc::new(SystemTable {
                kind,
                cluster: Arc::clone(&self.cluster),
                loads: self.loads.clone(),
                statements: Arc::clone(&self.statements),
                usage: Arc::clone(&self.usage),
                catalog: Arc::clone(&self.catalog),
                rights: Arc::clone(&self.rights),
            }) as _
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}

/// A table of the schema. Its rows are made when it is scanned.
#[derive(Debug)]
struct SystemTable {
    kind: Kind,
    cluster: Arc<Cluster>,
    loads: Loads,
    statements: Arc<Statements>,
    usage: Arc<Usage>,
    catalog: Arc<State>,
    rights: Arc<Rights>,
}

impl SystemTable {
    async fn rows(&self) -> DfResult<RecordBatch> {
        Ok(match self.kind {
            Kind::Nodes => rows::nodes(&self.cluster, self.statements.memory_bytes())?,
            Kind::Tables => rows::tables(&self.catalog, &self.rights)?,
            Kind::Shards => rows::shards(&self.catalog, &self.rights)?,
            Kind::Segments => segments::rows(&self.catalog, &self.cluster, &self.rights).await?,
            Kind::Loads => rows::loads(&self.loads, &self.catalog, &self.rights)?,
            Kind::Queries => queries::queries(&self.statements, &self.rights)?,
            Kind::QueryLog => queries::query_log(&self.statements, &self.rights)?,
            Kind::Limits => limits::rows(
                &self.usage,
                &self.statements,
                self.catalog.access(),
                &self.rights,
            )?,
            Kind::SavedQueries => saved_queries::rows(&self.catalog, &self.rights)?,
            Kind::Users => access::users(self.catalog.access(), &self.rights)?,
            Kind::Grants => access::grants(self.catalog.access(), &self.rights)?,
            Kind::Tokens => access::tokens(self.catalog.access(), &self.rights)?,
        })
    }
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.kind.schema()
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
        let batch = self.rows().await?;
        Ok(MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            self.kind.schema(),
            projection.cloned(),
        )?)
    }
}
