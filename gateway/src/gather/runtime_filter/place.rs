//! Where a filter goes within a fragment.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPhase, PushedDown};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use volary_node::unique_names::are_unique;

use super::Expr;

/// The fragment with `filter`, an expression over its rows, as near to its scans as it may go.
///
/// # Errors
/// If an operator cannot be rebuilt.
pub fn place(fragment: Arc<dyn ExecutionPlan>, filter: &Expr) -> Result<Arc<dyn ExecutionPlan>> {
    let mut config = ConfigOptions::new();
    // Operators of the fragment add filters of their own on the workers.
    config.optimizer.enable_dynamic_filter_pushdown = false;
    config.optimizer.enable_join_dynamic_filter_pushdown = false;
    config.optimizer.enable_topk_dynamic_filter_pushdown = false;
    config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    let filters = split_conjunction(filter).into_iter().cloned().collect();
    place_all(fragment, filters, &config)
}

fn place_all(
    node: Arc<dyn ExecutionPlan>,
    filters: Vec<Expr>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children();
    let names_are_unique =
        are_unique(&node.schema()) && children.iter().all(|child| are_unique(&child.schema()));
    // Below a limit, a filter would choose other rows; and it is taken down by the names of its columns.
    if children.is_empty() || node.fetch().is_some() || !names_are_unique {
        return filter_above(node, filters);
    }
    let description =
        node.gather_filters_for_pushdown(FilterPushdownPhase::Post, filters.clone(), config)?;
    let mut pushed = vec![false; filters.len()];
    let mut placed = Vec::with_capacity(children.len());
    for (child, answers) in children.iter().zip(description.parent_filters()) {
        let mut below = Vec::new();
        for (pushed, answer) in pushed.iter_mut().zip(answers) {
            if matches!(answer.discriminant, PushedDown::Yes) {
                *pushed = true;
                below.push(answer.predicate);
            }
        }
        placed.push(if below.is_empty() {
            Arc::clone(child)
        } else {
            place_all(Arc::clone(child), below, config)?
        });
    }
    let node = replace_children_if_necessary(Arc::clone(&node), placed)?;
    let left: Vec<_> = filters
        .into_iter()
        .zip(pushed)
        .filter_map(|(filter, pushed)| (!pushed).then_some(filter))
        .collect();
    filter_above(node, left)
}

fn filter_above(
    node: Arc<dyn ExecutionPlan>,
    filters: Vec<Expr>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if filters.is_empty() {
        return Ok(node);
    }
    Ok(Arc::new(FilterExec::try_new(conjunction(filters), node)?))
}
