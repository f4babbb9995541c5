use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::{Explain, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use tracing::Instrument as _;
use volary_flight_proto::Result;
use volary_planner::explain::ExplainedPlans;
use volary_planner::{analysis, explain};

use super::context::StatementContext;
use super::errors::with_advice;
use super::listing::is_listing;
use super::result_columns::{
    announced_schema, combine_names_and_types, returns_rows, with_sql_types,
};
use super::statement_key::StatementKey;
use super::{Engine, PlannedQuery};

/// Creates the physical plan of a statement that returns rows, with everything that running it
/// needs. `statement` is its logical plan without the values of parameters, and `bound` the one
/// with them. `key` identifies it among the generic plans.
///
/// # Errors
/// Returns the errors of planning.
pub(super) async fn plan_query(
    engine: &Engine,
    context: &StatementContext,
    key: &StatementKey,
    statement: &LogicalPlan,
    bound: &LogicalPlan,
    values: Option<&RecordBatch>,
) -> Result<PlannedQuery> {
    let planning = async {
        match (statement, bound) {
            (LogicalPlan::Explain(statement), LogicalPlan::Explain(bound)) => {
                plan_explain(engine, context, key, &statement.plan, bound, values).await
            }
            _ => plan_rows(engine, context, bound).await,
        }
    };
    planning.instrument(tracing::debug_span!("optimize")).await
}

async fn plan_rows(
    engine: &Engine,
    context: &StatementContext,
    plan: &LogicalPlan,
) -> Result<PlannedQuery> {
    if let LogicalPlan::Analyze(statement) = plan {
        let runtimes = context.runtimes.clone();
        let plan = analysis::analyze(&context.state, context.query_id, runtimes, statement).await?;
        return Ok(planned(engine, context, &explain::schema(), plan, false));
    }
    let planning = context.state.create_physical_plan(plan);
    let physical = planning.await.map_err(with_advice)?;
    Ok(planned_rows(engine, context, plan, physical))
}

/// Creates the plan whose rows explain a statement. `statement` is the logical plan of the
/// explained statement without the values of parameters.
async fn plan_explain(
    engine: &Engine,
    context: &StatementContext,
    key: &StatementKey,
    statement: &LogicalPlan,
    bound: &Explain,
    values: Option<&RecordBatch>,
) -> Result<PlannedQuery> {
    let plans = ExplainedPlans::make(&context.state, bound).await?;
    let generic_plan = if returns_rows(&bound.plan) {
        let query = planned_rows(engine, context, &bound.plan, Arc::clone(plans.physical()));
        let plans = &engine.generic_plans;
        let explaining = plans.explain(context, key, statement, &query, values);
        Box::pin(explaining).await
    } else {
        None
    };
    let rows = plans.show(generic_plan.as_deref())?;
    Ok(planned(engine, context, &explain::schema(), rows, false))
}

fn planned_rows(
    engine: &Engine,
    context: &StatementContext,
    plan: &LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
) -> PlannedQuery {
    let schema = combine_names_and_types(&announced_schema(plan), &physical.schema());
    planned(engine, context, &schema, physical, is_listing(plan))
}

fn planned(
    engine: &Engine,
    context: &StatementContext,
    schema: &SchemaRef,
    plan: Arc<dyn ExecutionPlan>,
    is_listing: bool,
) -> PlannedQuery {
    PlannedQuery {
        id: context.query_id,
        // A plan that is kept for the next statement has them, too.
        schema: with_sql_types(schema),
        snapshot: context.snapshot.clone(),
        reads: context.reads(),
        access: Arc::clone(context.catalog.access()),
        plan,
        task: context.task(),
        runtimes: context.runtimes.clone(),
        parsing_time: context.parsing_time,
        planning_time: context.started.elapsed(),
        plan_found: false,
        queue: engine.queue.clone(),
        claimant: context.claimant.clone(),
        is_listing,
        client_schemas: Arc::default(),
    }
}
