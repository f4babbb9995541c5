//! Plans as they are run: what DataFusion's operators do not do by themselves is put around them.
//!
//! Joins stop when their query has ended, wait for nobody who never comes, and give way to other tasks; what is kept is counted,
//! and read once if it may not be read twice.

/// Operators of ours around one of DataFusion's.
mod around;
/// Joins that collect one side, and partitions that nobody reads.
mod collect_left;
/// The collected side of nested loop joins.
mod read_once;
/// Filters of joins that stop.
mod stoppable;
/// The rows that window functions keep.
mod window_memory;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::windows::WindowAggExec;
use tokio_util::sync::{CancellationToken, DropGuard};

use collect_left::reporting_when_dropped;
use read_once::read_once;
use stoppable::stoppable;
use window_memory::counted;

/// Its joins stop when it is dropped.
#[derive(Debug)]
pub struct StopsWhenDropped(#[allow(dead_code)] DropGuard); // held, never read

/// The plan to run in place of `plan`, and what to hold as long as it is to run. To be called when no rule will change the plan
/// any more.
///
/// # Errors
/// If an operator cannot be rebuilt.
pub fn runnable(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<(Arc<dyn ExecutionPlan>, StopsWhenDropped)> {
    let ended = CancellationToken::new();
    let runnable = plan.transform_up(|node| {
        if let Some(join) = runnable_join(&node, &ended)? {
            return Ok(Transformed::yes(Arc::new(CooperativeExec::new(join)) as _));
        }
        if let Some(window) = node.downcast_ref::<WindowAggExec>() {
            let kept = counted(window.input());
            return replace_children_if_necessary(node, vec![kept]).map(Transformed::yes);
        }
        Ok(Transformed::no(node))
    })?;
    Ok((runnable.data, StopsWhenDropped(ended.drop_guard())))
}

fn runnable_join(
    node: &Arc<dyn ExecutionPlan>,
    ended: &CancellationToken,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let filter = join.filter().map(|filter| stoppable(filter, ended));
        let join = join.builder().with_filter(filter).build_exec()?;
        return Ok(Some(reporting_when_dropped(join, ended)));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let (left, right) = (read_once(join.left()), Arc::clone(join.right()));
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_filter(join.filter().map(|filter| stoppable(filter, ended)))
            .with_projection_ref(join.projection().clone())
            .build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let filter = join.filter().as_ref();
        let join = SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            filter.map(|filter| stoppable(filter, ended)),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        return Ok(Some(Arc::new(join)));
    }
    Ok(node.is::<CrossJoinExec>().then(|| Arc::clone(node)))
}
