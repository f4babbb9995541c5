use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::gather::GatherExec;

/// Tells each gather how many gathers its query has. All of them may run at the same time, and
/// share the memory of the query.
#[derive(Debug)]
pub(crate) struct GatherCount;

impl PhysicalOptimizerRule for GatherCount {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut gathers = 0;
        plan.apply(|node| {
            gathers += usize::from(node.is::<GatherExec>());
            Ok(TreeNodeRecursion::Continue)
        })?;
        if gathers < 2 {
            return Ok(plan);
        }
        let updated = plan.transform_up(|node| {
            Ok(match node.downcast_ref::<GatherExec>() {
                Some(gather) => Transformed::yes(Arc::new(gather.with_gather_count(gathers)) as _),
                None => Transformed::no(node),
            })
        })?;
        Ok(updated.data)
    }

    fn name(&self) -> &'static str {
        "GatherCount"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
