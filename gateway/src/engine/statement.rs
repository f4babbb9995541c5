use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    DdlStatement, DmlStatement, LogicalPlan, Statement as PlanStatement, Values, WriteOp,
};
use tracing::Instrument as _;
use volary_catalog::Table;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_planner::table::ShardedTable;

use super::context::StatementContext;
use super::described_statements::DescribedStatement;
use super::description::describe_rows;
use super::errors::with_advice;
use super::frame_parameters::FrameParameters;
use super::generic::Lookup;
use super::logical_plan::{parse_in_context, plan_logically, shows_plans_of_workers};
use super::outcome::Start;
use super::plan_query::plan_query;
use super::query::{EarlierPlan, PlannedQuery};
use super::result_columns::{coerced_schema, columns_fingerprint, returns_rows};
use super::statement_key::StatementKey;
use super::unfit_values::unfit_value_error;
use super::{
    Completion, Engine, Session, StatementDescription, StatementOutcome, access, batch_id,
    declarations, definition, optimize, parameters, saved_query, schemas,
};
use crate::load::RowSource;
use crate::load::statement_batch::StatementBatch;
use crate::sql::names::WrittenName;
use crate::sql::parse::Statement;
use crate::sql::session_statement::SessionStatement;

impl Engine {
    /// Parses and plans `sql` without running it. `?` and `$n` are parameters. `parameters` holds
    /// their values, if they are known. `query_id`: see [`Self::execute`].
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn describe(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        parameters: Option<RecordBatch>,
        query_id: QueryId,
    ) -> Result<StatementDescription> {
        let lookup = self.look_up(session, sql, parameters.as_ref())?;
        if let Some(description) = self.find_description(&lookup, parameters.as_ref()) {
            self.statements
                .progress(query_id)
                .set_parsed(Duration::ZERO);
            return Ok(description);
        }
        let (engine, own, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        let work = describe(engine, own, sql, lookup.key, parameters, query_id);
        self.on_cpu(session, work).await
    }

    /// Plans a query, or runs any other statement once. `parameters` is one row with a column for
    /// each parameter, by position. A parameter counts as the literal of its value would.
    /// `query_id` identifies the statement on workers and in logs. The caller has to add it to
    /// errors, because errors may occur before anything is planned.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn execute(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        parameters: Option<RecordBatch>,
        query_id: QueryId,
    ) -> Result<StatementOutcome> {
        let mut lookup = self.look_up(session, sql, parameters.as_ref())?;
        if let Some(quick) = lookup.plan.take_if(|generic| generic.is_quick())
            && let Some(query) =
                quick.bind_values(self, session.claimant(), parameters.as_ref(), query_id)?
        {
            return Ok(StatementOutcome::Rows(Box::new(query)));
        }
        let (engine, own, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        let work = execute(engine, own, sql, lookup, parameters, query_id);
        self.run_statement(session, query_id, Start::OnCpu, work)
            .await
    }

    /// Plans the query of a ticket again. The query keeps its id, which its client and the logs
    /// know, and sees the same rows. `parameters`: see [`Self::execute`].
    ///
    /// # Errors
    /// Returns the errors of the statement. `NOT_FOUND` if a table or view that the query reads is
    /// gone, if another one has its name, or if the query has other columns than before. `INTERNAL`
    /// if the statement is not a query; then nothing is run.
    pub(crate) async fn replan(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        parameters: Option<RecordBatch>,
        query_id: QueryId,
        before: EarlierPlan,
    ) -> Result<PlannedQuery> {
        let (engine, own, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        self.on_cpu(
            session,
            replan(engine, own, sql, parameters, query_id, before),
        )
        .await
    }

    /// Looks for the generic plan of a statement.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the login of the session's user is no longer valid.
    fn look_up(
        &self,
        session: &Session,
        sql: &str,
        parameters: Option<&RecordBatch>,
    ) -> Result<Lookup> {
        let catalog = self.catalog.state();
        let rights = catalog.access().current_rights(session.rights())?;
        let key = StatementKey::new(session, &catalog, &rights, sql);
        // During a conflict between the catalog and the workers, each query is planned, because
        // planning checks whether it is refused. So is a write with an id.
        if self.cluster.has_conflicts() || session.batch_id().is_some() {
            return Ok(Lookup::without_plan(key));
        }
        Ok(self.generic_plans.look_up(&catalog, key, parameters))
    }

    /// Returns the description of a statement that has a generic plan or was described a short time
    /// ago.
    fn find_description(
        &self,
        lookup: &Lookup,
        parameters: Option<&RecordBatch>,
    ) -> Option<StatementDescription> {
        if let Some(generic) = &lookup.plan
            && let Some(description) = generic.describe(parameters)
        {
            return Some(description);
        }
        if parameters.is_some() {
            return None;
        }
        let described = self.find_described(&lookup.key)?;
        described.description(&self.catalog.state()).cloned()
    }

    /// Returns the results of describing this statement a short time ago. During a conflict between
    /// the catalog and the workers there are none, because planning checks whether a query is
    /// refused.
    fn find_described(&self, key: &StatementKey) -> Option<Arc<DescribedStatement>> {
        if self.cluster.has_conflicts() {
            return None;
        }
        self.described.get(key)
    }

    /// Runs the work of a session on the CPU runtime, within the caller's span. `work` is boxed
    /// first, because it is large and other futures would otherwise hold it inline.
    pub(super) fn on_cpu<T: Send + 'static>(
        &self,
        session: &Session,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> {
        let runtimes = self.runtimes.of_user(session.claimant().owner_number());
        let work = Box::pin(work).in_current_span();
        async move { runtimes.on_cpu(work).await }
    }
}

async fn describe(
    engine: Arc<Engine>,
    session: Session,
    sql: String,
    key: StatementKey,
    values: Option<RecordBatch>,
    query_id: QueryId,
) -> Result<StatementDescription> {
    let no_rows = StatementDescription {
        rows: None,
        parameters: Vec::new(),
    };
    let (statement, context) = parse_unless_described(&engine, &session, &key, &sql, query_id)?;
    let statement = match statement {
        ParsedStatement::Planned(plan) => {
            let frames = FrameParameters::default();
            return describe_rows(&context, &plan, &frames, values.as_ref());
        }
        ParsedStatement::Parsed(Statement::Planned(statement)) => statement,
        ParsedStatement::Parsed(Statement::Access(statement)) => {
            let rows = access::answer_columns(&statement);
            return Ok(StatementDescription { rows, ..no_rows });
        }
        ParsedStatement::Parsed(_) => return Ok(no_rows),
    };
    let is_kept = values.is_none() && key.is_of(&session, &context);
    let parsed = (is_kept && engine.described.may_keep_parsed(&context, &sql))
        .then(|| statement.as_ref().clone());
    let (plan, frames) = plan_logically(&context, *statement, &sql, values.as_ref()).await?;
    refuse_unsupported(&plan)?;
    let description = if returns_rows(&plan) {
        describe_rows(&context, &plan, &frames, values.as_ref())?
    } else {
        StatementDescription {
            rows: None,
            parameters: parameters::parameter_types(&plan, &frames)?,
        }
    };
    if is_kept {
        let plan = frames.is_empty().then_some(plan);
        let described = DescribedStatement::new(&context, &sql, parsed, plan, &description)?;
        engine.described.keep(key, described);
    }
    Ok(description)
}

async fn execute(
    engine: Arc<Engine>,
    session: Session,
    sql: String,
    mut lookup: Lookup,
    values: Option<RecordBatch>,
    query_id: QueryId,
) -> Result<StatementOutcome> {
    if let Some(generic) = lookup.plan.take()
        && let Some(query) =
            generic.bind_values(&engine, session.claimant(), values.as_ref(), query_id)?
    {
        return Ok(StatementOutcome::Rows(Box::new(query)));
    }
    let (statement, context) =
        parse_unless_described(&engine, &session, &lookup.key, &sql, query_id)?;
    let statement = match statement {
        ParsedStatement::Parsed(statement) => statement,
        ParsedStatement::Planned(plan) => {
            let frames = FrameParameters::default();
            let values = values.as_ref();
            let planning = plan_rows(&engine, &session, &context, lookup, plan, &frames, values);
            return planning.await;
        }
    };
    let batch = batch_id::of_statement(&session, &sql, values.as_ref())?;
    if !matches!(statement, Statement::CopyFrom(_) | Statement::Planned(_)) {
        batch_id::refuse(&session)?;
    }
    match statement {
        Statement::CreateTable(create) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let done = definition::create_table(&engine, &context, *create).await?;
            Ok(StatementOutcome::Done(done))
        }
        Statement::Drop(statement) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let changed = definition::drop_relations(&engine, &context, statement).await?;
            Ok(StatementOutcome::Done(Completion::of_change(changed)))
        }
        Statement::Alter(statement) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let changed = declarations::alter::run(&engine, Arc::new(context), statement).await?;
            Ok(StatementOutcome::Done(Completion::of_change(changed)))
        }
        Statement::CopyFrom(copy) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let _place = context.wait_for_place(&engine).await?;
            let name = context.user_relation(&copy.table)?;
            let table = context
                .catalog
                .table(&name)
                .ok_or_else(|| context.catalog.no_such_table(&name, &context.rights))?;
            context.check_may_insert(table)?;
            let append = engine.append(&context, table, batch);
            let copying = append.copy_from(&context.state, context.task(), &copy);
            let rows = copying.await?;
            Ok(StatementOutcome::Done(Completion::with_writes(Some(rows))))
        }
        Statement::Transaction(statement) => {
            session.transaction.apply(statement)?;
            Ok(StatementOutcome::Done(Completion::WITHOUT_WRITES))
        }
        Statement::Truncate(statement) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let changed = definition::truncate(&engine, &context, statement).await?;
            Ok(StatementOutcome::Done(Completion::of_change(changed)))
        }
        Statement::Optimize(table) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let _place = context.wait_for_place(&engine).await?;
            optimize::run(&engine, &context, &table).await?;
            Ok(StatementOutcome::Done(Completion::WITHOUT_WRITES))
        }
        Statement::Kill(id) => {
            kill(&engine, &context, id)?;
            Ok(StatementOutcome::Done(Completion::WITHOUT_WRITES))
        }
        Statement::Access(statement) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            access::run(&engine, &context, statement).await
        }
        Statement::SavedQuery(statement) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let changed = saved_query::run(&engine, &context, statement).await?;
            Ok(StatementOutcome::Done(Completion::of_change(changed)))
        }
        Statement::Schema(statement) => {
            refuse_parameters(values.as_ref())?;
            context.check_may_write()?;
            let changed = schemas::run(&engine, &context, statement).await?;
            Ok(StatementOutcome::Done(Completion::of_change(changed)))
        }
        Statement::Session(statement) => {
            change_session(&engine, &session, statement).await?;
            Ok(StatementOutcome::Done(Completion::WITHOUT_WRITES))
        }
        Statement::Planned(statement) => {
            let may_exist = definition::is_view_if_not_exists(&statement)?;
            let planning = plan_logically(&context, *statement, &sql, values.as_ref());
            let (plan, frames) = planning.await?;
            if returns_rows(&plan) {
                let values = values.as_ref();
                let planning =
                    plan_rows(&engine, &session, &context, lookup, plan, &frames, values);
                return planning.await;
            }
            let bound = parameters::bind(plan, values.as_ref(), &frames, context.time_zone())?;
            let insert_source = match &bound {
                LogicalPlan::Dml(dml) => {
                    let table = WrittenName::of_reference(&dml.table_name)?;
                    let table = context.search_path().find(&context.catalog, &table);
                    Some((table.to_string(), dml.input.clone()))
                }
                _ => None,
            };
            let running = run_plan(&engine, &session, &context, bound, batch);
            let done = match running.await {
                Err(error) if may_exist && error.code() == ErrorCode::AlreadyExists => {
                    Ok(Completion::WITHOUT_WRITES)
                }
                done => done,
            };
            let done = done.map_err(|error| match insert_source {
                Some((table, rows)) if error.code() == ErrorCode::InvalidArgument => {
                    unfit_value_error(&rows, &table).unwrap_or(error)
                }
                _ => error,
            })?;
            Ok(StatementOutcome::Done(done))
        }
    }
}

