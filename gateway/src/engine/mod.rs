//! A statement is parsed by [`parse`](crate::sql::parse). [`context`] gives DataFusion the
//! catalog's tables as of one snapshot. [`statement`] plans and runs the parsed statement.
//! [`query`] starts queries within the limits of the gateway.

/// Runs statements about users, roles, grants and tokens.
mod access;
/// Builds the functions, rules, settings and memory that all statements share.
mod base;
/// Recognises statements that a client sends again by the ids that it has given to them.
pub(crate) mod batch_id;
/// Sets up DataFusion's session for one statement: tables, settings and rules.
pub mod context;
/// Keeps what tables declare: defaults, constraints and comments.
mod declarations;
/// Runs CREATE and DROP of tables, and CREATE VIEW.
mod definition;
/// Lets workers delete the files of dropped tables.
mod delete_files;
/// Keeps what describing a statement has made, for the calls that run it.
mod described_statements;
/// Describes statements that return rows.
mod description;
/// Turns DataFusion's errors into errors for users.
mod errors;
/// Gives the parameters in the frames of windows their values.
mod frame_parameters;
/// Keeps generic plans for statements that are run repeatedly.
mod generic;
/// Represents rows that a client sends while they are written.
mod incoming_rows;
/// Writes rows that a client sends as Arrow batches, and creates their table if needed.
mod ingest;
/// Writes batches that a client sends one after another, each as a write of its own.
pub(crate) mod ingest_stream;
/// Runs an INSERT of VALUES with many rows of parameters as one write: all of its rows are kept, or
/// none.
mod insert_each;
/// Says which logical plans may be kept for later statements, and for how long they hold.
mod kept_plan;
/// Recognises queries that only list rows of one system table.
mod listing;
/// Parses statements and makes their logical plans.
mod logical_plan;
/// Looks up the rows of keys, batch by batch.
pub(crate) mod lookup_stream;
/// Limits the functions that build nested types.
mod nested_types;
/// Parses statements, and notes how long that takes.
mod noted_parse;
/// Runs OPTIMIZE.
mod optimize;
/// Defines the outcomes of statements, and records them in the session and the list of statements.
mod outcome;
/// Gives types to parameters of functions that need types to be planned.
mod parameter_planner;
/// Tells the types of parameters by their places.
mod parameter_types;
/// Binds and casts parameters.
mod parameters;
/// Limits the functions that read a type from a text, such as `arrow_cast(1, 'List(Int64)')`.
mod parsed_types;
/// Makes the physical plans of statements that return rows.
mod plan_query;
/// Says what producers have written.
mod producers;
/// Represents a planned query and the stream of its rows.
pub mod query;
/// Determines the columns of the rows that a statement returns.
mod result_columns;
/// Runs CREATE QUERY and DROP QUERY.
mod saved_query;
/// Runs CREATE SCHEMA and DROP SCHEMA, and changes the current schema of a session.
mod schemas;
/// Represents clients' sessions with their settings.
pub mod session;
/// Knows when a session was last used, and whether it was closed.
mod session_life;
/// Applies the settings of SET, RESET and SHOW.
pub mod settings;
/// Plans and runs one statement.
mod statement;
/// Identifies a statement together with everything that decides how it is planned.
mod statement_key;
/// Lets statements wait until they may run.
mod statement_queue;
/// Creates temporary tables of sessions, and drops them when their sessions end.
mod temporary;
/// Handles BEGIN, COMMIT and ROLLBACK.
mod transaction;
/// Finds the values of an INSERT that do not fit their columns.
mod unfit_values;
/// Shows DataFusion the schemas with their tables and views.
mod user_schemas;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use volary_flight_proto::Result;
use volary_flight_proto::ids::SessionId;
use volary_node::message_budget::MessageBudget;
use volary_node::{Runtimes, memory};

pub use incoming_rows::IncomingRows;
pub use ingest::{IfTableExists, IngestTarget};
pub(crate) use insert_each::InsertEachOutcome;
pub use outcome::{Completion, StatementOutcome};
pub(crate) use query::{EarlierPlan, PlannedQuery};
pub use session::{Caller, Session};
pub(crate) use statement_queue::StatementQueue;
use volary_catalog::access::Access;
use volary_catalog::{Catalog, RelationName, Table};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::load::group::Groups;
use crate::load::ingest_streams::IngestStreams;
use crate::load::leases::ProducerLeases;
use crate::load::statement_batch::StatementBatch;
use crate::load::{self, LoadRegistry};
use crate::login::Passwords;
use crate::lookup::streams::LookupStreams;
use crate::statements::Statements;
use crate::system_tables::{self, LimitUsageSources};

