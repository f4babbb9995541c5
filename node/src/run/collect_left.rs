//! Joins that collect one side whole, and wait for partitions that nobody reads.
//!
//! The filter that such a join makes for its other side is ready when every partition has reported, and each partition waits for
//! that. A partition whose reader needs none of its rows (a join around it found nothing on its own side) is dropped before
//! it has reported, and the others wait for ever: DataFusion 55 counts dropped partitions of partitioned joins as reported
//! (apache/datafusion#21666), those of collecting joins not. Here a dropped partition reports in the background, as long as
//! another one is read.

use std::pin::Pin;
use std::sync::{Arc, Weak};
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
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::around::{Around, AroundExec};

/// The same join, whose partitions report even if they are dropped.
pub(super) fn reporting_when_dropped(join: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let filter = join
        .downcast_ref::<HashJoinExec>()
        .filter(|join| *join.partition_mode() == PartitionMode::CollectLeft)
        .filter(|join| join.right().output_partitioning().partition_count() > 1)
        .and_then(|join| join.dynamic_expressions_produced().pop())
        .and_then(|filter| Arc::downcast::<DynamicFilterPhysicalExpr>(filter).ok());
    match filter {
        Some(filter) => AroundExec::wrap(
            join,
            ReportWhenDropped {
                filter,
                readers: Readers::default(),
            },
        ),
        None => join,
    }
}

#[derive(Debug)]
struct ReportWhenDropped {
    filter: Arc<DynamicFilterPhysicalExpr>,
    readers: Readers,
}

impl Around for ReportWhenDropped {
    const NAME: &'static str = "ReportWhenDroppedExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(Partition {
            rows: within.execute(partition, context)?,
            reported: false,
            filter: Arc::clone(&self.filter),
            reader: self.readers.another(),
            runtime: Handle::current(),
        }))
    }
}

/// Those who read partitions of one join.
#[derive(Debug, Default)]
struct Readers(Mutex<Weak<Reader>>);

/// Held by each of them.
#[derive(Debug)]
struct Reader {
    all_gone: CancellationToken,
    _last: DropGuard,
}

impl Readers {
    fn another(&self) -> Arc<Reader> {
        let mut readers = self.0.lock();
        readers.upgrade().unwrap_or_else(|| {
            let all_gone = CancellationToken::new();
            let reader = Arc::new(Reader {
                _last: all_gone.clone().drop_guard(),
                all_gone,
            });
            *readers = Arc::downgrade(&reader);
            reader
        })
    }
}

/// A partition of the join.
struct Partition {
    rows: SendableRecordBatchStream,
    /// Whether it surely has: what it reads first comes after that.
    reported: bool,
    filter: Arc<DynamicFilterPhysicalExpr>,
    reader: Arc<Reader>,
    /// Where the join runs; it may be dropped elsewhere.
    runtime: Handle,
}

impl Stream for Partition {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.rows.poll_next_unpin(cx);
        self.reported |= polled.is_ready();
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
        if self.reported || self.filter.wait_complete().now_or_never().is_some() {
            return;
        }
        let nothing = EmptyRecordBatchStream::new(self.rows.schema());
        let mut rows = std::mem::replace(&mut self.rows, Box::pin(nothing));
        let filter = Arc::clone(&self.filter);
        let readers_gone = self.reader.all_gone.clone();
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = readers_gone.cancelled() => {}
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
    use datafusion::physical_plan::collect;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// A table of one column `k`, with these rows in each of its partitions.
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

    /// The second partition of the join around has no rows on its own side, so it reads nothing of the join within.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_partition_that_nobody_reads_does_not_keep_the_others_waiting() {
        let few = table(&[&[1, 2]]);
        let many = table(&[&[1, 2, 3], &[4, 5, 6]]);
        let key = col("k", &many.schema()).unwrap();
        let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![key], lit(true)));
        let filtered = FilterExec::try_new(Arc::clone(&filter) as _, many).unwrap();
        let within = join(
            few,
            Arc::new(filtered),
            JoinType::Inner,
            PartitionMode::CollectLeft,
        );
        let within = within.with_dynamic_filter_expr(filter).unwrap();
        let around = join(
            table(&[&[1, 7], &[]]),
            reporting_when_dropped(Arc::new(within)),
            JoinType::Left,
            PartitionMode::Partitioned,
        );
        let plan = Arc::new(CoalescePartitionsExec::new(Arc::new(around)));
        let rows = collect(plan, SessionContext::new().task_ctx());
        let rows = tokio::time::timeout(Duration::from_secs(60), rows).await;
        let rows: usize = rows
            .expect("the join waits for a partition that nobody reads")
            .unwrap()
            .iter()
            .map(RecordBatch::num_rows)
            .sum();
        assert_eq!(rows, 2);
    }
}