/// A statement as running it begins.
enum ParsedStatement {
    /// The statement has to be planned.
    Parsed(Statement),
    /// The logical plan of the statement, which is a query. It was made to describe the statement.
    Planned(LogicalPlan),
}

/// Creates the context of a statement with this key and text. Parses the statement, unless it was
/// described a short time ago.
///
/// # Errors
/// Returns the errors of [`parse_in_context`].
fn parse_unless_described(
    engine: &Engine,
    session: &Session,
    key: &StatementKey,
    sql: &str,
    query_id: QueryId,
) -> Result<(ParsedStatement, StatementContext)> {
    if let Some(described) = engine.find_described(key) {
        let with_plan_metrics = described.parsed().is_some_and(shows_plans_of_workers);
        let context = StatementContext::new(engine, session, query_id, None, with_plan_metrics)?;
        let progress = engine.statements.progress(query_id);
        if key.is_of(session, &context)
            && let Some(plan) = described.plan_in(&context)?
        {
            progress.set_parsed(Duration::ZERO);
            return Ok((ParsedStatement::Planned(plan), context));
        }
        if let Some(parsed) = described.parsed() {
            progress.set_parsed(Duration::ZERO);
            let statement = Statement::Planned(Box::new(parsed.clone()));
            return Ok((ParsedStatement::Parsed(statement), context));
        }
    }
    let (statement, context) = parse_in_context(engine, session, sql, query_id, None)?;
    Ok((ParsedStatement::Parsed(statement), context))
}

