//! From a statement to rows.
//!
//! [`parse`](crate::sql::parse) takes the statement apart, [`context`] gives DataFusion the catalog's tables as of one snapshot, and
//! [`statement`] plans and runs what came out. Queries are started by [`query`], within the limits of the gateway.

/// Who may do what.
mod access;
/// What all statements share: functions, rules, settings, memory.
mod base;
/// The columns of the rows that a statement returns.
mod columns;
/// DataFusion's session for one statement: tables, settings, rules.
pub mod context;
/// CREATE, DROP, views.
mod definition;
/// Errors as users read them.
mod errors;
/// Where statements wait until they may run.
mod gate;
/// Statements that come again and again.
mod generic;
/// Rows as clients send them.
mod ingest;
/// INSERT with many rows of parameters.
mod insert_each;
/// Which queries only list what the gateway knows.
mod listing;
/// Functions that put types together.
mod made_types;
/// Parameters: binding and casting.
mod parameters;
/// A planned query, and the stream of its rows.
pub mod query;
/// Queries with parameters that the catalog keeps.
mod saved_query;
/// Sessions and their settings.
pub mod session;
/// SET, RESET and SHOW.
pub mod settings;
/// Planning and running one statement.
mod statement;
/// BEGIN, COMMIT and ROLLBACK.
mod transaction;
/// Functions that read a type from a text.
mod type_texts;
/// Values of an INSERT that do not fit.
mod unfit_values;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use volary_flight_proto::Result;
use volary_node::unfinished::Unfinished;
use volary_node::{Runtimes, memory};

pub(crate) use gate::Gate;
pub use ingest::{IfTableExists, IncomingRows, Ingest};
pub use insert_each::Each;
pub use query::{Planned, Query};
pub use session::{Caller, Session};
use volary_catalog::Catalog;
use volary_catalog::access::{Access, Rights};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::load::{self, Loads};
use crate::login::Passwords;
use crate::statements::Statements;
use crate::system_tables::{self, Usage};

use crate::sql::names::{CATALOG, PUBLIC, SYSTEM};
use generic::GenericPlans;

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
    Rows(Box<Query>),
    /// The statement was run. So many rows were written; `None` where rows are no measure (DDL, SET).
    Done(Option<u64>),
    /// The statement was run, and answers this.
    Answer(RecordBatch),
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
    statements: Arc<Statements>,
    /// How much of the limits is in use.
    usage: Arc<Usage>,
    passwords: Arc<Passwords>,
    gate: Gate,
    memory: memory::PerQuery,
    loads: Loads,
    generic_plans: GenericPlans,
    /// Functions, rules and settings that all statements share.
    base: SessionState,
}

impl Engine {
    /// Over the catalog's tables and the cluster's workers. `passwords`: those that users log in with.
    ///
    /// # Errors
    /// If DataFusion takes no functions.
    pub fn new(
        config: Arc<Config>,
        catalog: Catalog,
        cluster: Arc<Cluster>,
        runtimes: Runtimes,
        runtime_env: Arc<RuntimeEnv>,
        passwords: Arc<Passwords>,
    ) -> Result<Self> {
        let statements = Arc::new(Statements::new(config.query.history));
        let gate = Gate::new(&config.query);
        let usage = Usage {
            config: Arc::clone(&config),
            places: gate.places(),
            kept_places: gate.kept_places(),
            unfinished: config.query.unfinished(),
        };
        Ok(Self {
            base: base::base_state(&config, Arc::clone(&runtime_env))?,
            memory: memory::PerQuery::new(runtime_env, config.memory_limit()),
            gate,
            usage: Arc::new(usage),
            statements,
            passwords,
            loads: Loads::default(),
            generic_plans: GenericPlans::new(config.query.generic_plans.bytes()),
            config,
            catalog,
            cluster,
            runtimes,
        })
    }

    /// What it works on, and has worked on.
    pub fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// The memory of messages that are not whole yet.
    pub(crate) fn unfinished(&self) -> &Unfinished {
        &self.usage.unfinished
    }

    /// Whether what a query reads may still be read by whom it was planned for.
    pub fn is_allowed_still(&self, query: &Query) -> bool {
        Arc::ptr_eq(&query.access, &self.access())
    }

    /// Refuses a query that was planned before something that it reads was dropped or created anew.
    ///
    /// # Errors
    /// `NOT_FOUND`, with the name.
    pub fn refuse_changes(&self, reads: &BTreeMap<String, u64>) -> Result<()> {
        self.catalog.state().refuse_changes(reads)
    }

    /// Who may do what.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(self.catalog.state().access())
    }

    /// The tables and views that somebody with these rights may list, with their schemas (DataFusion's own types).
    pub fn tables(&self, rights: &Rights) -> Vec<TableListing> {
        let state = self.catalog.state();
        let listing =
            |schema_name: &str, name: &str, table_type, columns: &SchemaRef| TableListing {
                catalog: CATALOG.to_owned(),
                schema_name: schema_name.to_owned(),
                name: name.to_owned(),
                table_type,
                columns: Arc::clone(columns),
            };
        let tables = state.tables();
        let tables = tables.filter(|table| rights.sees(table.name(), table.owner()));
        let tables = tables.map(|table| {
            let table_type = if table.is_reference() {
                "REFERENCE TABLE"
            } else {
                "TABLE"
            };
            listing(PUBLIC, table.name(), table_type, table.schema())
        });
        let views = state
            .views()
            .filter(|view| !view.is_query() && rights.sees(view.name(), view.owner()))
            .map(|view| listing(PUBLIC, view.name(), "VIEW", view.schema()));
        let system = system_tables::all()
            .into_iter()
            .map(|(name, columns)| listing(SYSTEM, name, "SYSTEM TABLE", &columns));
        tables.chain(views).chain(system).collect()
    }

    fn load_parts(&self) -> load::Parts {
        load::Parts {
            catalog: self.catalog.clone(),
            cluster: Arc::clone(&self.cluster),
            runtimes: self.runtimes.clone(),
            loads: self.loads.clone(),
            statements: Arc::clone(&self.statements),
            config: Arc::clone(&self.config),
        }
    }
}
