use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow::array::ArrayRef;
use chrono::Utc;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::TableReference;
use datafusion::common::config::SqlParserOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::ViewTable;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, ScalarUDF};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, SetExpr, Statement as Ast, TableObject,
    visit_relations,
};
use futures::FutureExt;
use parking_lot::Mutex;
use volary_catalog::access::{Privilege, Rights};
use volary_catalog::{
    CatalogState, RelationName, TEMPORARY_SCHEMA, Table, View, format_parameters,
};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};
use volary_node::admission::RunPlace;
use volary_node::memory;
use volary_node::runtimes::{Runtimes, check_awaited};
use volary_planner::gather::{QueryContext, RunSpan};
use volary_planner::session_settings::SessionSettings;
use volary_planner::subqueries::single_row::rewrite_scalar_subqueries;
use volary_planner::table::ShardedTable;
use volary_planner::value_list::ValueList;

use super::errors::{has_equal_names, with_advice};
use super::session::Claimant;
use super::session_life::SessionLife;
use super::user_schemas::{CatalogSchemas, UserRelations, count_operators};
use super::{Engine, Session, declarations, settings};
use crate::cluster::Cluster;
use crate::sql::function_clauses::Kind;
use crate::sql::headings::{Marked, has_columns_beside_wildcards, name_columns};
use crate::sql::names::{CATALOG, PUBLIC, SYSTEM, WrittenName, identifier, is_cluster_schema};
use crate::sql::parse::{Statement, parse};
use crate::sql::printing::printed;
use crate::sql::saved_query::{
    PlannedBody, SavedQueries, find_calls, is_plain_call, parse_with_types,
};
use crate::sql::search_path::{SearchPath, with_current_schema};
use crate::sql::session_statement::show_in_schema;
use crate::sql::shape::ShapeLimits;
use crate::sql::syntax::parse_query;
use crate::sql::width;
use crate::sql::{depth, exact_numbers, expansion, function_clauses, merged_columns, unsupported};
use crate::system_tables::{self, SystemSchema};

/// Maximum depth of views that read other views.
const MAX_VIEW_DEPTH: usize = 16;

/// Everything that planning and running one statement needs, as of one state of the catalog: the
/// session, the rights and the tables.
pub(crate) struct StatementContext {
    /// DataFusion's session, for planning.
    pub(crate) state: SessionState,
    /// The catalog as of the statement's start.
    pub(crate) catalog: Arc<CatalogState>,
    /// The id of the statement.
    pub(crate) query_id: QueryId,
    /// The workers of the cluster.
    cluster: Arc<Cluster>,
    /// The time at which the planning of the statement began.
    pub(crate) started: Instant,
    /// Time that parsing took. It is zero if the text was parsed elsewhere.
    pub(super) parsing_time: Duration,
    /// Length of the text that was parsed, without its long lists, in bytes.
    pub(super) parsed_bytes: usize,
    /// The snapshot that the statement sees.
    pub(crate) snapshot: Snapshot,
    /// The user and the caller on whose behalf the statement waits for a place.
    pub(super) claimant: Claimant,
    /// The runtimes for the work of the statement's user.
    pub(super) runtimes: Runtimes,
    /// The rights of the statement's user.
    pub(crate) rights: Arc<Rights>,
    /// The limit for the memory of the query.
    pub(super) memory: memory::ByteLimit,
    /// The runtime environment with the query's own memory. The environment of `state` does not
    /// belong to any query.
    runtime_env: Arc<RuntimeEnv>,
    /// Says whether the session or its transaction refuses writes.
    is_read_only: bool,
    relations: Arc<UserRelations>,
    search_path: SearchPath,
    session_life: Arc<SessionLife>,
    /// The planned saved queries that the statement calls.
    saved_queries: Arc<SavedQueries>,
    /// The tables and views that planning has found so far: see [`Self::reads`].
    reads: Mutex<BTreeMap<RelationName, u64>>,
    /// The parser's settings without the session's changes.
    parser: SqlParserOptions,
    view_state: OnceLock<Box<SessionState>>,
    /// The functions that test the long lists of the statement.
    lists: Vec<Arc<ScalarUDF>>,
    /// Limits for the columns and types that the statement may make.
    pub(super) shape: ShapeLimits,
}

