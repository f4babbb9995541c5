use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream_partitioned};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use volary_exec::run::make_runnable;
use volary_flight_proto::{Error, Result};
use volary_node::Runtimes;
use volary_node::runtimes::PlanOwner;

/// A stream of rows. The errors of rows from a file name the file.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

/// The rows of a load, in partitions that are read at the same time.
pub struct RowSource {
    partitions: Vec<RowStream>,
    plan_owner: Option<PlanOwner>,
}

impl fmt::Debug for RowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSource")
            .field("partitions", &self.partitions.len())
            .finish()
    }
}

impl RowSource {
    /// Creates a source from streams.
    pub fn new(partitions: Vec<RowStream>) -> Self {
        Self {
            partitions,
            plan_owner: None,
        }
    }

    /// Creates a source from what [`Self::into_partitions`] returned.
    pub(super) fn from_parts(partitions: Vec<RowStream>, plan_owner: Option<PlanOwner>) -> Self {
        Self {
            partitions,
            plan_owner,
        }
    }

    /// Creates a source from a plan. The columns of the plan are matched with those of the table by
    /// position.
    ///
    /// # Errors
    /// The errors of starting the plan.
    pub(crate) fn from_plan(
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
        runtimes: &Runtimes,
    ) -> Result<Self> {
        let (plan, plan_owner) = make_runnable(plan, &task, runtimes)?;
        let partitions = execute_stream_partitioned(plan, task)?
            .into_iter()
            .map(|stream| stream.map_err(Error::from).boxed())
            .collect();
        Ok(Self {
            partitions,
            plan_owner: Some(plan_owner),
        })
    }

    /// Returns the streams of the partitions, and the owner of the plan. The owner must be kept as
    /// long as the streams are read.
    pub(crate) fn into_partitions(self) -> (Vec<RowStream>, Option<PlanOwner>) {
        (self.partitions, self.plan_owner)
    }
}