use crate::sql::names::{CATALOG, SYSTEM};
use context::StatementContext;
use described_statements::DescribedStatements;
use generic::GenericPlans;
use temporary::TemporarySessions;

/// The key of a column's comment in Flight SQL's metadata.
const REMARKS: &str = "ARROW:FLIGHT:SQL:REMARKS";

/// The columns and parameters of a statement, found without running it.
#[derive(Debug, Clone)]
pub struct StatementDescription {
    /// The columns of the result, in DataFusion's own types. `None` for a statement that returns no
    /// rows (DDL, DML, COPY, SET).
    pub rows: Option<SchemaRef>,
    /// The type of each parameter, by position. `None` where the type cannot be inferred.
    pub parameters: Vec<Option<DataType>>,
}

/// A table or view as Flight SQL lists it.
#[derive(Debug, Clone)]
pub(crate) struct TableListing {
    /// Name of the catalog: `volary`.
    pub(crate) catalog: String,
    /// Name of the schema.
    pub(crate) schema_name: String,
    /// Name of the table or view.
    pub(crate) name: String,
    /// The session that a temporary table or view belongs to.
    pub(crate) session: Option<SessionId>,
    /// Type of the table: `TABLE`, `REFERENCE TABLE`, `LOCAL TEMPORARY`, `VIEW` or `SYSTEM TABLE`.
    pub(crate) table_type: &'static str,
    /// The columns of the table or view.
    pub(crate) columns: SchemaRef,
}

/// Plans and runs the statements of a gateway.
#[derive(Debug)]
pub struct Engine {
    config: Arc<Config>,
    catalog: Catalog,
    cluster: Arc<Cluster>,
    runtimes: Runtimes,
    statements: Arc<Statements>,
    /// How much of the gateway's limits is in use.
    usage: Arc<LimitUsageSources>,
    passwords: Arc<Passwords>,
    queue: StatementQueue,
    memory: memory::QueryMemory,
    loads: LoadRegistry,
    /// The small writes that wait or are in flight.
    groups: Arc<Groups>,
    streams: Arc<IngestStreams>,
    lookups: Arc<LookupStreams>,
    /// The producers that write now.
    leases: Arc<ProducerLeases>,
    generic_plans: GenericPlans,
    described: DescribedStatements,
    temporary_sessions: TemporarySessions,
    /// The functions, rules and settings that all statements share.
    base_state: Arc<SessionState>,
}

impl Engine {
    /// Creates an engine over the catalog's tables and the cluster's workers. `passwords` hashes
    /// and checks the passwords that users log in with.
    ///
    /// # Errors
    /// Returns an error if DataFusion refuses to register a function.
    pub fn new(
        config: Arc<Config>,
        catalog: Catalog,
        cluster: Arc<Cluster>,
        runtimes: Runtimes,
        runtime_env: Arc<RuntimeEnv>,
        passwords: Arc<Passwords>,
    ) -> Result<Self> {
        let statements = Arc::new(Statements::new(config.query.history));
        let queue = StatementQueue::new(&config.query);
        let groups = Arc::new(Groups::new(&config.ingest));
        let streams = Arc::new(IngestStreams::new(&config.ingest));
        let lookups = Arc::new(LookupStreams::new(&config.lookup));
        let usage = LimitUsageSources {
            config: Arc::clone(&config),
            places: queue.places(),
            kept_places: queue.kept_places(),
            message_budget: config.query.message_budget(),
            groups: Arc::clone(&groups),
            streams: Arc::clone(&streams),
            lookups: Arc::clone(&lookups),
        };
        Ok(Self {
            base_state: Arc::new(base::base_state(&config, Arc::clone(&runtime_env))?),
            memory: memory::QueryMemory::new(runtime_env, config.memory_limit()),
            queue,
            usage: Arc::new(usage),
            statements,
            passwords,
            loads: LoadRegistry::default(),
            groups,
            streams,
            lookups,
            leases: Arc::default(),
            temporary_sessions: TemporarySessions::default(),
            generic_plans: GenericPlans::new(config.query.generic_plans.bytes()),
            described: DescribedStatements::new(config.query.described_bytes()),
            config,
            catalog,
            cluster,
            runtimes,
        })
    }

    /// Returns the statements that the engine runs, and those that it has run.
    pub fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// Returns how much of the gateway's limits is in use.
    pub(crate) fn usage(&self) -> &LimitUsageSources {
        &self.usage
    }

    /// Returns the running loads.
    pub(crate) fn loads(&self) -> &LoadRegistry {
        &self.loads
    }

    /// Returns the small writes that wait or are in flight.
    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Returns what all streams of lookups share.
    pub(crate) fn lookups(&self) -> &Arc<LookupStreams> {
        &self.lookups
    }