impl StatementContext {
    /// Creates the context of a statement, with the session's settings. If the statement has a
    /// ticket, `query_id` and `snapshot` are those of the ticket. Otherwise `query_id` is a new id
    /// and `snapshot` is `None`, which means the writes that are committed now.
    /// `with_plan_metrics`: see [`QueryContext`].
    ///
    /// # Errors
    /// Returns the errors of the session's settings. `UNAUTHENTICATED` if the login of the
    /// session's user is no longer valid.
    pub(crate) fn new(
        engine: &Engine,
        session: &Session,
        query_id: QueryId,
        snapshot: Option<Snapshot>,
        with_plan_metrics: bool,
    ) -> Result<Self> {
        let started = Instant::now();
        let as_of_us = Utc::now().timestamp_micros();
        let claimant = session.claimant();
        let owner = claimant.owner_number();
        let catalog = engine.catalog.state();
        // Takes the rights from the same state of the catalog as the tables.
        let rights = catalog.access().current_rights(session.rights())?;
        let current = catalog.snapshot();
        let statistics_exact = snapshot.as_ref().is_none_or(|given| *given == current);
        let counted = (!statistics_exact).then(|| current.clone());
        let snapshot = snapshot.unwrap_or(current);
        let temporary_session = session.temporary_session();
        let relations = Arc::new(UserRelations::new(
            Arc::clone(&catalog),
            statistics_exact,
            Arc::clone(&rights),
            temporary_session,
        ));
        let queries = Arc::new(SavedQueries::default());
        let mut config = engine.base_state.config().clone();
        let parser = config.options().sql_parser.clone();
        settings::apply(&mut config, &session.settings())?;
        SessionSettings::set_user(config.options_mut(), rights.user());
        let schema = config.options().catalog.default_schema.as_str();
        let search_path = SearchPath::new(schema, temporary_session);
        let is_read_only =
            session.transaction.is_read_only() || SessionSettings::is_read_only(config.options());
        let memory = SessionSettings::memory(&config).min(user_memory_limit(&rights));
        config.set_extension(Arc::new(QueryContext {
            query_id,
            owner,
            snapshot: snapshot.clone(),
            counted_writes: counted,
            as_of_us,
            lineage: catalog.lineage(),
            tables: Vec::new(),
            peers: Arc::clone(&engine.cluster) as _,
            config: engine.config.gather.clone(),
            memory: memory.bytes,
            with_plan_metrics,
            span: RunSpan::current(),
        }));
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(
            CATALOG.to_owned(),
            Arc::new(CatalogSchemas {
                relations: Arc::clone(&relations),
                system: Arc::new(SystemSchema::new(
                    Arc::clone(&engine.cluster),
                    engine.loads.clone(),
                    Arc::clone(&engine.statements),
                    Arc::clone(&engine.usage),
                    Arc::clone(&catalog),
                    Arc::clone(&rights),
                    temporary_session,
                )),
                base_state: Arc::clone(&engine.base_state),
            }),
        );
        // Clones the session instead of using a builder. A builder would register each of hundreds
        // of functions anew, which takes a quarter of the time that planning a point query takes.
        let mut state = SessionState::clone(&engine.base_state);
        *state.config_mut() = config;
        state.register_catalog_list(Arc::new(catalogs));
        state.register_relation_planner(Arc::clone(&queries) as _)?;
        // Fixes the time of now() for the whole statement. Without this call, now() cannot be
        // planned.
        state.mark_start_execution();
        Ok(Self {
            state,
            is_read_only,
            memory,
            runtime_env: engine.memory.env(memory),
            catalog,
            cluster: Arc::clone(&engine.cluster),
            query_id,
            started,
            parsing_time: Duration::ZERO,
            parsed_bytes: 0,
            snapshot,
            claimant,
            runtimes: engine.runtimes.of_user(owner),
            rights,
            relations,
            search_path,
            session_life: Arc::clone(&session.life),
            saved_queries: queries,
            reads: Mutex::default(),
            parser,
            view_state: OnceLock::new(),
            lists: Vec::new(),
            shape: ShapeLimits::new(&engine.config.query),
        })
    }

