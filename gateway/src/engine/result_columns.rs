use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan};
use volary_exec::rewrite::{has_part, rewrite_expressions};
use volary_flight_proto::ticket::fingerprint;
use volary_flight_proto::{Error, Result, SqlState};
use volary_planner::explain;

use super::errors::{correlation_error, with_advice};
use crate::sql::headings::{heading, is_marked};
use crate::sql_type::driver_metadata;

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
    let typed = with_literal_arguments(analyzed)?;
    Ok(combine_names_and_types(&stated, typed.schema().inner()))
}

/// Returns the plan with literals in place of casts of literals, if a function has such an
/// argument. The types of some functions depend on the values of their arguments, as that of
/// `round(decimal, 2)` does. The analyzer casts the arguments, and only the optimizer would compute
/// the casts.
fn with_literal_arguments(plan: LogicalPlan) -> Result<LogicalPlan> {
    let has_cast_argument = |part: &Expr| {
        let Expr::ScalarFunction(call) = part else {
            return false;
        };
        call.args.iter().any(is_cast_of_literal)
    };
    if !has_part_anywhere(&plan, has_cast_argument)? {
        return Ok(plan);
    }
    let typed = plan.transform_up_with_subqueries(|node| {
        let node = rewrite_expressions(node, |part, _| {
            Ok(match computed_cast(&part) {
                Some(literal) => Transformed::yes(literal),
                None => Transformed::no(part),
            })
        })?;
        Ok(Transformed::yes(node.data.recompute_schema()?))
    })?;
    Ok(typed.data)
}

fn is_cast_of_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Cast(cast) if matches!(*cast.expr, Expr::Literal(..)))
}

/// Returns the value of a cast of a literal. Returns `None` for another expression and for a cast
/// that fails: running the statement reports the error, unless the cast is never reached.
fn computed_cast(expression: &Expr) -> Option<Expr> {
    let Expr::Cast(Cast { expr, field }) = expression else {
        return None;
    };
    let Expr::Literal(value, metadata) = expr.as_ref() else {
        return None;
    };
    let value = value.cast_to(field.data_type()).ok()?;
    Some(Expr::Literal(value, metadata.clone()))
}

/// Refuses a statement with a correlated subquery for which the optimizer finds no join. Otherwise,
/// this would be known only when the statement runs. Other statements are not optimized.
///
/// # Errors
/// `INVALID_ARGUMENT`, and the errors of the optimizer.
pub(super) fn check_correlations(state: &SessionState, plan: &LogicalPlan) -> Result<()> {
    if !has_correlation(plan)? {
        return Ok(());
    }
    let optimized = state.optimize(plan).map_err(with_advice)?;
    if has_correlation(&optimized)? {
        return Err(correlation_error());
    }
    Ok(())
}

fn has_correlation(plan: &LogicalPlan) -> Result<bool> {
    has_part_anywhere(plan, |part| {
        matches!(
            part,
            Expr::OuterReferenceColumn(_, _) | Expr::SetComparison(_)
        )
    })
}

/// Returns whether `is_match` is true for any part of the expressions of a plan, subqueries
/// included.
fn has_part_anywhere(plan: &LogicalPlan, is_match: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = has_part(node, &is_match)?;
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    Ok(found)
}

/// Returns whether a client gets rows of the statement. The kind of statement decides, because a
/// plan of DDL has columns too.
pub(super) fn returns_rows(plan: &LogicalPlan) -> bool {
    !matches!(
        plan,
        LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
    )
}

/// Returns the columns that a client is told about. EXPLAIN returns Volary's own columns, not
/// DataFusion's.
pub(super) fn announced_schema(plan: &LogicalPlan) -> SchemaRef {
    match plan {
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => explain::schema(),
        _ => without_marks(plan.schema().inner()),
    }
}

/// Returns the columns with the names that they have for clients.
fn without_marks(schema: &SchemaRef) -> SchemaRef {
    let mut fields = schema.fields().iter();
    if !fields.any(|field| is_marked(field.name())) {
        return Arc::clone(schema);
    }
    let named = schema.fields().iter().map(|field| {
        let name = heading(field.name());
        field.as_ref().clone().with_name(name)
    });
    let named: Vec<_> = named.collect();
    Arc::new(Schema::new_with_metadata(named, schema.metadata().clone()))
}

/// Refuses columns of equal names, which a result may have, but not a table or a view. `what` is
/// the table or the view, for the error.
///
/// # Errors
/// `INVALID_ARGUMENT` with the name.
pub(super) fn check_distinct_names(what: &str, schema: &Schema) -> Result<()> {
    let mut names = HashSet::new();
    for field in schema.fields() {
        if !names.insert(field.name()) {
            return Err(Error::invalid(format!(
                "{what} has two columns named {}; give them different names",
                field.name()
            ))
            .with_sqlstate(SqlState::DuplicateColumn));
        }
    }
    Ok(())
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

/// Returns the columns with the names and the digits of their types, which JDBC and ODBC show.
pub(super) fn with_sql_types(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let mut metadata = field.metadata().clone();
        metadata.extend(driver_metadata(field.data_type()));
        field.as_ref().clone().with_metadata(metadata)
    });
    let fields: Vec<_> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
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
