//! Plans as they are run: what DataFusion's operators do not do by themselves is put around them.
//!
//! Joins stop when their query has ended, wait for nobody who never comes, and give way to other tasks; what is kept is counted,
//! and read once if it may not be read twice; large constants stand beside few rows at once; functions that
//! make large values are called for few rows at once; rows are not copied when the copies would be too large;
//! and what computes for long takes turns.

/// Operators of ours around one of DataFusion's.
mod around;
/// Joins that collect one side, and partitions that nobody reads.
mod collect_left;
/// Large constants beside columns.
mod constants;
/// Few rows at once, beside something large.
mod few_rows;
/// Functions that take few rows at once.
mod in_pieces;
/// The collected side of nested loop joins.
mod read_once;
/// Plans that have run, as people read them.
mod shown;
/// Expressions that stop when their query has ended.
mod stoppable;
/// Operators whose streams are polled when it is their turn.
mod turns;
/// Rows that joins would make many copies of.
mod wide_rows;
/// The rows that window functions keep.
mod window_memory;

use std::sync::{Arc, OnceLock};

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
use volary_flight_proto::{Error, ErrorCode};

use crate::Runtimes;
use crate::runtimes::turns::Work;
use collect_left::reporting_when_dropped;
use constants::with_few_rows_at_once;
use in_pieces::in_pieces;
use read_once::read_once;
pub use shown::{is_hidden, shown_with_metrics};
use stoppable::stoppable_filter;
use turns::with_inputs_in_turns;
use wide_rows::without_wide_rows;
use window_memory::counted;

/// A plan that runs, or is to be run. Its joins stop when this is dropped.
#[derive(Debug)]
pub struct StopsWhenDropped {
    plan: RunningPlan,
    _ended: DropGuard,
}

impl StopsWhenDropped {
    /// Returns what all of its tasks belong to.
    pub(crate) fn work(&self) -> &Work {
        &self.plan.work
    }

    /// Returns a handle by which others look at it and end it.
    pub fn running(&self) -> RunningPlan {
        self.plan.clone()
    }

    /// Starts something of the plan: the memory that is held for it is the plan's.
    pub fn start<T>(&self, started: impl FnOnce() -> T) -> T {
        self.plan.work.within(started)
    }
}

/// A plan that runs, for others than its reader. Clones are the same plan.
#[derive(Debug, Clone)]
pub struct RunningPlan {
    work: Work,
    ended: CancellationToken,
    /// Why it was ended, if it was not its reader who has left it.
    why: Arc<OnceLock<String>>,
}

impl RunningPlan {
    /// Returns the bytes that its operators hold of the node's memory.
    pub fn held_bytes(&self) -> usize {
        self.work.held_bytes()
    }

    /// Ends it with `RESOURCE_EXHAUSTED`. Returns false if it has ended before.
    pub fn end(&self, why: &str) -> bool {
        let is_first = !self.ended.is_cancelled() && self.why.set(why.to_owned()).is_ok();
        if is_first {
            self.ended.cancel();
        }
        is_first
    }

    /// Completes with the error of a plan that was [ended](Self::end).
    pub(crate) async fn ended(&self) -> Error {
        self.ended.cancelled().await;
        match self.error() {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Returns the error of a plan that was [ended](Self::end).
    pub(crate) fn error(&self) -> Option<Error> {
        let why = self.why.get()?;
        Some(Error::new(ErrorCode::ResourceExhausted, why.as_str()))
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
        let node = without_wide_rows(with_few_rows_at_once(node, task)?, task)?;
        let node = in_pieces(with_inputs_in_turns(node, &work)?, &ended)?;
        if let Some(join) = runnable_join(&node, &ended)? {
            return Ok(Transformed::yes(Arc::new(CooperativeExec::new(join)) as _));
        }
        if let Some(window) = node.downcast_ref::<WindowAggExec>() {
            let kept = counted(window.input());
            return replace_children_if_necessary(node, vec![kept]).map(Transformed::yes);
        }
        Ok(Transformed::yes(node))
    })?;
    let plan = RunningPlan {
        work,
        ended: ended.clone(),
        why: Arc::default(),
    };
    let running = StopsWhenDropped {
        plan,
        _ended: ended.drop_guard(),
    };
    Ok((runnable.data, running))
}

fn runnable_join(
    node: &Arc<dyn ExecutionPlan>,
    ended: &CancellationToken,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let filter = join.filter();
        let filter = filter.map(|filter| stoppable_filter(filter, ended));
        let filter = filter.transpose()?;
        let join = join.builder().with_filter(filter).build_exec()?;
        return Ok(Some(reporting_when_dropped(join, ended)));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let (left, right) = (read_once(join.left()), Arc::clone(join.right()));
        let filter = join.filter();
        let filter = filter.map(|filter| stoppable_filter(filter, ended));
        let filter = filter.transpose()?;
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_filter(filter)
            .with_projection_ref(join.projection().clone())
            .build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let filter = join.filter().as_ref();
        let filter = filter.map(|filter| stoppable_filter(filter, ended));
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

/// Makes a context in which a value may have a megabyte, and the values of a batch four.
#[cfg(test)]
fn context_with_small_values() -> datafusion::prelude::SessionContext {
    use datafusion::prelude::{SessionConfig, SessionContext};

    use crate::memory::Limit;
    use crate::value_limit::ValueLimit;

    let values = Limit {
        bytes: 1_000_000,
        setting: "node.max_value",
    };
    let config = SessionConfig::new().with_target_partitions(2);
    SessionContext::new_with_config(ValueLimit(values).set(config))
}