/// Makes the physical plan of a query from its logical plan, and a generic plan if one is due.
async fn plan_rows(
    engine: &Engine,
    session: &Session,
    context: &StatementContext,
    lookup: Lookup,
    plan: LogicalPlan,
    frames: &FrameParameters,
    values: Option<&RecordBatch>,
) -> Result<StatementOutcome> {
    batch_id::refuse(session)?;
    let bound = parameters::bind(plan.clone(), values, frames, context.time_zone())?;
    let query = plan_query(engine, context, &lookup.key, &plan, &bound, values).await?;
    if frames.is_empty() && lookup.key.is_of(session, context) {
        let plans = &engine.generic_plans;
        let planned = plans.note_planned(context, lookup, plan, &query, values);
        Box::pin(planned).await;
    }
    Ok(StatementOutcome::Rows(Box::new(query)))
}

/// Plans a query with the id and the snapshot of its ticket. The query must read the same tables
/// and have the same columns as before. Other kinds of statements never have tickets, because a
/// ticket would run them a second time.
async fn replan(
    engine: Arc<Engine>,
    session: Session,
    sql: String,
    values: Option<RecordBatch>,
    query_id: QueryId,
    before: EarlierPlan,
) -> Result<PlannedQuery> {
    let (statement, context) =
        parse_in_context(&engine, &session, &sql, query_id, before.snapshot)?;
    context.catalog.check_unchanged(&before.reads)?;
    let Statement::Planned(statement) = statement else {
        return Err(not_a_query());
    };
    let planning = plan_logically(&context, *statement, &sql, values.as_ref());
    let (plan, frames) = planning.await?;
    if !returns_rows(&plan) {
        return Err(not_a_query());
    }
    let values = values.as_ref();
    let bound = parameters::bind(plan.clone(), values, &frames, context.time_zone())?;
    let reads = context.reads();
    if !before.reads.is_empty() && reads != before.reads {
        return Err(Error::not_found(
            "the query reads other tables than when it was planned, because temporary tables of its session were created or dropped; run it again",
        ));
    }
    let key = StatementKey::new(&session, &context.catalog, &context.rights, &sql);
    let query = plan_query(&engine, &context, &key, &plan, &bound, values).await?;
    match before.columns_fingerprint {
        Some(columns) if columns != columns_fingerprint(&query.schema) => Err(Error::not_found(
            "the columns of the query have changed since they were announced; run it again",
        )),
        _ => Ok(query),
    }
}

