//! The columns of the rows that a statement returns.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use volary_flight_proto::Result;
use volary_flight_proto::ticket::fingerprint;
use volary_planner::explain;

use super::errors::with_advice;

/// The columns as the query will send them. The planner leaves it to the analyzer to find the types that the branches of a UNION
/// or a CASE have in common.
///
/// # Errors
/// Those of the analyzer, for types that have none in common.
pub(super) fn coerced_schema(state: &SessionState, plan: &LogicalPlan) -> Result<SchemaRef> {
    let stated = rows_schema(plan);
    if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) {
        return Ok(stated);
    }
    let analyzed = state
        .analyzer()
        .execute_and_check(plan.clone(), state.config_options(), |_, _| {})
        .map_err(with_advice)?;
    Ok(with_types_of(&stated, analyzed.schema().inner()))
}

/// The columns that a client is told of: what EXPLAIN returns is ours.
pub(super) fn rows_schema(plan: &LogicalPlan) -> SchemaRef {
    match plan {
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => explain::schema(),
        _ => Arc::clone(plan.schema().inner()),
    }
}

/// Names as the statement says; types as they come: a UNION has those of its first branch until it is analyzed.
pub(super) fn with_types_of(schema: &SchemaRef, planned: &SchemaRef) -> SchemaRef {
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

/// What tells columns apart: their names, types and nullability.
pub(super) fn fingerprint_of(schema: &Schema) -> u64 {
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| (field.name(), field.data_type(), field.is_nullable()))
        .collect();
    fingerprint(&format!("{columns:?}"))
}
