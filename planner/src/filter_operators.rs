use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use volary_exec::checked_arithmetic::with_operators;

/// Writes the conditions of filters with operators in place of the functions that stand for checked
/// operators. DataFusion estimates how many rows pass a condition only if it knows all its parts.
#[derive(Debug)]
pub(crate) struct FilterOperators;

impl PhysicalOptimizerRule for FilterOperators {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else {
                return Ok(Transformed::no(node));
            };
            let predicate = with_operators(Arc::clone(filter.predicate()))?;
            if !predicate.transformed {
                return Ok(Transformed::no(node));
            }
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data);
            Ok(Transformed::yes(Arc::new(filter.build()?) as _))
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &'static str {
        "FilterOperators"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