    /// Adds the functions that test the long lists of the statement. Each list has the name of its
    /// function, and its values.
    ///
    /// # Errors
    /// No error is known to occur.
    pub(super) fn add_lists(&mut self, lists: Vec<(String, ArrayRef)>) -> Result<()> {
        for (name, values) in lists {
            let function = Arc::new(ScalarUDF::new_from_impl(ValueList::new(name, values)));
            self.state.register_udf(Arc::clone(&function))?;
            self.lists.push(function);
        }
        Ok(())
    }

    /// Returns whether long lists were taken out of the statement.
    pub(super) fn has_lists(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Returns the size of the values of the statement's long lists, in bytes.
    pub(super) fn list_bytes(&self) -> usize {
        let lists = self.lists.iter();
        let lists = lists.filter_map(|function| function.inner().downcast_ref::<ValueList>());
        lists.map(ValueList::bytes).sum()
    }

    /// Returns whether the planner has found that the values of each long list have the type of
    /// what they are compared with.
    pub(super) fn are_lists_typed(&self) -> bool {
        let mut lists = self.lists.iter();
        lists.all(|function| {
            let list = function.inner().downcast_ref::<ValueList>();
            list.is_some_and(ValueList::is_typed)
        })
    }

    /// Refuses a statement that writes if the session or its transaction is read-only.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(super) fn check_may_write(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::new(
                ErrorCode::PermissionDenied,
                "the statement writes, but the session or its transaction is read-only; COMMIT a transaction that began as READ ONLY, or SET volary.read_only = false",
            )
            .with_sqlstate(SqlState::ReadOnlySqlTransaction));
        }
        Ok(())
    }

    /// Returns the [number](Claimant::owner_number) of the statement's user.
    pub(super) fn owner(&self) -> u32 {
        self.claimant.owner_number()
    }

    /// Returns the time zone of the session.
    pub(crate) fn time_zone(&self) -> Arc<str> {
        SessionSettings::time_zone(self.state.config_options())
    }

    /// Returns the task context in which the statement's plans run.
    pub(crate) fn task(&self) -> Arc<TaskContext> {
        let task = TaskContext::from(&self.state);
        Arc::new(task.with_runtime(Arc::clone(&self.runtime_env)))
    }

    /// Waits for a place for the statement.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many statements wait.
    pub(super) async fn wait_for_place(&self, engine: &Engine) -> Result<RunPlace> {
        let progress = engine.statements.progress(self.query_id);
        let queue = &engine.queue;
        let env = &self.runtime_env;
        queue
            .wait_for_place(&self.claimant, false, self.query_id, &progress, env)
            .await
    }

    /// Returns the current schema of the session. Names without a schema are looked up in it.
    pub(super) fn schema(&self) -> &str {
        self.search_path.schema()
    }

    /// Returns where names are looked up.
    pub(super) fn search_path(&self) -> &SearchPath {
        &self.search_path
    }

    /// Returns the life of the session, on which its temporary tables depend.
    pub(super) fn session_life(&self) -> &Arc<SessionLife> {
        &self.session_life
    }

    /// Returns the full name of a table, view or saved query of users that the statement changes,
    /// drops or writes to.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a schema that belongs to the cluster.
    pub(super) fn user_relation(&self, name: &WrittenName) -> Result<RelationName> {
        Self::check_is_of_users(self.search_path.find(&self.catalog, name))
    }

    /// Returns the full name of a table, view or saved query of users that the statement creates.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a schema that belongs to the cluster.
    pub(super) fn new_relation(&self, name: &WrittenName) -> Result<RelationName> {
        Self::check_is_of_users(self.search_path.place(name))
    }

    fn check_is_of_users(name: RelationName) -> Result<RelationName> {
        if is_cluster_schema(name.schema()) {
            return Err(Error::invalid(format!(
                "{name} cannot be created, written to or dropped: the schema {} belongs to the cluster; choose another schema",
                name.schema()
            )));
        }
        Ok(name)
    }

    /// Returns the query that answers SHOW TABLES IN and SHOW VIEWS IN. Returns other statements
    /// unchanged.
    fn answer_show_in(&self, mut statement: DfStatement) -> Result<DfStatement> {
        if let DfStatement::Statement(ast) = &mut statement
            && let Some(show) = show_in_schema(ast)?
        {
            let is_temporary =
                show.schema == TEMPORARY_SCHEMA && self.search_path.session().is_some();
            if !is_cluster_schema(&show.schema) && !is_temporary {
                self.catalog.check_schema(&show.schema, &self.rights)?;
            }
            **ast = Ast::Query(parse_query(&show.query)?);
        }
        Ok(statement)
    }

    /// Plans the views that the statement reads, and then the statement.
    ///
    /// # Errors
    /// `NOT_FOUND` for a table or a column that does not exist, with the nearest names.
    /// `INVALID_ARGUMENT` for a plan that is nested too deeply, and for a statement inside another
    /// statement that takes only queries. Also returns the errors of planning.
    pub(crate) async fn plan(&self, statement: DfStatement) -> Result<LogicalPlan> {
        let statement = settings::with_full_key(statement);
        let statement = without_if_not_exists(statement);
        let statement = self.answer_show_in(statement)?;
        let statement = self.with_schema_in_show(statement);
        self.resolve(&statement, &self.rights, &self.search_path, 0)
            .await?;
        let statement = self.plan_insert_source(statement).await?;
        let plan = if is_plain_call(&statement) {
            // Keeps the ORDER BY of the called query: the plain call has no operator above the
            // query that could reorder its rows.
            let mut state = self.state.clone();
            let parser = &mut state.config_mut().options_mut().sql_parser;
            parser.enable_subquery_sort_elimination = false;
            self.plan_with(&state, &self.search_path, statement).await
        } else if defines_view(&statement) {
            let state = self.view_state();
            self.plan_with(state, &self.search_path, statement).await
        } else {
            let state = &self.state;
            self.plan_with(state, &self.search_path, statement).await
        };
        let plan = plan.map_err(|error| self.advise_call(error))?;
        refuse_nested_statements(&plan)?;
        Ok(plan)
    }

    /// Returns the tables and views of users that the statement reads, by name. The list is
    /// complete once the statement is planned. The number is a table's id, or the fingerprint of a
    /// view's text and owner.
    pub(crate) fn reads(&self) -> BTreeMap<RelationName, u64> {
        self.reads.lock().clone()
    }

    /// Notes what a plan reads that was made in another context.
    pub(super) fn note_reads(&self, reads: &BTreeMap<RelationName, u64>) {
        self.reads.lock().extend(reads.clone());
    }

    /// Returns a table as the statement sees it, for DataFusion.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such table.
    pub(super) fn sharded_table(&self, name: &RelationName) -> Result<ShardedTable> {
        let table = self.relations.sharded_table(name);
        table.ok_or_else(|| self.catalog.no_such_table(name, &self.rights))
    }

    /// Plans the query of an INSERT … SELECT by itself, and puts a view in its place. Without the
    /// view, the planner would take all VALUES inside the INSERT for rows of the table, even those
    /// in a FROM or a CTE. Also fills in defaults. Returns other statements unchanged.
    async fn plan_insert_source(&self, mut statement: DfStatement) -> Result<DfStatement> {
        if let DfStatement::Statement(ast) = &mut statement
            && let Ast::Insert(insert) = ast.as_mut()
            && let added = declarations::insert::fill_in(&self.catalog, &self.search_path, insert)?
            && let Some(query) = insert.source.take_if(|query| !is_values(query))
        {
            let query = DfStatement::Statement(Box::new(Ast::Query(query)));
            let types =
                declarations::insert::listed_types(&self.catalog, &self.search_path, insert);
            let rows = self.plan_with(&self.state, &self.search_path, query);
            let rows = declarations::insert::cast_columns(rows.await?, &types)?;
            let view = ViewTable::new(rows, None);
            let mut name = "source".to_owned();
            let full_name = |name: &str| {
                let name = WrittenName::new(None, name.to_owned());
                self.search_path.find(&self.catalog, &name)
            };
            while self.catalog.version_of(&full_name(&name)).is_some() {
                name.push('_');
            }
            let added: String = (1..)
                .zip(&added)
                .map(|(number, value)| format!(", {} AS \"default {number}\"", printed(value)))
                .collect();
            let select_all = format!("SELECT *{added} FROM {name}");
            self.relations.insert_view(full_name(&name), view);
            insert.source = Some(parse_query(&select_all)?);
        }
        Ok(statement)
    }

    /// Replaces the error about a missing table if a saved query has this name. The new error says
    /// how to call the saved query.
    fn advise_call(&self, error: Error) -> Error {
        let queries = self.catalog.views().filter(|view| view.is_saved_query());
        let message = with_current_schema(error.message());
        let missing = |name: &RelationName| {
            format!("'{CATALOG}.{}.{}' not found", name.schema(), name.name())
        };
        let read = queries
            .filter(|query| self.saved_queries.get(query.name()).is_some())
            .find(|query| message.contains(&missing(query.name())));
        let Some(query) = read else {
            return error;
        };
        let (name, takes) = (
            query.name(),
            format_parameters(query.parameters().unwrap_or_default()),
        );
        Error::invalid(format!(
            "\"{name}\" is a saved query: call it as {name}(…); it takes {takes}"
        ))
    }

    /// Returns the session that plans views. It has the default parser settings, so that a view
    /// means the same to all readers, whatever parser settings their sessions have. Its time zone
    /// is UTC, which is the zone of the columns of all views.
    pub(super) fn view_state(&self) -> &SessionState {
        self.view_state.get_or_init(|| {
            let mut state = self.state.clone();
            let options = state.config_mut().options_mut();
            options.sql_parser = self.parser.clone();
            SessionSettings::reset_time_zone(options);
            Box::new(state)
        })
    }

    /// Returns the session with a search path. DataFusion then looks up names there.
    fn with_search_path<'a>(
        &self,
        state: &'a SessionState,
        path: &SearchPath,
    ) -> Cow<'a, SessionState> {
        let schema = path.planned_schema(&self.catalog);
        if state.config_options().catalog.default_schema == *schema {
            return Cow::Borrowed(state);
        }
        let mut state = state.clone();
        let options = state.config_mut().options_mut();
        options.catalog.default_schema = schema.into_owned();
        Cow::Owned(state)
    }

    /// Refuses a temporary table or view in the query of something that stays when the session
    /// ends. Must be called after the query was planned. `what` is created, for an error.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the name of the temporary table or view.
    pub(super) fn refuse_temporary_reads(&self, what: &str, advice: &str) -> Result<()> {
        match self.reads.lock().keys().find(|name| name.is_temporary()) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "{what} reads {name}, which is temporary and ends with the session; {advice}"
            ))
            .with_sqlstate(SqlState::InvalidTableDefinition)),
        }
    }

    /// Refuses to add rows to a table if the user lacks the right to do so.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(super) fn check_may_insert(&self, table: &Table) -> Result<()> {
        self.catalog
            .check_privilege(Privilege::Insert, table.name(), &self.rights)
    }

    /// Checks that the statement's tables exist and that a user with the rights of `reader` may
    /// read them. Plans the views that the statement reads. `path` says where names are looked up.
    async fn resolve(
        &self,
        statement: &DfStatement,
        reader: &Rights,
        path: &SearchPath,
        depth: usize,
    ) -> Result<()> {
        // A called name is never a CTE, even if a CTE has the same name. Called names are checked
        // first, so that the error for a missing one says that there is no such function.
        let called = find_calls(statement)?.into_iter().map(|name| (name, true));
        let read = self.state.resolve_table_references(statement)?;
        for (reference, is_called) in called.chain(read.into_iter().map(|name| (name, false))) {
            let written = WrittenName::of_reference(&reference)?;
            let name = &match is_called {
                // What is called is never temporary.
                true => path.place(&written),
                false => path.find(&self.catalog, &written),
            };
            refuse_unknown_table(name)?;
            if is_cluster_schema(name.schema()) {
                continue;
            }
            self.cluster.refuse_conflicts()?;
            if let Some(version) = self.catalog.version_of(name) {
                self.reads.lock().insert(name.clone(), version);
            } else if !self.is_table_function(&reference) {
                // Table functions such as generate_series(…) are not in the catalog either.
                if is_called {
                    return Err(self.catalog.no_such_function(name, &self.rights));
                }
                return Err(self.catalog.no_such_table(name, &self.rights));
            }
            if let Some(owner) = self.catalog.owner_of(name) {
                let privilege =
                    if only_writes_to(statement, name, |name| path.find(&self.catalog, name)) {
                        Privilege::Insert
                    } else {
                        Privilege::Select
                    };
                if depth == 0 {
                    self.catalog.check_privilege(privilege, name, reader)?;
                } else {
                    // The error may name what the view reads, because a user who may read a view
                    // may know that.
                    reader.check_privilege(privilege, name, owner)?;
                }
            }
            if self.catalog.table(name).is_none()
                && let Some(view) = self.catalog.view(name)
            {
                Box::pin(self.plan_view(view, depth)).await?;
            }
        }
        let full_name = |name: &ObjectName| {
            let name = WrittenName::of_object(name).ok()?;
            Some(path.find(&self.catalog, &name))
        };
        let size_of_view = |name: &ObjectName| {
            let name = full_name(name)?;
            let query = self.saved_queries.get(&name);
            let query = query.map(|query| count_operators(&query.plan));
            query.unwrap_or_else(|| self.relations.size_of_view(&name))
        };
        expansion::check(statement, size_of_view)?;
        let columns_of = |name: &ObjectName| {
            let name = full_name(name)?;
            match self.catalog.table(&name) {
                Some(table) => Some(table.schema().fields().len()),
                None => self.relations.columns_of_view(&name),
            }
        };
        width::check(statement, self.shape.max_columns(), columns_of)?;
        self.shape.check_lists(statement)?;
        function_clauses::check(statement, &|name, has_over| self.kind_of(name, has_over))?;
        unsupported::check_statement(statement)
    }

    /// Plans a view or a saved query with the rights of its owner: a user who may read the view
    /// needs no right to the tables below it.
    async fn plan_view(&self, view: &View, depth: usize) -> Result<()> {
        let (name, sql) = (view.name(), view.sql());
        if self.relations.has_view(name) || self.saved_queries.get(name).is_some() {
            return Ok(());
        }
        if depth >= MAX_VIEW_DEPTH {
            return Err(Error::invalid(format!(
                "view {name}: views are nested more than {MAX_VIEW_DEPTH} levels deep, or read each other in a circle"
            )));
        }
        let kind = if view.is_saved_query() {
            "query"
        } else {
            "view"
        };
        let at = |error: Error| error.at(format!("{kind} {name}"));
        let statement = match view.parameters() {
            Some(parameters) => Box::new(parse_with_types(sql, parameters).map_err(at)?),
            None => match parse(sql)? {
                Statement::Planned(statement) => statement,
                _ => return Err(Error::invalid(format!("view {name} is not a query"))),
            },
        };
        let owner = self.rights_of_owner(view.owner()).map_err(at)?;
        // Only temporary views find temporary tables, those of their session.
        let path = SearchPath::new(view.search_schema(), name.session());
        self.resolve(&statement, &owner, &path, depth + 1)
            .await
            .map_err(at)?;
        let plan = self.plan_with(self.view_state(), &path, *statement).await;
        let plan = plan.map_err(|error| at(self.advise_call(error)))?;
        if let Some(parameters) = view.parameters() {
            let body = PlannedBody::new(parameters, plan);
            self.saved_queries.insert(name.clone(), body);
            return Ok(());
        }
        let view = ViewTable::new(plan, Some(sql.to_owned()));
        self.relations.insert_view(name.clone(), view);
        Ok(())
    }
}