fn not_a_query() -> Error {
    Error::internal("a query's ticket contains a statement that returns no rows")
}

fn kill(engine: &Engine, context: &StatementContext, id: QueryId) -> Result<()> {
    if engine
        .statements
        .end_by(&context.rights, id, "KILL has ended it")
    {
        return Ok(());
    }
    Err(Error::not_found(format!(
        "query {id} does not run here: it has ended, belongs to another user, or runs on another gateway; SELECT query_id FROM system.queries lists the running ones"
    )))
}

async fn change_session(
    engine: &Engine,
    session: &Session,
    statement: SessionStatement,
) -> Result<()> {
    match statement {
        SessionStatement::Change { name, value } => session.change_setting(name, value),
        SessionStatement::ResetAll => {
            session.reset_settings();
            Ok(())
        }
        SessionStatement::Discard { resets_settings } => {
            engine.drop_temporary_tables(session).await?;
            if resets_settings {
                session.reset_settings();
            }
            Ok(())
        }
        SessionStatement::SetTransaction { is_read_only } => {
            session.transaction.set_read_only(is_read_only);
            Ok(())
        }
        SessionStatement::Use(name) => engine.run_use(session, &name),
        SessionStatement::Nothing => Ok(()),
    }
}

fn refuse_parameters(values: Option<&RecordBatch>) -> Result<()> {
    match values {
        Some(values) if values.num_columns() > 0 => Err(Error::invalid(
            "this kind of statement takes no parameters; write the values into it",
        )),
        _ => Ok(()),
    }
}

