use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::LogicalPlan;
use volary_flight_proto::{Error, Result};
use volary_planner::fragment::statement_parameter;
use volary_planner::gather::QueryContext;
use volary_planner::generic_plan::GenericPlan;

use super::CachedPlan;
use super::parameter_uses::count_uses;
use crate::engine::PlannedQuery;
use crate::engine::context::StatementContext;
use crate::engine::description::describe_rows;
use crate::engine::frame_parameters::FrameParameters;
use crate::engine::kept_plan::{PlanDependencies, is_repeatable_query, replace_tables};
use crate::engine::parameters::{Parameters, parameter_index, replace_parameters, with_types};
use crate::engine::statement_key::StatementKey;
use crate::sql::parse::{Statement, parse};

/// The outcome of an attempt to make a generic plan.
pub(super) enum PlanAttempt {
    /// The generic plan.
    Plan(Box<CachedPlan>),
    /// A plan made with these values would not suit other values.
    UnsuitableValues,
    /// The statement cannot have a generic plan, for this reason.
    Impossible(&'static str),
}

/// Makes the generic plan of a statement's template. `plan` is the logical plan of the statement,
/// which was just planned as `query`. `literals` are the values of the template's parameters.
///
/// # Errors
/// Returns the errors of planning.
pub(super) async fn make_plan_of_template(
    context: &StatementContext,
    template: &StatementKey,
    plan: &LogicalPlan,
    query: &PlannedQuery,
    literals: &RecordBatch,
) -> Result<PlanAttempt> {
    let Statement::Planned(mut statement) = parse(template.sql())? else {
        return Err(Error::internal("the template of a query is no query"));
    };
    if !FrameParameters::replace(&mut statement, Some(literals))?.is_empty() {
        return Ok(PlanAttempt::Impossible(
            "it has a literal in the frame of a window",
        ));
    }
    let plan_of_template = context.plan(*statement).await?;
    // A name may contain the text of a literal.
    if plan_of_template.schema() != plan.schema() {
        return Ok(PlanAttempt::Impossible(
            "the names or types of its columns depend on a literal",
        ));
    }
    let parameters = Parameters::from_plan(
        &plan_of_template,
        &FrameParameters::default(),
        context.time_zone(),
    )?;
    if !parameters.mean_the_same_as(literals) {
        return Ok(PlanAttempt::UnsuitableValues);
    }
    make_generic_plan(context, plan_of_template, query, Some(literals)).await
}

/// Makes the generic plan of a statement that was just planned as `query`. `plan` is its logical
/// plan without values.
///
/// The parameters stay parameters through the optimizer, which knows only their types. After that,
/// literals with the values of `query` replace them. The literals are marked, so that the physical
/// plan shows what the planner has made of each parameter.
///
/// # Errors
/// Returns the errors of planning.
pub(super) async fn make_generic_plan(
    context: &StatementContext,
    plan: LogicalPlan,
    query: &PlannedQuery,
    values: Option<&RecordBatch>,
) -> Result<PlanAttempt> {
    if !is_repeatable_query(&plan)? {
        return Ok(PlanAttempt::Impossible(
            "it reads more than tables, or calls a function whose value changes",
        ));
    }
    if !GenericPlan::may_be_generic(&query.plan, !query.reads.is_empty()) {
        return Ok(PlanAttempt::UnsuitableValues);
    }
    let description = describe_rows(context, &plan, &FrameParameters::default(), None)?;
    let plan = with_estimates_only(plan)?;
    let parameters =
        Parameters::from_plan(&plan, &FrameParameters::default(), context.time_zone())?;
    let values = parameters.values(values)?;
    if values.iter().any(ScalarValue::is_null) || !parameters.have_types_of(&values) {
        return Ok(PlanAttempt::UnsuitableValues);
    }
    let state = &context.state;
    let value_types: Vec<_> = values.iter().map(|value| Some(value.data_type())).collect();
    let optimized = state.optimize(&with_types(plan, &value_types)?)?;
    let Some(uses) = count_uses(&optimized, values.len())? else {
        return Ok(PlanAttempt::Impossible(
            "a parameter stands elsewhere than in column = parameter, or the column is mentioned again",
        ));
    };
    let planner = state.query_planner();
    let physical = planner
        .create_physical_plan(&with_literals(optimized, &values)?, state)
        .await?;
    let config = state.config();
    let query_context = config
        .get_extension::<QueryContext>()
        .ok_or_else(|| Error::internal("a statement was planned without a query context"))?;
    let plan = GenericPlan::from_plan(physical, &uses, &query_context, config.batch_size())?;
    Ok(plan.map_or(PlanAttempt::UnsuitableValues, |plan| {
        PlanAttempt::Plan(Box::new(CachedPlan {
            dependencies: PlanDependencies::new(&context.catalog, query.reads.clone()),
            plan,
            parameters,
            types: values.iter().map(ScalarValue::data_type).collect(),
            schema: Arc::clone(&query.schema),
            client_schemas: Arc::clone(&query.client_schemas),
            description,
            config: config.clone(),
            context: query_context,
            memory: context.memory,
            uses: AtomicU32::new(0),
        }))
    }))
}

/// Returns the plan with inexact statistics for its tables. The planner then treats the catalog's
/// numbers about the rows only as estimates.
fn with_estimates_only(plan: LogicalPlan) -> Result<LogicalPlan> {
    replace_tables(plan, |table| Ok(table.with_inexact_statistics()))
}

/// Returns the plan with literals in place of its parameters.
fn with_literals(plan: LogicalPlan, values: &[ScalarValue]) -> DfResult<LogicalPlan> {
    replace_parameters(plan, |parameter| {
        let number = parameter_index(&parameter)?;
        let value = values.get(number)?;
        Some(statement_parameter::literal(value.clone(), number))
    })
}