    /// Returns the memory budget of messages that have not arrived completely.
    pub(crate) fn message_budget(&self) -> &MessageBudget {
        &self.usage.message_budget
    }

    /// Returns whether the user for whom a query was planned may still read what the query reads.
    /// Any change of users, roles or grants since planning makes this false.
    pub(crate) fn is_still_allowed(&self, query: &PlannedQuery) -> bool {
        Arc::ptr_eq(&query.access, &self.access())
    }

    /// Refuses a query if a table or view that it reads was dropped or recreated since planning.
    /// `reads` holds the versions that the query was planned with.
    ///
    /// # Errors
    /// `NOT_FOUND`, with the name.
    pub(crate) fn refuse_changes(&self, reads: &BTreeMap<RelationName, u64>) -> Result<()> {
        self.catalog.state().check_unchanged(reads)
    }

    /// Returns the users, roles and grants of the catalog.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(self.catalog.state().access())
    }

    /// Returns the tables that the user of this session may list: those of all users, and the
    /// temporary tables of the session.
    pub(crate) fn visible_tables(&self, session: &Session) -> Vec<Arc<Table>> {
        let state = self.catalog.state();
        let session_id = session.temporary_session();
        let temporary = session_id.map(|id| state.temporary_tables(id));
        let tables = state.tables().chain(temporary.into_iter().flatten());
        let rights = session.rights();
        let visible = tables.filter(|table| rights.may_see(table.name(), table.owner()));
        visible.cloned().collect()
    }

    /// Returns the tables and views that the user of this session may list. Their schemas have
    /// DataFusion's own types.
    pub(crate) fn tables(&self, session: &Session) -> Vec<TableListing> {
        let state = self.catalog.state();
        let rights = session.rights();
        let listing = |name: &RelationName, table_type, columns: &SchemaRef| TableListing {
            catalog: CATALOG.to_owned(),
            schema_name: name.schema().to_owned(),
            name: name.name().to_owned(),
            session: name.session(),
            table_type,
            columns: Arc::clone(columns),
        };
        let tables = self.visible_tables(session).into_iter().map(|table| {
            let table_type = if table.name().is_temporary() {
                "LOCAL TEMPORARY"
            } else if table.is_reference() {
                "REFERENCE TABLE"
            } else {
                "TABLE"
            };
            listing(table.name(), table_type, &commented_columns(&table))
        });
        let session_id = session.temporary_session();
        let temporary_views = session_id.map(|id| state.temporary_views(id));
        let views = state
            .views()
            .chain(temporary_views.into_iter().flatten())
            .filter(|view| !view.is_saved_query() && rights.may_see(view.name(), view.owner()))
            .map(|view| listing(view.name(), "VIEW", view.schema()));
        let system = system_tables::all().into_iter().map(|(name, columns)| {
            listing(&RelationName::new(SYSTEM, name), "SYSTEM TABLE", &columns)
        });
        tables.chain(views).chain(system).collect()
    }

    /// Returns a statement that adds rows to a table. `batch` is the id that the client has given
    /// to it.
    fn append(
        &self,
        context: &StatementContext,
        table: &Arc<Table>,
        batch: Option<StatementBatch>,
    ) -> load::Append {
        load::Append {
            parts: self.gateway_parts(context.owner()),
            groups: Arc::clone(&self.groups),
            query_id: context.query_id,
            table: Arc::clone(table),
            batch,
        }
    }

    /// Returns the runtimes of the gateway.
    pub(crate) fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// Returns the parts of the gateway that a load needs. `owner` is the number of its user.
    fn gateway_parts(&self, owner: u32) -> load::GatewayParts {
        load::GatewayParts {
            owner,
            catalog: self.catalog.clone(),
            cluster: Arc::clone(&self.cluster),
            runtimes: self.runtimes.clone(),
            loads: self.loads.clone(),
            leases: Arc::clone(&self.leases),
            statements: Arc::clone(&self.statements),
            config: Arc::clone(&self.config),
            base_state: Arc::clone(&self.base_state),
        }
    }
}

/// Returns the columns of a table with their comments, under the key that Flight SQL has for them.
fn commented_columns(table: &Table) -> SchemaRef {
    let comments = &table.declarations().column_comments;
    if comments.is_empty() {
        return Arc::clone(table.schema());
    }
    let fields = table.schema().fields().iter().enumerate();
    let fields = fields.map(|(position, field)| {
        let mut field = Field::clone(field);
        if let Some(comment) = comments.get(&position) {
            let metadata = field.metadata_mut();
            metadata.insert(REMARKS.to_owned(), comment.clone());
        }
        field
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