/// Runs the plan of a statement that returns no rows.
///
/// # Errors
/// Returns the errors of the statement. `INVALID_ARGUMENT` if the gateway does not run statements
/// of this kind.
pub(super) async fn run_plan(
    engine: &Engine,
    session: &Session,
    context: &StatementContext,
    plan: LogicalPlan,
    batch: Option<StatementBatch>,
) -> Result<Completion> {
    refuse_unsupported(&plan)?;
    if !matches!(plan, LogicalPlan::Dml(_)) {
        batch_id::refuse(session)?;
    }
    match plan {
        LogicalPlan::Dml(DmlStatement {
            table_name,
            target,
            op: WriteOp::Insert(InsertOp::Append),
            input,
            ..
        }) => {
            let provider = source_as_provider(&target)?;
            let table = provider.downcast_ref::<ShardedTable>().ok_or_else(|| {
                Error::invalid(format!(
                    "rows cannot be inserted into {table_name}, because it is not a table that users have created"
                ))
            })?;
            context.check_may_write()?;
            context.check_may_insert(table.table())?;
            let rows = insert(engine, context, table.table(), &input, batch).await?;
            Ok(Completion::with_writes(Some(rows)))
        }
        LogicalPlan::Ddl(ddl) => {
            context.check_may_write()?;
            run_ddl(engine, context, ddl).await?;
            Ok(Completion::with_writes(None))
        }
        LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
            engine.change_setting(session, &set.variable, Some(set.value))?;
            Ok(Completion::WITHOUT_WRITES)
        }
        LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
            engine.change_setting(session, &reset.variable, None)?;
            Ok(Completion::WITHOUT_WRITES)
        }
        other => Err(Error::internal(format!(
            "{} is no statement without rows",
            other.display()
        ))),
    }
}

/// Refuses a plan that the gateway does not run.
///
/// # Errors
/// `INVALID_ARGUMENT`.
fn refuse_unsupported(plan: &LogicalPlan) -> Result<()> {
    let what = match plan {
        LogicalPlan::Dml(DmlStatement {
            op: WriteOp::Insert(InsertOp::Append),
            ..
        })
        | LogicalPlan::Ddl(DdlStatement::CreateView(_))
        | LogicalPlan::Statement(PlanStatement::SetVariable(_) | PlanStatement::ResetVariable(_)) =>
        {
            return Ok(());
        }
        LogicalPlan::Dml(dml) => {
            return Err(Error::unsupported(format!(
                "{} is not supported: rows can only be inserted, and tables can only be dropped as a whole",
                dml.op.name()
            )));
        }
        LogicalPlan::Copy(_) => {
            return Err(Error::unsupported(
                "COPY … TO is not supported; run the query and let the client write the rows to a file",
            ));
        }
        LogicalPlan::Ddl(ddl) => ddl.name(),
        LogicalPlan::Statement(statement) => statement.name(),
        _ => return Ok(()),
    };
    Err(Error::unsupported(format!("{what} is not supported")))
}

async fn insert(
    engine: &Engine,
    context: &StatementContext,
    table: &Arc<Table>,
    input: &LogicalPlan,
    batch: Option<StatementBatch>,
) -> Result<u64> {
    let _place = context.wait_for_place(engine).await?;
    let plan = context
        .state
        .create_physical_plan(&with_nullable_values(input)?)
        .await
        .map_err(|error| with_advice(error).at(format!("table {}", table.name())))?;
    let source = RowSource::from_plan(plan, context.task(), &context.runtimes)?;
    engine.append(context, table, batch).run(source).await
}

/// Makes all columns of VALUES nullable. The planner gives VALUES the table's columns, NOT NULL
/// included, and then fails on a NULL without naming the column. So NULLs pass here, and the check
/// that all written rows go through finds them.
fn with_nullable_values(input: &LogicalPlan) -> Result<LogicalPlan> {
    let plan = input.clone().transform_up(|node| match node {
        LogicalPlan::Values(values) => {
            let fields = values.schema.iter().map(|(qualifier, field)| {
                let field = field.as_ref().clone().with_nullable(true);
                (qualifier.cloned(), Arc::new(field))
            });
            let metadata = values.schema.metadata().clone();
            let schema = DFSchema::new_with_metadata(fields.collect(), metadata)?;
            Ok(Transformed::yes(LogicalPlan::Values(Values {
                schema: Arc::new(schema),
                values: values.values,
            })))
        }
        other => Ok(Transformed::yes(other.recompute_schema()?)),
    })?;
    Ok(plan.data)
}

async fn run_ddl(engine: &Engine, context: &StatementContext, ddl: DdlStatement) -> Result<()> {
    match ddl {
        DdlStatement::CreateView(view) => {
            let columns = coerced_schema(context.view_state(), &view.input)?;
            definition::create_view(engine, context, view, columns).await
        }
        other => Err(Error::unsupported(format!(
            "{} is not supported",
            other.name()
        ))),
    }
}
