//! From a statement to rows.
//!
//! [`parse`] takes the statement apart, [`context`] gives DataFusion the catalog's tables as of one snapshot, and
//! [`statement`] plans and runs what came out. Queries are started by [`query`], within the limits of the gateway.

/// How often the parser would go back.
mod backtracking;
/// DataFusion's session for one statement: tables, settings, rules.
pub mod context;
/// CREATE, DROP, views.
mod definition;
/// Errors as users read them.
mod errors;
/// How deep a statement's syntax tree is.
mod nesting;
/// Parameters: binding and casting.
mod parameters;
/// From text to a statement.
pub mod parse;
/// A planned query, and the stream of its rows.
pub mod query;
/// Sessions and their settings.
pub mod session;
/// SET and RESET.
mod settings;
/// Planning and running one statement.
mod statement;

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use tracing::Instrument;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_node::Runtimes;
use volary_node::admission::Admission;

pub use query::Query;
pub use session::Session;

use crate::catalog::Catalog;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::load::Loads;
use crate::system_tables;

/// What a statement is, without running it.
#[derive(Debug, Clone)]
pub struct Description {
    /// The result's columns (DataFusion's own types); `None` for a statement that returns no rows (DDL, DML, COPY, SET).
    pub rows: Option<SchemaRef>,
    /// The type of each parameter by position; `None` where it cannot be inferred.
    pub parameters: Vec<Option<DataType>>,
}

/// What became of a statement.
#[derive(Debug)]
pub enum Outcome {
    /// A query that is planned and can be started.
    Rows(Query),
    /// The statement was run. So many rows were written; `None` where rows are no measure (DDL, SET).
    Done(Option<u64>),
}

/// A table or view as Flight SQL lists it.
#[derive(Debug, Clone)]
pub struct TableListing {
    /// `volary`
    pub catalog: String,
    /// `public`, `system` or `information_schema`
    pub schema_name: String,
    /// Its name.
    pub name: String,
    /// `TABLE`, `REFERENCE TABLE`, `VIEW` or `SYSTEM TABLE`
    pub table_type: &'static str,
    /// Its columns.
    pub columns: SchemaRef,
}

/// From a statement to rows.
#[derive(Debug)]
pub struct Engine {
    config: Arc<Config>,
    catalog: Catalog,
    cluster: Arc<Cluster>,
    runtimes: Runtimes,
    admission: Arc<Admission>,
    loads: Loads,
    /// Functions, rules and settings that all statements share.
    base: SessionState,
}

impl Engine {
    /// Over the catalog's tables and the cluster's workers.
    pub fn new(
        config: Arc<Config>,
        catalog: Catalog,
        cluster: Arc<Cluster>,
        runtimes: Runtimes,
        runtime_env: Arc<RuntimeEnv>,
    ) -> Self {
        let admission = Admission::new(
            "statements",
            config.query.max_running,
            config.query.max_waiting,
        );
        Self {
            base: context::base_state(&config, runtime_env),
            admission: Arc::new(admission),
            loads: Loads::default(),
            config,
            catalog,
            cluster,
            runtimes,
        }
    }

    /// Parses and plans `sql` without running it. `?` and `$n` are parameters; `parameters` are the values for them, if they are
    /// known. `query_id`: see [`Self::execute`].
    ///
    /// # Errors
    /// Those of the statement.
    pub async fn describe(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        parameters: Option<RecordBatch>,
        query_id: QueryId,
    ) -> Result<Description> {
        let (engine, session, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        let work = async move {
            Box::pin(statement::describe(
                &engine, &session, &sql, parameters, query_id,
            ))
            .await
        };
        self.runtimes.on_cpu(work.in_current_span()).await
    }

    /// Plans a query; runs any other statement once. `parameters`: one row, a column a parameter, by position; columns are
    /// cast to the types that the statement wants. `query_id`: what workers and logs call it; the caller says it in errors, as they
    /// may come before anything is planned.
    ///
    /// # Errors
    /// Those of the statement.
    pub async fn execute(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        parameters: Option<RecordBatch>,
        query_id: QueryId,
    ) -> Result<Outcome> {
        let (engine, session, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        let work = async move {
            Box::pin(statement::execute(
                &engine, &session, &sql, parameters, query_id,
            ))
            .await
        };
        self.runtimes.on_cpu(work.in_current_span()).await
    }

    /// Plans a query that was planned before, as its ticket says: it keeps its id, which its client and the logs know, and sees
    /// the same rows. `parameters`: see [`Self::execute`].
    ///
    /// # Errors
    /// Those of the statement; `INTERNAL`, and nothing is run, if it is no query.
    pub async fn plan_again(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        parameters: Option<RecordBatch>,
        query_id: QueryId,
        snapshot: Option<Snapshot>,
    ) -> Result<Query> {
        let (engine, session, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        let work = async move {
            Box::pin(statement::plan_again(
                &engine, &session, &sql, parameters, query_id, snapshot,
            ))
            .await
        };
        self.runtimes.on_cpu(work.in_current_span()).await
    }

    /// The workers.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Loads that run.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The tables and views that a client may list, with their schemas (DataFusion's own types).
    pub fn tables(&self) -> Vec<TableListing> {
        let state = self.catalog.state();
        let listing =
            |schema_name: &str, name: &str, table_type, columns: &SchemaRef| TableListing {
                catalog: context::CATALOG.to_owned(),
                schema_name: schema_name.to_owned(),
                name: name.to_owned(),
                table_type,
                columns: Arc::clone(columns),
            };
        let tables = state.tables().map(|table| {
            let table_type = if table.is_reference() {
                "REFERENCE TABLE"
            } else {
                "TABLE"
            };
            listing(context::PUBLIC, table.name(), table_type, table.schema())
        });
        let views = state
            .views()
            .map(|view| listing(context::PUBLIC, view.name(), "VIEW", view.schema()));
        let system = system_tables::all()
            .into_iter()
            .map(|(name, columns)| listing(context::SYSTEM, name, "SYSTEM TABLE", &columns));
        tables.chain(views).chain(system).collect()
    }
}
