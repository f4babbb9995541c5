use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionConfig;
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use volary_exec::batches::used_bytes;
use volary_flight_proto::{Error, Result};
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};

use super::buffer::{Buffer, ShardGroup};
use super::layout::WriteLayout;
use crate::segment::ORDER;

/// Divisor of all memory. A sort keeps at most the quotient free for its last merge. DataFusion's
/// default is a fixed 10 MiB, which a small limit does not have.
const MERGE_SHARE: usize = 8;

/// Checked rows, sorted by shard and within a shard by the sort key.
pub(super) enum Sorted {
    /// A stream of batches with the shard column.
    Stream(SendableRecordBatchStream),
    /// Rows in memory, in parts that are written at the same time.
    Parts(Vec<ShardGroup>),
}

/// Waits for all rows and sorts them, in memory or, if they do not fit, with a sort that spills.
/// Rows that need no order come as they arrive.
///
/// # Errors
/// Returns the errors of the rows, `INVALID_ARGUMENT` for rows that do not fit the table, and
/// `RESOURCE_EXHAUSTED`. A returned stream may have the same errors.
pub(super) async fn sort_rows(
    layout: &Arc<WriteLayout>,
    rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
    runtime_env: &Arc<RuntimeEnv>,
    parts: usize,
) -> Result<Sorted> {
    let mut checked = rows.map({
        let layout = Arc::clone(layout);
        move |batch| layout.check(&batch?)
    });
    let Some(ordering) = ordering(layout) else {
        let schema = Arc::clone(layout.input());
        let rows = checked.map_err(DataFusionError::from);
        let stream = RecordBatchStreamAdapter::new(schema, rows);
        return Ok(Sorted::Stream(Box::pin(stream)));
    };
    let mut buffered = Vec::new();
    if let Some(mut buffer) = Buffer::new(layout, runtime_env)? {
        loop {
            let Some(batch) = checked.try_next().await? else {
                return Ok(Sorted::Parts(buffer.into_parts(parts)?));
            };
            if used_bytes(&batch) > SHORT_WORK_BYTES {
                continue_on_cpu().await;
            }
            if !buffer.push(&batch)? {
                buffered = buffer.into_batches();
                buffered.push(batch);
                break;
            }
        }
    }
    let rows = futures::stream::iter(buffered.into_iter().map(Ok)).chain(checked);
    let sorted = sort_with_spill(layout, ordering, Box::pin(rows), runtime_env)?;
    Ok(Sorted::Stream(sorted))
}

fn sort_with_spill(
    layout: &WriteLayout,
    ordering: LexOrdering,
    rows: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
    runtime_env: &Arc<RuntimeEnv>,
) -> Result<SendableRecordBatchStream> {
    let schema = Arc::clone(layout.input());
    let rows = rows.map_err(DataFusionError::from);
    let rows = OneTimeSource {
        schema: Arc::clone(&schema),
        stream: Mutex::new(Some(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&schema),
            rows,
        )))),
    };
    let input = StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, [], false, None)?;
    let sort = SortExec::new(ordering, Arc::new(input));
    Ok(sort.execute(0, task_context(runtime_env))?)
}

fn ordering(layout: &WriteLayout) -> Option<LexOrdering> {
    let columns = layout
        .shard_column()
        .into_iter()
        .chain(layout.sort_key().iter().copied());
    LexOrdering::new(columns.map(|position| {
        let column = Column::new(layout.input().field(position).name(), position);
        PhysicalSortExpr::new(Arc::new(column), ORDER)
    }))
}

fn task_context(runtime_env: &Arc<RuntimeEnv>) -> Arc<TaskContext> {
    let mut config = SessionConfig::new();
    if let MemoryLimit::Finite(limit) = runtime_env.memory_pool.memory_limit() {
        let execution = &mut config.options_mut().execution;
        execution.sort_spill_reservation_bytes = execution
            .sort_spill_reservation_bytes
            .min(limit / MERGE_SHARE);
    }
    Arc::new(TaskContext::new(
        None,
        String::new(),
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        Arc::clone(runtime_env),
    ))
}

/// A stream, as the leaf of a plan that runs once.
struct OneTimeSource {
    schema: SchemaRef,
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for OneTimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneTimeSource").finish_non_exhaustive()
    }
}

impl PartitionStream for OneTimeSource {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = self.stream.lock().take();
        stream.unwrap_or_else(|| {
            let error = Error::internal("the rows of a write were read twice");
            let failed = futures::stream::iter([Err(error.into())]);
            Box::pin(RecordBatchStreamAdapter::new(
                Arc::clone(&self.schema),
                failed,
            ))
        })
    }
}
