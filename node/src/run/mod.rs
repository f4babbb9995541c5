//! Plans as they are run: what DataFusion's operators do not do by themselves is put around them.
//!
//! Joins stop when their query has ended, wait for nobody who never comes, and give way to other tasks; what is kept is counted,
//! and read once if it may not be read twice; large constants stand beside few rows at once; and what computes for long takes turns.

/// Operators of ours around one of DataFusion's.
mod around;
/// Joins that collect one side, and partitions that nobody reads.
mod collect_left;
/// Large constants beside columns.
mod constants;
/// The collected side of nested loop joins.
mod read_once;
/// Operators whose streams are polled when it is their turn.
mod shown;
/// Filters of joins that stop.
mod stoppable;
mod turns;
/// The rows that window functions keep.
mod window_memory;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::windows::WindowAggExec;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Runtimes;
use crate::runtimes::turns::Work;
use collect_left::reporting_when_dropped;
use constants::with_few_rows_at_once;
use read_once::read_once;
pub use shown::{is_hidden, shown_with_metrics};
use stoppable::stoppable;
use turns::with_inputs_in_turns;
use window_memory::counted;

/// A plan that runs, or is to be run. Its joins stop when this is dropped.
#[derive(Debug)]
pub struct StopsWhenDropped {
    work: Work,
    _ended: DropGuard,
}

impl StopsWhenDropped {
    /// What all of its tasks belong to.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }
}

/// The plan to run on these runtimes, as this task, in place of `plan`, and what to hold as long as it is to run. To be called when no rule will change
/// the plan any more.
///
/// # Errors
/// `ResourcesExhausted` for a constant that is too large for its operator; if an operator cannot be rebuilt.
pub fn runnable(
    plan: Arc<dyn ExecutionPlan>,
    task: &TaskContext,
    runtimes: &Runtimes,
) -> Result<(Arc<dyn ExecutionPlan>, StopsWhenDropped)> {
    let (ended, work) = (CancellationToken::new(), runtimes.work());
    let runnable = plan.transform_up(|node| {
        let node = with_inputs_in_turns(with_few_rows_at_once(node, task)?, &work)?;
        if let Some(join) = runnable_join(&node, &ended)? {
            return Ok(Transformed::yes(Arc::new(CooperativeExec::new(join)) as _));
        }
        if let Some(window) = node.downcast_ref::<WindowAggExec>() {
            let kept = counted(window.input());
            return replace_children_if_necessary(node, vec![kept]).map(Transformed::yes);
        }
        Ok(Transformed::yes(node))
    })?;
    let running = StopsWhenDropped {
        work,
        _ended: ended.drop_guard(),
    };
    Ok((runnable.data, running))
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
