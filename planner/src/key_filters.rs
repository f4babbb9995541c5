use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::gather::GatherExec;
use crate::gather::runtime_filter::{push_down, split_by_key};

/// Takes the filter of each single key of a join to gathers that the filter of all keys does not
/// reach. Such a gather is below an aggregate that computes one of the keys (the minimum of a
/// correlated subquery), or reads one of several tables that the keys come from.
#[derive(Debug)]
pub(crate) struct KeyFilters;

impl PhysicalOptimizerRule for KeyFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(narrow_by_each_key)?.data)
    }

    fn name(&self) -> &'static str {
        "KeyFilters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn narrow_by_each_key(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else {
        return Ok(Transformed::no(node));
    };
    let (build, probe) = (join.left(), join.right());
    // Nested keys may have no minimum and maximum, which the join would compute for its filter.
    let has_bounds = |key: &Arc<dyn PhysicalExpr>| {
        let data_type = key.data_type(&probe.schema());
        data_type.is_ok_and(|data_type| !data_type.is_nested())
    };
    if join.on().len() < 2 || !join.on().iter().all(|(_, key)| has_bounds(key)) {
        return Ok(Transformed::no(node));
    }
    let mut narrowed = Arc::clone(probe);
    for filter in join.dynamic_expressions_produced() {
        if let Ok(filter) = Arc::downcast::<DynamicFilterPhysicalExpr>(filter) {
            narrowed = push_down(narrowed, split_by_key(&filter)?, &narrow_gather)?;
        }
    }
    if Arc::ptr_eq(&narrowed, probe) {
        return Ok(Transformed::no(node));
    }
    let children = vec![Arc::clone(build), narrowed];
    Ok(Transformed::yes(replace_children_if_necessary(
        node, children,
    )?))
}

/// Adds filters to a gather. Filters that stop at any other operator are dropped, because the join
/// itself leaves out their rows.
fn narrow_gather(
    node: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let narrowed = node
        .downcast_ref::<GatherExec>()
        .and_then(|gather| gather.with_filters(filters));
    Ok(narrowed.map_or(node, |gather| Arc::new(gather) as _))
}
