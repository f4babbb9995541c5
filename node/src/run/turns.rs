//! Operators whose streams are polled when it is their turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

use super::around::{Around, AroundExec};
use crate::runtimes::turns::{Task, Work};

/// The operator, if it reads its inputs in tasks of its own, with inputs that take turns.
///
/// # Errors
/// If it cannot be rebuilt.
pub(super) fn with_inputs_in_turns(
    node: Arc<dyn ExecutionPlan>,
    work: &Work,
) -> Result<Arc<dyn ExecutionPlan>> {
    let has_tasks = node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>();
    if !has_tasks {
        return Ok(node);
    }
    let inputs = node.children().into_iter();
    let inputs = inputs
        .map(|input| AroundExec::wrap(Arc::clone(input), TakesTurns(work.clone())))
        .collect();
    replace_children_if_necessary(node, inputs)
}

/// Whether plans are shown without the operator: it computes nothing.
pub fn is_hidden(node: &dyn ExecutionPlan) -> bool {
    node.name() == TakesTurns::NAME
}

/// The operators of a plan that has run, but for those that are hidden, with what they have counted; one in a line.
pub fn shown_with_metrics(plan: &Arc<dyn ExecutionPlan>) -> String {
    let displayed = DisplayableExecutionPlan::with_metrics(plan.as_ref());
    without_hidden(&displayed.indent(true).to_string())
}

fn without_hidden(text: &str) -> String {
    let mut shown = String::new();
    // How deep the hidden operators stand in which the line is.
    let mut hidden: Vec<usize> = Vec::new();
    for line in text.lines() {
        let operator = line.trim_start();
        let depth = line.len() - operator.len();
        while hidden.last().is_some_and(|outer| *outer >= depth) {
            hidden.pop();
        }
        if operator.starts_with(TakesTurns::NAME) {
            hidden.push(depth);
            continue;
        }
        shown.push_str(&line[hidden.len() * INDENT..]);
        shown.push('\n');
    }
    shown
}

/// DataFusion shows an operator's inputs so far to the right of it.
const INDENT: usize = 2;

#[derive(Debug)]
struct TakesTurns(Work);

impl Around for TakesTurns {
    const NAME: &'static str = "TakesTurnsExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(Partition {
            rows: within.execute(partition, context)?,
            task: self.0.task(),
        }))
    }
}

struct Partition {
    rows: SendableRecordBatchStream,
    task: Task,
}

impl Stream for Partition {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { rows, task } = &mut *self;
        task.poll(cx, |cx| rows.poll_next_unpin(cx))
    }
}

impl RecordBatchStream for Partition {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_shown_without_what_only_takes_turns() {
        let text = "Join, metrics=[]\n  TakesTurnsExec\n    Left\n      TakesTurnsExec\n        Scan\n  Right\n    Scan\n";
        let shown = "Join, metrics=[]\n  Left\n    Scan\n  Right\n    Scan\n";
        assert_eq!(without_hidden(text), shown);
    }
}
