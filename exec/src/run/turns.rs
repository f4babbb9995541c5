use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

use super::wrapper::{Wrapper, WrapperExec};
use volary_node::runtimes::turns::{Task, Work};

/// Wraps the inputs of an operator that reads them in tasks of its own, so that these tasks take
/// turns. Returns other operators unchanged.
///
/// # Errors
/// Fails if the operator cannot be rebuilt.
pub(super) fn poll_inputs_in_turns(
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
        .map(|input| WrapperExec::wrap(Arc::clone(input), TakesTurns(work.clone())))
        .collect();
    replace_children_if_necessary(node, inputs)
}

/// Name of the operator that takes turns.
pub(super) const TAKES_TURNS: &str = "TakesTurnsExec";

#[derive(Debug)]
struct TakesTurns(Work);

impl Wrapper for TakesTurns {
    const NAME: &'static str = TAKES_TURNS;

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
