//! Makes the generic plan of a statement.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use volary_flight_proto::{Error, Result};
use volary_planner::fragment::statement_parameter;
use volary_planner::gather::QueryContext;
use volary_planner::generic_plan::GenericPlan;
use volary_planner::session_limits::SessionLimits;
use volary_planner::table::ShardedTable;

use super::Generic;
use super::basis::Basis;
use super::places::uses;
use crate::engine::Query;
use crate::engine::context::StatementContext;
use crate::engine::parameters::{Parameters, number_of};

/// The outcome of an attempt to make a generic plan.
pub(super) enum Made {
    /// The generic plan.
    Plan(Box<Generic>),
    /// A plan made with these values would not show how to plan others.
    NotOfTheseValues,
    /// The statement cannot have a generic plan.
    Never,
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
pub(super) async fn generic(
    context: &StatementContext,
    plan: LogicalPlan,
    query: &Query,
    values: Option<&RecordBatch>,
) -> Result<Made> {
    if !is_the_same_each_time(&plan)? {
        return Ok(Made::Never);
    }
    if !GenericPlan::may_be_of(&query.plan, !query.reads.is_empty()) {
        return Ok(Made::NotOfTheseValues);
    }
    let plan = with_estimates_only(plan)?;
    let parameters = Parameters::of(&plan)?;
    let values = parameters.values(values)?;
    if values.iter().any(ScalarValue::is_null) {
        return Ok(Made::NotOfTheseValues);
    }
    let state = &context.state;
    let optimized = state.optimize(&with_types(plan, &values)?)?;
    let Some(uses) = uses(&optimized, values.len())? else {
        return Ok(Made::Never);
    };
    let planner = state.query_planner();
    let physical = planner
        .create_physical_plan(&with_literals(optimized, &values)?, state)
        .await?;
    let config = state.config();
    let query_context = config
        .get_extension::<QueryContext>()
        .ok_or_else(|| Error::internal("a statement was planned without a query context"))?;
    let plan = GenericPlan::of(physical, &uses, &query_context, config.batch_size())?;
    Ok(plan.map_or(Made::NotOfTheseValues, |plan| {
        Made::Plan(Box::new(Generic {
            basis: Basis::of(&context.catalog, query.reads.clone()),
            plan,
            parameters,
            types: values.iter().map(ScalarValue::data_type).collect(),
            schema: Arc::clone(&query.schema),
            config: config.clone(),
            context: query_context,
            memory: SessionLimits::memory(config),
            uses: AtomicU32::new(0),
        }))
    }))
}

/// Returns whether the query reads only tables, and calls no function that is computed during
/// planning, such as `now()`.
fn is_the_same_each_time(plan: &LogicalPlan) -> Result<bool> {
    let mut is_the_same = true;
    plan.apply_with_subqueries(|node| {
        is_the_same &= match node {
            LogicalPlan::TableScan(scan) => source_as_provider(&scan.source)?.is::<ShardedTable>(),
            LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::DescribeTable(_)
            | LogicalPlan::Extension(_) => false,
            _ => true,
        };
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                is_the_same &= match expression {
                    Expr::ScalarFunction(call) => {
                        call.func.signature().volatility == Volatility::Immutable
                    }
                    Expr::ScalarVariable(_, _) => false,
                    _ => true,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if is_the_same {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    })?;
    Ok(is_the_same)
}

/// Returns the plan for any rows of its tables. The planner then treats the catalog's numbers about
/// the rows only as estimates.
fn with_estimates_only(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|mut node| {
        let LogicalPlan::TableScan(scan) = &mut node else {
            return Ok(Transformed::no(node));
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<ShardedTable>() else {
            return Ok(Transformed::no(node));
        };
        scan.source = provider_as_source(Arc::new(table.with_estimates_only()));
        Ok(Transformed::yes(node))
    })?;
    Ok(plan.data)
}

/// Returns the plan with parameters that have the types of these values.
fn with_types(plan: LogicalPlan, values: &[ScalarValue]) -> DfResult<LogicalPlan> {
    replaced(plan, |parameter| {
        let value = number_of(&parameter).and_then(|number| values.get(number))?;
        let field = Field::new(&parameter.id, value.data_type(), true);
        let field = Some(Arc::new(field));
        Some(Expr::Placeholder(Placeholder {
            id: parameter.id,
            field,
        }))
    })
}

/// Returns the plan with literals in place of its parameters.
fn with_literals(plan: LogicalPlan, values: &[ScalarValue]) -> DfResult<LogicalPlan> {
    replaced(plan, |parameter| {
        let number = number_of(&parameter)?;
        let value = values.get(number)?;
        Some(statement_parameter::literal(value.clone(), number))
    })
}

fn replaced(
    plan: LogicalPlan,
    replace: impl Fn(Placeholder) -> Option<Expr>,
) -> DfResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform_up(|expression| match &expression {
                Expr::Placeholder(parameter) => Ok(match replace(parameter.clone()) {
                    Some(other) => Transformed::yes(other),
                    None => Transformed::no(expression),
                }),
                _ => Ok(Transformed::no(expression)),
            })
        })
    })?;
    Ok(plan.data)
}
