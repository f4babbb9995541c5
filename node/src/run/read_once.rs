//! The side of a nested loop join that is collected, read once only.
//!
//! When it does not fit into memory, DataFusion 55 starts it a second time and spills it. Then outer, semi and anti joins of
//! several partitions have wrong rows (apache/datafusion#24675), some joins lose rows (#24745), and what cannot be started twice
//! panics or, on the gateway, asks all workers again. An error is better.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::resources_err;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;

use super::around::{Around, AroundExec};

/// The same rows, once.
pub(super) fn read_once(collected: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    AroundExec::wrap(Arc::clone(collected), ReadOnce::default())
}

#[derive(Debug, Default)]
struct ReadOnce(AtomicBool);

impl Around for ReadOnce {
    const NAME: &'static str = "ReadOnceExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if self.0.swap(true, Ordering::Relaxed) {
            return resources_err!(
                "one side of a join without equal keys must fit into memory, and does not; join by equal keys, or make the side smaller"
            );
        }
        within.execute(partition, context)
    }
}
