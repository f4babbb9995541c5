//! A join that collects one side whole makes a filter for its other side. The filter is ready when
//! every partition has reported, and each partition waits for that. A partition may be dropped
//! before it has reported, because its reader needs none of its rows: for example if a join around
//! this one found no rows on its own side. Then the other partitions wait forever. DataFusion 55
//! counts dropped partitions as reported for partitioned joins (apache/datafusion#21666), but not
//! for joins that collect one side. Here a dropped partition reports in the background, as long as
//! another partition is still read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{
    EmptyRecordBatchStream, ExecutionPlan, ExecutionPlanProperties, RecordBatchStream,
    SendableRecordBatchStream,
};
use futures::{FutureExt, Stream, StreamExt};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::wrapper::{Wrapper, WrapperExec};

/// Wraps a join so that its partitions report even if they are dropped, until the query has ended.
/// Returns other joins unchanged.
pub(super) fn report_when_dropped(
    join: Arc<dyn ExecutionPlan>,
    ended: &CancellationToken,
) -> Arc<dyn ExecutionPlan> {
    let filter = join
        .downcast_ref::<HashJoinExec>()
        .filter(|join| *join.partition_mode() == PartitionMode::CollectLeft)
        .and_then(|join| join.dynamic_expressions_produced().pop())
        .and_then(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
    let partitions = join.output_partitioning().partition_count();
    match filter {
        Some(filter) if partitions > 1 => {
            let waiting = Arc::new(WaitingPartitions {
                partitions: AtomicUsize::new(partitions),
                all_done: ended.child_token(),
            });
            WrapperExec::wrap(join, ReportWhenDropped { filter, waiting })
        }
        _ => join,
    }
}

#[derive(Debug)]
struct ReportWhenDropped {
    filter: Arc<DynamicFilterPhysicalExpr>,
    waiting: Arc<WaitingPartitions>,
}

impl Wrapper for ReportWhenDropped {
    const NAME: &'static str = "ReportWhenDroppedExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(Partition {
            rows: within.execute(partition, context)?,
            has_reported: false,
            filter: Arc::clone(&self.filter),
            waiting: Arc::clone(&self.waiting),
            runtime: Handle::current(),
        }))
    }
}

/// The partitions of a join that may still wait for the reports of others.
#[derive(Debug)]
struct WaitingPartitions {
    /// Number of partitions that were not dropped yet. This includes partitions that were not
    /// started yet, because they will wait, too.
    partitions: AtomicUsize,
    /// Cancelled when the last partition is dropped or the query has ended.
    all_done: CancellationToken,
}

/// A partition of the join.
struct Partition {
    rows: SendableRecordBatchStream,
    /// Set after the first result. A partition returns it only after it has reported.
    has_reported: bool,
    filter: Arc<DynamicFilterPhysicalExpr>,
    waiting: Arc<WaitingPartitions>,
    /// Runtime that the join runs on. The partition may be dropped on another thread.
    runtime: Handle,
}

impl Stream for Partition {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.rows.poll_next_unpin(cx);
        self.has_reported |= polled.is_ready();
        polled
    }
}

impl RecordBatchStream for Partition {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if self.waiting.partitions.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.waiting.all_done.cancel();
            return;
        }
        if self.has_reported || self.filter.wait_complete().now_or_never().is_some() {
            return;
        }
        let nothing = EmptyRecordBatchStream::new(self.rows.schema());
        let mut rows = std::mem::replace(&mut self.rows, Box::pin(nothing));
        let filter = Arc::clone(&self.filter);
        let over = self.waiting.all_done.clone();
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = filter.wait_complete() => {}
                _ = rows.next() => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::catalog::memory::MemorySourceConfig;
    use datafusion::common::{JoinType, NullEquality};
    use datafusion::physical_expr::expressions::{col, lit};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::common::collect;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Creates a table of one column `k`, with these rows in each of its partitions.
    fn table(partitions: &[&[i64]]) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let partitions: Vec<_> = partitions
            .iter()
            .map(|rows| {
                let rows = Arc::new(Int64Array::from(rows.to_vec()));
                vec![RecordBatch::try_new(Arc::clone(&schema), vec![rows]).unwrap()]
            })
            .collect();
        MemorySourceConfig::try_new_exec(&partitions, schema, None).unwrap()
    }

    fn join(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        kind: JoinType,
        mode: PartitionMode,
    ) -> HashJoinExec {
        let on = vec![(
            col("k", &left.schema()).unwrap(),
            col("k", &right.schema()).unwrap(),
        )];
        let equality = NullEquality::NullEqualsNothing;
        HashJoinExec::try_new(left, right, on, None, &kind, None, mode, equality, false).unwrap()
    }

    /// Creates a join around another join. Its first partition needs rows of the join within. Its
    /// second partition does not, because it has no rows of its own.
    fn half_needed() -> Arc<dyn ExecutionPlan> {
        let many = table(&[&[1, 2, 3], &[4, 5, 6]]);
        let key = col("k", &many.schema()).unwrap();
        let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![key], lit(true)));
        let filtered = FilterExec::try_new(Arc::clone(&filter) as _, many).unwrap();
        let within = join(
            table(&[&[1, 2]]),
            Arc::new(filtered),
            JoinType::Inner,
            PartitionMode::CollectLeft,
        );
        let within = Arc::new(within.with_dynamic_filter_expr(filter).unwrap());
        Arc::new(join(
            table(&[&[1, 7], &[]]),
            report_when_dropped(within, &CancellationToken::new()),
            JoinType::Left,
            PartitionMode::Partitioned,
        ))
    }

    /// Reads some partitions of a plan, one after the other, and counts their rows.
    async fn rows(plan: &Arc<dyn ExecutionPlan>, partitions: &[usize]) -> usize {
        let mut rows = 0;
        for partition in partitions {
            let context = SessionContext::new().task_ctx();
            let stream = plan.execute(*partition, context).unwrap();
            let batches = tokio::time::timeout(Duration::from_secs(60), collect(stream)).await;
            let batches = batches.expect("the join waits for a partition that nobody reads");
            let of_partition = batches.unwrap();
            rows += of_partition
                .iter()
                .map(RecordBatch::num_rows)
                .sum::<usize>();
        }
        rows
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_partition_that_nobody_reads_does_not_keep_the_others_waiting() {
        let together = CoalescePartitionsExec::new(half_needed());
        assert_eq!(rows(&(Arc::new(together) as _), &[0]).await, 2);
        // The first partition that is read has ended before the other one starts.
        assert_eq!(rows(&half_needed(), &[1, 0]).await, 2);
    }
}
