//! In a plan that [`make_runnable`] has prepared:
//!
//! - Joins stop when their query has ended, do not wait for partitions that nobody reads, and yield
//!   to other tasks.
//! - The rows that window functions keep are counted in the memory pool.
//! - An input that must not be read twice is read only once.
//! - Operators that compute with large constants are given few rows at a time.
//! - Functions that make large values are called for few rows at a time.
//! - Rows are not copied if the copies would be too large.
//! - Tasks that compute for long take turns.

/// Fixes joins that collect one side whole and wait for partitions that nobody reads.
mod collect_left;
/// Gives few rows at a time to operators that compute with a large constant.
mod constants;
/// Displays plans that have run, without the operators that only take turns.
mod display;
/// Cuts batches to few rows if something large is copied for each row.
mod few_rows;
/// Evaluates functions that make large values, or compute for long, for few rows at a time.
mod in_pieces;
/// Exports the operators of a plan that has run as spans of a trace.
mod operator_spans;
/// Makes sure that the collected side of a nested loop join is read only once.
mod read_once;
/// Makes expressions stop when their query has ended.
mod stoppable;
/// Polls the inputs of operators that have tasks of their own only when it is their turn.
mod turns;
/// Limits the copies that joins and unnesting make of wide rows.
mod wide_rows;
/// Counts in the memory pool the rows that window functions keep.
mod window_memory;
/// Implements operators that wrap one of DataFusion's: they return the same rows and do something
/// in addition.
mod wrapper;

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
use tokio_util::sync::CancellationToken;

use collect_left::report_when_dropped;
use constants::cut_rows_for_constants;
pub use display::{display_with_metrics, is_hidden};
use in_pieces::compute_in_pieces;
pub use operator_spans::record_operators;
use read_once::read_once;
use stoppable::make_filter_stoppable;
use turns::poll_inputs_in_turns;
use volary_node::runtimes::{PlanOwner, Runtimes};
use wide_rows::limit_wide_rows;
use window_memory::count_kept_rows;

/// Returns the plan to run in place of `plan`, with the settings of `task` and on these runtimes.
/// Also returns the owner of the plan, which must be kept as long as the plan is to run. Call it
/// after all planner rules have run.
///
/// # Errors
/// `ResourcesExhausted` for a constant that is too large for its operator. Also fails if an
/// operator cannot be rebuilt.
pub fn make_runnable(
    plan: Arc<dyn ExecutionPlan>,
    task: &TaskContext,
    runtimes: &Runtimes,
) -> Result<(Arc<dyn ExecutionPlan>, PlanOwner)> {
    let (ended, work) = (CancellationToken::new(), runtimes.work());
    let runnable = plan.transform_up(|node| {
        let node = limit_wide_rows(cut_rows_for_constants(node, task)?, task)?;
        let node = compute_in_pieces(poll_inputs_in_turns(node, &work)?, &ended)?;
        if let Some(join) = make_join_runnable(&node, &ended)? {
            return Ok(Transformed::yes(Arc::new(CooperativeExec::new(join)) as _));
        }
        if let Some(window) = node.downcast_ref::<WindowAggExec>() {
            let counted_input = count_kept_rows(window.input());
            return replace_children_if_necessary(node, vec![counted_input]).map(Transformed::yes);
        }
        Ok(Transformed::yes(node))
    })?;
    Ok((runnable.data, PlanOwner::new(work, ended)))
}

fn make_join_runnable(
    node: &Arc<dyn ExecutionPlan>,
    ended: &CancellationToken,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let filter = join.filter();
        let filter = filter.map(|filter| make_filter_stoppable(filter, ended));
        let filter = filter.transpose()?;
        let join = join.builder().with_filter(filter).build_exec()?;
        return Ok(Some(report_when_dropped(join, ended)));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let (left, right) = (read_once(join.left()), Arc::clone(join.right()));
        let filter = join.filter();
        let filter = filter.map(|filter| make_filter_stoppable(filter, ended));
        let filter = filter.transpose()?;
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_filter(filter)
            .with_projection_ref(join.projection().clone())
            .build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let filter = join.filter().as_ref();
        let filter = filter.map(|filter| make_filter_stoppable(filter, ended));
        let join = SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            filter.transpose()?,
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        return Ok(Some(Arc::new(join)));
    }
    Ok(node.is::<CrossJoinExec>().then(|| Arc::clone(node)))
}

/// Creates a context in which one value may take a megabyte, and the values of a batch four
/// megabytes.
#[cfg(test)]
fn context_with_small_values() -> datafusion::prelude::SessionContext {
    use datafusion::prelude::{SessionConfig, SessionContext};

    use crate::value_limit::ValueLimit;
    use volary_node::memory::ByteLimit;

    let values = ByteLimit {
        bytes: 1_000_000,
        setting: "node.max_value",
    };
    let config = SessionConfig::new().with_target_partitions(2);
    SessionContext::new_with_config(ValueLimit(values).set(config))
}
