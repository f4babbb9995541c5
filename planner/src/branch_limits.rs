//! Top-k of the branches of a union.
//!
//! DataFusion leaves out of a sort what is constant within each of its partitions: ordered by `(c, v)`, the branches
//! `SELECT 2 AS c, v …` and `SELECT 1 AS c, v …` are sorted by `v`. The top-k of all partitions then share one threshold, as of
//! DataFusion 55: rows with `c = 1` are thrown away for rows with `c = 2` and a smaller `v`. A sort with a limit of its own above
//! it shares nothing.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::equivalence::AcrossPartitions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary,
};

/// Takes such sorts and limits apart.
#[derive(Debug)]
pub struct BranchLimits;

impl PhysicalOptimizerRule for BranchLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if plan.exists(|node| Ok(limit_of_branches(node).is_some()))? {
            apart(plan, None)
        } else {
            Ok(plan)
        }
    }

    fn name(&self) -> &'static str {
        "BranchLimits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `merged_by`: the keys by which the plan's partitions are merged right above it.
fn apart(
    plan: Arc<dyn ExecutionPlan>,
    merged_by: Option<&LexOrdering>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let merge = plan.downcast_ref::<SortPreservingMergeExec>();
    let keys = merge.map(SortPreservingMergeExec::expr);
    let inputs = plan
        .children()
        .into_iter()
        .map(|input| apart(Arc::clone(input), keys))
        .collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(plan, inputs)?;
    match (limit_of_branches(&plan), plan.downcast_ref::<SortExec>()) {
        // A threshold by all keys of the merge is right for all branches.
        (Some(fetch), Some(sort)) if merged_by != Some(sort.expr()) => {
            let sort = Arc::new(sort.with_fetch(None));
            Ok(Arc::new(LocalLimitExec::new(sort, fetch)))
        }
        _ => Ok(plan),
    }
}

/// The limit of a sort of partitions that differ in a constant.
fn limit_of_branches(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let sort = plan.downcast_ref::<SortExec>()?;
    let constants = sort.input().equivalence_properties().constants();
    let differ = constants
        .iter()
        .any(|constant| constant.across_partitions == AcrossPartitions::Heterogeneous);
    sort.fetch()
        .filter(|_| sort.preserve_partitioning() && differ)
}
