//! DataFusion leaves columns out of a sort that are constant within each partition. For example,
//! `ORDER BY c, v` sorts the branches `SELECT 2 AS c, v …` and `SELECT 1 AS c, v …` by `v` only. As
//! of DataFusion 55, the top-k sorts of all partitions then share one threshold. So rows with
//! `c = 1` are discarded in favour of rows with `c = 2` and a smaller `v`. A sort shares no
//! threshold if the limit is an operator of its own, above the sort.

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

/// Splits top-k sorts of branches that differ in a constant into a sort and a limit.
#[derive(Debug)]
pub(crate) struct BranchLimits;

impl PhysicalOptimizerRule for BranchLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if plan.exists(|node| Ok(branch_limit(node).is_some()))? {
            split_sorts(plan, None)
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

/// Splits the affected sorts of `plan`. `merged_by` are the keys by which an operator directly
/// above merges the partitions of `plan`.
fn split_sorts(
    plan: Arc<dyn ExecutionPlan>,
    merged_by: Option<&LexOrdering>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let merge = plan.downcast_ref::<SortPreservingMergeExec>();
    let keys = merge.map(SortPreservingMergeExec::expr);
    let inputs = plan
        .children()
        .into_iter()
        .map(|input| split_sorts(Arc::clone(input), keys))
        .collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(plan, inputs)?;
    match (branch_limit(&plan), plan.downcast_ref::<SortExec>()) {
        // If the sort has all keys of the merge, one threshold is right for all branches.
        (Some(fetch), Some(sort)) if merged_by != Some(sort.expr()) => {
            let sort = Arc::new(sort.with_fetch(None));
            Ok(Arc::new(LocalLimitExec::new(sort, fetch)))
        }
        _ => Ok(plan),
    }
}

/// Returns the limit of a sort whose partitions differ in a constant.
fn branch_limit(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let sort = plan.downcast_ref::<SortExec>()?;
    let constants = sort.input().equivalence_properties().constants();
    let has_differing_constant = constants
        .iter()
        .any(|constant| constant.across_partitions == AcrossPartitions::Heterogeneous);
    sort.fetch()
        .filter(|_| sort.preserve_partitioning() && has_differing_constant)
}
