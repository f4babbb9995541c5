//! If the collected side of a nested loop join does not fit into memory, DataFusion 55 starts it a
//! second time and spills it. Then outer, semi and anti joins of several partitions return wrong
//! rows (apache/datafusion#24675), and some joins lose rows (#24745). Some inputs panic when they
//! are started again; on the gateway, others request their rows from all workers again. An error is
//! better.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::resources_err;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;

use super::wrapper::{Wrapper, WrapperExec};

/// Wraps the collected side. Its rows stay the same, but it fails if it is started a second time.
pub(super) fn read_once(collected: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    WrapperExec::wrap(Arc::clone(collected), ReadOnce::default())
}

#[derive(Debug, Default)]
struct ReadOnce(AtomicBool);

impl Wrapper for ReadOnce {
    const NAME: &'static str = "ReadOnceExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if self.0.swap(true, Ordering::Relaxed) {
            return resources_err!(
                "one side of a join without an equality condition must fit into memory, and does not; add an equality condition, or make that side smaller"
            );
        }
        within.execute(partition, context)
    }
}