impl StatementContext {
    /// Writes the schema before a table whose columns or definition a SHOW lists. DataFusion would
    /// list the tables of this name in all schemas.
    fn with_schema_in_show(&self, mut statement: DfStatement) -> DfStatement {
        if let DfStatement::Statement(ast) = &mut statement {
            let name = match ast.as_mut() {
                Ast::ShowColumns { show_options, .. } => {
                    let parent = show_options.show_in.as_mut();
                    parent.and_then(|parent| parent.parent_name.as_mut())
                }
                Ast::ShowCreate { obj_name, .. } => Some(obj_name),
                _ => None,
            };
            if let Some(name) = name
                && let ObjectName(parts) = &*name
                && parts.len() == 1
                && let Ok(written) = WrittenName::of_object(name)
            {
                let found = self.search_path.find(&self.catalog, &written);
                let schema = Ident::with_quote('"', found.schema());
                name.0.insert(0, ObjectNamePart::Identifier(schema));
            }
        }
        statement
    }

    /// Returns whether a name is that of a table function, and in no other schema than those of
    /// functions.
    fn is_table_function(&self, reference: &TableReference) -> bool {
        let functions = self.state.table_functions();
        matches!(reference.schema(), None | Some(PUBLIC))
            && functions.contains_key(reference.table())
    }

