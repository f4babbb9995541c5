use arrow::record_batch::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use tracing::Instrument as _;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, Result};

use super::context::StatementContext;
use super::frame_parameters::FrameParameters;
use super::noted_parse::parse_noted;
use super::{Engine, Session};
use crate::sql::long_lists::WithoutLists;
use crate::sql::parse::{Statement, parse};

/// Parses a statement, and creates its context. Long lists are taken out of the text before.
/// `query_id` and `snapshot`: see [`StatementContext::new`].
///
/// # Errors
/// `INVALID_ARGUMENT` if the text is not a statement. Also returns the errors of
/// [`StatementContext::new`].
pub(super) fn parse_in_context(
    engine: &Engine,
    session: &Session,
    sql: &str,
    query_id: QueryId,
    snapshot: Option<Snapshot>,
) -> Result<(Statement, StatementContext)> {
    let without_lists = WithoutLists::of(sql);
    let text = without_lists.as_ref().map_or(sql, |without| &without.sql);
    let (statement, parsing_time) = parse_noted(engine, query_id, text)?;
    let with_plan_metrics =
        matches!(&statement, Statement::Planned(planned) if shows_plans_of_workers(planned));
    let mut context =
        StatementContext::new(engine, session, query_id, snapshot, with_plan_metrics)?;
    context.parsing_time = parsing_time;
    context.parsed_bytes = text.len();
    if let Some(without) = without_lists {
        context.add_lists(without.lists)?;
    }
    Ok((statement, context))
}

/// Returns whether the result of a statement contains the plans of workers. That of EXPLAIN ANALYZE
/// VERBOSE does.
pub(super) fn shows_plans_of_workers(statement: &DfStatement) -> bool {
    matches!(
        statement,
        DfStatement::Explain(explain) if explain.options.analyze && explain.options.verbose
    )
}

/// Makes the logical plan of a statement with the text `sql`, and gives the parameters in the
/// frames of windows their values.
///
/// # Errors
/// Returns the errors of planning.
pub(super) async fn plan_logically(
    context: &StatementContext,
    statement: DfStatement,
    sql: &str,
    values: Option<&RecordBatch>,
) -> Result<(LogicalPlan, FrameParameters)> {
    let planned = plan_parsed(context, statement, values).await;
    // The values of a list may have to be converted, which only the planner does.
    if context.are_lists_typed() {
        return planned;
    }
    match parse(sql)? {
        Statement::Planned(whole) => plan_parsed(context, *whole, values).await,
        _ => Err(Error::internal(
            "a statement is of another kind without its long lists",
        )),
    }
}

async fn plan_parsed(
    context: &StatementContext,
    mut statement: DfStatement,
    values: Option<&RecordBatch>,
) -> Result<(LogicalPlan, FrameParameters)> {
    let frames = FrameParameters::replace(&mut statement, values)?;
    let planning = context.plan(statement);
    let plan = planning.instrument(tracing::debug_span!("plan")).await?;
    Ok((plan, frames))
}
