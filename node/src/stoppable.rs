//! Joins that end: they can be stopped while they make no rows, and wait for nobody who never comes.
//!
//! A task ends between two of its polls. A join whose filter lets next to nothing pass works through all pairs of rows within one
//! poll: its reader may be long gone, its deadline passed, and it keeps a thread. Here such filters see that the query has
//! ended. Joins that make many rows give way to other tasks now and then.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use volary_flight_proto::{Error, ErrorCode};

use crate::collect_left::reporting_when_dropped;

/// Its joins stop when it is dropped.
#[derive(Debug)]
pub struct StopsWhenDropped(#[allow(dead_code)] DropGuard); // held, never read

/// The same plan, and what to hold as long as it is to run. To be called when no rule will change the plan any more.
///
/// # Errors
/// If a join cannot be rebuilt.
pub fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<(Arc<dyn ExecutionPlan>, StopsWhenDropped)> {
    let ended = CancellationToken::new();
    let stoppable = plan.transform_up(|node| {
        Ok(match stoppable_join(&node, &ended)? {
            Some(join) => {
                let join = reporting_when_dropped(join);
                Transformed::yes(Arc::new(CooperativeExec::new(join)) as _)
            }
            None => Transformed::no(node),
        })
    })?;
    Ok((stoppable.data, StopsWhenDropped(ended.drop_guard())))
}

fn stoppable_join(
    node: &Arc<dyn ExecutionPlan>,
    ended: &CancellationToken,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let watched = |filter: &JoinFilter| {
        let watching = Watching {
            filter: Arc::clone(filter.expression()),
            ended: ended.clone(),
        };
        let columns = filter.column_indices().to_vec();
        JoinFilter::new(Arc::new(watching), columns, Arc::clone(filter.schema()))
    };
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let filter = join.filter().map(watched);
        return join.builder().with_filter(filter).build_exec().map(Some);
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_filter(join.filter().map(watched))
            .with_projection_ref(join.projection().clone())
            .build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let join = SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            join.filter().as_ref().map(watched),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        return Ok(Some(Arc::new(join)));
    }
    Ok(node.is::<CrossJoinExec>().then(|| Arc::clone(node)))
}

/// A filter that fails when its query has ended.
#[derive(Debug, Clone)]
struct Watching {
    filter: Arc<dyn PhysicalExpr>,
    ended: CancellationToken,
}

impl PhysicalExpr for Watching {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.filter.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.filter.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.ended.is_cancelled() {
            let error = Error::new(ErrorCode::Cancelled, "the query has ended");
            return Err(DataFusionError::from(error));
        }
        self.filter.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.filter]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(filter), true) => Ok(Arc::new(Self {
                filter,
                ended: self.ended.clone(),
            })),
            _ => internal_err!("a watching filter has one filter"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt_sql(f)
    }
}

impl fmt::Display for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt(f)
    }
}

// What it computes is what the filter computes.
impl PartialEq for Watching {
    fn eq(&self, other: &Self) -> bool {
        self.filter.as_ref() == other.filter.as_ref()
    }
}

impl Eq for Watching {}

impl Hash for Watching {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.filter.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use datafusion::physical_plan::execute_stream;
    use datafusion::prelude::SessionContext;
    use futures::StreamExt;

    use super::*;

    /// A join that lets nothing pass of ten thousand million pairs, once by nested loops and once by one hash for all rows.
    const JOINS: [&str; 2] = [
        "SELECT count(*) FROM generate_series(1, 100000) a(x), generate_series(1, 100000) b(y) WHERE x + y < 0",
        "SELECT count(*) FROM generate_series(1, 100000) a(x) JOIN generate_series(1, 100000) b(y) ON x - x = y - y AND x + y < 0",
    ];

    #[test]
    fn a_join_that_makes_no_rows_stops_when_its_query_has_ended() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        for sql in JOINS {
            let (sender, held) = tokio::sync::oneshot::channel();
            let running = runtime.spawn(async move {
                let context = SessionContext::new();
                let plan = context.sql(sql).await?.create_physical_plan().await?;
                let (plan, stops_when_dropped) = stoppable(plan)?;
                drop(sender.send(stops_when_dropped));
                let mut rows = execute_stream(plan, context.task_ctx())?;
                rows.next().await.transpose()
            });
            runtime.block_on(async {
                drop(held.await.unwrap());
                let stopped = tokio::time::timeout(Duration::from_secs(60), running).await;
                let error = stopped.unwrap().unwrap().unwrap_err();
                assert!(error.to_string().contains("the query has ended"), "{error}");
            });
        }
    }
}
