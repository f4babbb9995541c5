use arrow::record_batch::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use volary_flight_proto::Result;

use super::context::StatementContext;
use super::frame_parameters::FrameParameters;
use super::result_columns::{announced_schema, check_correlations, coerced_schema, with_sql_types};
use super::{StatementDescription, parameters};

/// Describes a statement that returns rows. `values` are those of its parameters, if they are
/// known.
///
/// # Errors
/// Returns the errors of planning that are found without running the optimizer.
pub(super) fn describe_rows(
    context: &StatementContext,
    plan: &LogicalPlan,
    frames: &FrameParameters,
    values: Option<&RecordBatch>,
) -> Result<StatementDescription> {
    let parameters = parameters::parameter_types(plan, frames)?;
    let has_unbound_parameters = values.is_none() && !parameters.is_empty();
    let plan = match values {
        Some(_) => parameters::bind(plan.clone(), values, frames, context.time_zone())?,
        None if has_unbound_parameters => parameters::with_types(plan.clone(), &parameters)?,
        None => plan.clone(),
    };
    let has_unknown_types = values.is_none() && parameters.contains(&None);
    if !has_unknown_types {
        check_correlations(&context.state, &plan)?;
    }
    let rows = match coerced_schema(&context.state, &plan) {
        Ok(schema) => schema,
        // A parameter without a type cannot be coerced. The values that are bound later have types.
        Err(_) if has_unbound_parameters => announced_schema(&plan),
        Err(error) => return Err(error),
    };
    Ok(StatementDescription {
        rows: Some(with_sql_types(&rows)),
        parameters,
    })
}
