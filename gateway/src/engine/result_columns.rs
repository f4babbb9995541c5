use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use volary_flight_proto::Result;
use volary_flight_proto::ticket::fingerprint;
use volary_planner::explain;

use super::errors::with_advice;

/// Returns the columns as the query will send them. The planner leaves it to the analyzer to find a
/// common type for the branches of a UNION or a CASE, so this runs the analyzer.
///
/// # Errors
/// Returns the analyzer's error if types have no common type.
pub(super) fn coerced_schema(state: &SessionState, plan: &LogicalPlan) -> Result<SchemaRef> {
    let stated = announced_schema(plan);
    if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) {
        return Ok(stated);
    }
    let analyzed = state
        .analyzer()
        .execute_and_check(plan.clone(), state.config_options(), |_, _| {})
        .map_err(with_advice)?;
    Ok(combine_names_and_types(&stated, analyzed.schema().inner()))
}

/// Returns the columns that a client is told about. EXPLAIN returns Volary's own columns, not
/// DataFusion's.
pub(super) fn announced_schema(plan: &LogicalPlan) -> SchemaRef {
    match plan {
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => explain::schema(),
        _ => Arc::clone(plan.schema().inner()),
    }
}

/// Combines the names of `schema`, which the statement gives, with the types of `planned`. Before
/// it is analyzed, a UNION has the types of its first branch.
pub(super) fn combine_names_and_types(schema: &SchemaRef, planned: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().zip(planned.fields());
    let typed: Vec<_> = fields
        .map(|(field, planned)| {
            field
                .as_ref()
                .clone()
                .with_data_type(planned.data_type().clone())
        })
        .collect();
    Arc::new(Schema::new_with_metadata(typed, schema.metadata().clone()))
}

/// Returns a fingerprint of the columns: of their names, types and nullability.
pub(super) fn columns_fingerprint(schema: &Schema) -> u64 {
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| (field.name(), field.data_type(), field.is_nullable()))
        .collect();
    fingerprint(&format!("{columns:?}"))
}