    /// Returns what the function of a name is, with an OVER or without.
    fn kind_of(&self, name: &str, has_over: bool) -> Option<Kind<'_>> {
        if has_over && let Some(window) = self.state.window_functions().get(name) {
            return Some(Kind::Window(window.name()));
        }
        if let Some(aggregate) = self.state.aggregate_functions().get(name) {
            return Some(Kind::Aggregate {
                name: aggregate.name(),
                may_ignore_nulls: aggregate.supports_null_handling_clause(),
            });
        }
        let is_scalar = self.state.scalar_functions().contains_key(name);
        is_scalar.then_some(Kind::Scalar)
    }

    fn rights_of_owner(&self, owner: Option<&str>) -> Result<Arc<Rights>> {
        // A view without an owner was made before there were users, when everybody could do
        // everything.
        let Some(owner) = owner else {
            return Ok(Arc::new(Rights::of_open_cluster("")));
        };
        let rights = self.catalog.access().rights(owner);
        rights.cloned().ok_or_else(|| {
            Error::new(
                ErrorCode::PermissionDenied,
                format!("its owner \"{owner}\" does not exist any more; choose a new owner with ALTER VIEW … OWNER TO …"),
            )
        })
    }

    /// Plans a statement whose views are planned already. `path` says where names are looked up.
    async fn plan_with(
        &self,
        state: &SessionState,
        path: &SearchPath,
        mut statement: DfStatement,
    ) -> Result<LogicalPlan> {
        let state = self.with_search_path(state, path);
        let state = state.as_ref();
        let again = has_columns_beside_wildcards(&statement).then(|| statement.clone());
        let view_text = text_of_view(&statement)?;
        let columns_of = |query: Query| columns_of(state, query);
        let rewrite = |statement: &mut DfStatement, marked| {
            name_columns(statement, marked)?;
            merged_columns::rewrite(statement, &columns_of)?;
            exact_numbers::rewrite(statement);
            Ok::<_, Error>(())
        };
        rewrite(&mut statement, Marked::EqualNames)?;
        let mut plan = state.statement_to_plan(statement).await;
        if let Err(error) = &plan
            && has_equal_names(error)
            && let Some(mut again) = again
        {
            rewrite(&mut again, Marked::BesideWildcards)?;
            plan = state.statement_to_plan(again).await;
        }
        let mut plan = rewrite_scalar_subqueries(plan.map_err(with_advice)?, state)?;
        if let LogicalPlan::Ddl(DdlStatement::CreateView(view)) = &mut plan {
            // The catalog keeps the query as the user has written it, without the names that were
            // added above.
            view.definition = view_text;
        }
        check_awaited()?;
        depth::check(&plan, self.shape.max_columns())?;
        unsupported::check_plan(&plan)?;
        Ok(plan)
    }
}

impl fmt::Debug for StatementContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementContext")
            .field("query_id", &self.query_id)
            .finish_non_exhaustive()
    }
}

/// Returns the names of the columns of a query, or `None` if it cannot be planned.
fn columns_of(state: &SessionState, query: Query) -> Option<Vec<String>> {
    let statement = DfStatement::Statement(Box::new(Ast::Query(Box::new(query))));
    // The tables of a statement are in memory, so planning waits for nothing.
    let plan = state.statement_to_plan(statement).now_or_never()?.ok()?;
    let columns = plan.schema().fields().iter();
    Some(columns.map(|column| column.name().clone()).collect())
}

fn is_values(query: &Query) -> bool {
    query.with.is_none() && matches!(*query.body, SetExpr::Values(_))
}

/// Returns the limit for the memory that a query of the user may hold.
fn user_memory_limit(rights: &Rights) -> memory::ByteLimit {
    let bytes = rights.limits().query_memory.unwrap_or(u64::MAX);
    memory::ByteLimit {
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        setting: "the user's QUERY_MEMORY",
    }
}

/// Returns whether the statement adds rows to the table and reads none of the table's rows. `find`
/// returns the full name of what is written.
fn only_writes_to(
    statement: &DfStatement,
    table: &RelationName,
    find: impl Fn(&WrittenName) -> RelationName,
) -> bool {
    let DfStatement::Statement(ast) = statement else {
        return false;
    };
    let Ast::Insert(insert) = ast.as_ref() else {
        return false;
    };
    let TableObject::TableName(target) = &insert.table else {
        return false;
    };
    let is_table =
        |name: &ObjectName| WrittenName::of_object(name).is_ok_and(|name| find(&name) == *table);
    let is_read = visit_relations(&insert.source, |name| {
        if is_table(name) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    is_table(target) && is_read.is_continue()
}

/// Removes IF NOT EXISTS from CREATE VIEW, because DataFusion does not plan it.
fn without_if_not_exists(mut statement: DfStatement) -> DfStatement {
    if let DfStatement::Statement(ast) = &mut statement
        && let Ast::CreateView(view) = ast.as_mut()
    {
        view.if_not_exists = false;
    }
    statement
}

fn defines_view(statement: &DfStatement) -> bool {
    matches!(statement, DfStatement::Statement(ast) if matches!(ast.as_ref(), Ast::CreateView(_)))
}

/// Returns the text of the query of the view that the statement defines. Returns `None` for other
/// statements.
///
/// # Errors
/// `INVALID_ARGUMENT` for a query that the parser would read differently from this text.
fn text_of_view(statement: &DfStatement) -> Result<Option<String>> {
    let DfStatement::Statement(ast) = statement else {
        return Ok(None);
    };
    let Ast::CreateView(view) = ast.as_ref() else {
        return Ok(None);
    };
    let query = printed(&*view.query);
    // sqlparser does not print all names in quotes as they were written.
    if !parse_query(&query).is_ok_and(|again| printed(&*again) == query) {
        return Err(Error::unsupported(
            "the query of the view cannot be kept as text, for example because a name in it has a backslash or several quotes; use other names",
        ));
    }
    if view.columns.is_empty() {
        return Ok(Some(query));
    }
    let columns = view.columns.iter().map(|column| {
        let name = identifier(&column.name);
        format!("\"{}\"", name.replace('"', "\"\""))
    });
    let columns: Vec<_> = columns.collect();
    Ok(Some(format!(
        "SELECT * FROM ({query}) AS v({})",
        columns.join(", ")
    )))
}

/// Refuses a statement inside another statement. Only the engine runs statements that are not
/// queries, and it runs them only at the top level. DataFusion would plan them within EXPLAIN, and
/// EXPLAIN ANALYZE would run them: COPY … TO writes files.
fn refuse_nested_statements(plan: &LogicalPlan) -> Result<()> {
    let mut is_root = true;
    let mut inner_statement = None;
    plan.apply_with_subqueries(|node| {
        if !std::mem::take(&mut is_root)
            && let Some(name) = statement_name(node)
        {
            inner_statement = Some(name.to_owned());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match inner_statement {
        Some(name) => Err(Error::invalid(format!(
            "{} takes a query, but {name} is not a query",
            statement_name(plan).unwrap_or("this statement")
        ))),
        None => Ok(()),
    }
}

/// Returns the name of a statement that is not a query. Returns `None` for a query.
fn statement_name(plan: &LogicalPlan) -> Option<&str> {
    match plan {
        LogicalPlan::Explain(_) => Some("EXPLAIN"),
        LogicalPlan::Analyze(_) => Some("EXPLAIN ANALYZE"),
        LogicalPlan::Copy(_) => Some("COPY … TO"),
        LogicalPlan::Dml(dml) => Some(dml.name()),
        LogicalPlan::Ddl(ddl) => Some(ddl.name()),
        LogicalPlan::Statement(statement) => Some(statement.name()),
        _ => None,
    }
}

/// Refuses a table that does not exist in the schema `system`. DataFusion would refuse it later,
/// with another error code than Volary's.
fn refuse_unknown_table(name: &RelationName) -> Result<()> {
    let table = name.name();
    if name.schema() == SYSTEM && !system_tables::names().any(|name| name == table) {
        return Err(Error::not_found(format!(
            "there is no table {SYSTEM}.{table}; there are {}",
            system_tables::names().collect::<Vec<_>>().join(", ")
        ))
        .with_sqlstate(SqlState::UndefinedTable));
    }
    Ok(())
}
