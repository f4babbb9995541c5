//! A projection returns batches with as many rows as its functions accept at once. A filter or an
//! aggregate makes little from the values of its functions, so it computes these values for few
//! rows at a time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::Projector;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    RecordBatchStream, ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

use super::stoppable::{check_not_ended, make_stoppable};
use crate::value_limit::calls_bounded_function;
use crate::value_limit::row_retry::{self, Refusal};

/// Makes the operator compute few rows at a time if its functions may ask for fewer rows.
///
/// # Errors
/// Fails if the operator cannot be rebuilt.
pub(super) fn compute_in_pieces(
    node: Arc<dyn ExecutionPlan>,
    ended: &CancellationToken,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        if any_calls_bounded_function(projection.expr().iter().map(|column| &column.expr))? {
            return Ok(Arc::new(ProjectionInPieces {
                projection: node,
                ended: ended.clone(),
                metrics: ExecutionPlanMetricsSet::new(),
            }));
        }
    } else if let Some(filter) = node.downcast_ref::<FilterExec>() {
        if calls_bounded_function(filter.predicate())? {
            let predicate = make_stoppable(filter.predicate(), ended)?;
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate);
            return Ok(Arc::new(filter.build()?));
        }
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return Ok(aggregate_in_pieces(aggregate, ended)?.unwrap_or(node));
    }
    Ok(node)
}

/// Returns the aggregate with arguments that are computed for few rows at a time, or `None` if no
/// function may ask for fewer rows.
fn aggregate_in_pieces(
    aggregate: &AggregateExec,
    ended: &CancellationToken,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut functions = aggregate.aggr_expr().to_vec();
    let mut is_changed = false;
    for function in &mut functions {
        let mut arguments = function.expressions();
        if !any_calls_bounded_function(&arguments)? {
            continue;
        }
        for argument in &mut arguments {
            if calls_bounded_function(argument)? {
                *argument = make_stoppable(argument, ended)?;
            }
        }
        let order_by = function.order_bys().iter();
        let order_by = order_by.map(|order| Arc::clone(&order.expr)).collect();
        if let Some(rewritten) = function.with_new_expressions(arguments, order_by) {
            *function = Arc::new(rewritten);
            is_changed = true;
        }
    }
    Ok(is_changed.then(|| Arc::new(aggregate.with_new_aggr_exprs(functions)) as _))
}

fn any_calls_bounded_function<'a>(
    expressions: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
) -> Result<bool> {
    let mut expressions = expressions.into_iter();
    expressions.try_fold(false, |found, expression| {
        Ok(found || calls_bounded_function(expression)?)
    })
}

/// A projection that returns batches with as many rows as its functions accept at once.
#[derive(Debug)]
struct ProjectionInPieces {
    /// A [`ProjectionExec`], which is not run itself.
    projection: Arc<dyn ExecutionPlan>,
    ended: CancellationToken,
    metrics: ExecutionPlanMetricsSet,
}

impl DisplayAs for ProjectionInPieces {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.projection.fmt_as(kind, f)
    }
}

impl ExecutionPlan for ProjectionInPieces {
    fn name(&self) -> &'static str {
        "ProjectionInPieces"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.projection.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.projection.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.projection.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = replace_children_if_necessary(Arc::clone(&self.projection), children)?;
        compute_in_pieces(projection, &self.ended)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(projection) = self.projection.downcast_ref::<ProjectionExec>() else {
            return self.projection.execute(partition, context);
        };
        let input = projection.input();
        let projector = projection
            .projection_expr()
            .make_projector(&input.schema())?;
        Ok(Box::pin(ProjectedPieces {
            schema: self.schema(),
            projector,
            input: input.execute(partition, context)?,
            rest: None,
            rows_at_once: usize::MAX,
            ended: self.ended.clone(),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }
}

struct ProjectedPieces {
    schema: SchemaRef,
    projector: Projector,
    input: SendableRecordBatchStream,
    /// The rest of a batch of the input.
    rest: Option<RecordBatch>,
    /// Number of rows for which the functions are called next. It follows from the number that they
    /// accepted last.
    rows_at_once: usize,
    ended: CancellationToken,
    metrics: BaselineMetrics,
}

impl ProjectedPieces {
    /// Computes the first rows of the batch, as many as its functions accept, and keeps the other
    /// rows.
    fn first_piece(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let _timer = self.metrics.elapsed_compute().timer();
        let rows = batch.num_rows();
        loop {
            check_not_ended(&self.ended)?;
            let piece = batch.slice(0, self.rows_at_once.min(rows));
            match row_retry::evaluate(|| self.projector.project_batch(&piece)) {
                Ok(made) => {
                    let piece_rows = piece.num_rows();
                    self.rest =
                        (piece_rows < rows).then(|| batch.slice(piece_rows, rows - piece_rows));
                    // The values of the next rows may be smaller.
                    self.rows_at_once = self.rows_at_once.saturating_mul(2);
                    return Ok(made);
                }
                Err(Refusal::TooManyRows(fewer)) => self.rows_at_once = fewer,
                Err(Refusal::Failed(error)) => return Err(error),
            }
        }
    }
}

impl Stream for ProjectedPieces {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(batch)) => batch,
                ended => return Poll::Ready(ended),
            },
        };
        let projected = self.first_piece(&batch);
        self.metrics.record_poll(Poll::Ready(Some(projected)))
    }
}

impl RecordBatchStream for ProjectedPieces {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::common::tree_node::{Transformed, TreeNode};
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::value_limit::bounded_functions;
    use volary_node::memory::ByteLimit;

    fn context() -> SessionContext {
        let limit = ByteLimit {
            bytes: 256 << 20,
            setting: "node.max_value",
        };
        let context = SessionContext::new();
        for function in bounded_functions(context.state().scalar_functions().values(), limit) {
            context.register_udf(function.as_ref().clone());
        }
        context
    }

    async fn plan(
        context: &SessionContext,
        sql: &str,
        ended: &CancellationToken,
    ) -> Arc<dyn ExecutionPlan> {
        let plan = context.sql(sql).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let plan = plan.transform_up(|node| compute_in_pieces(node, ended).map(Transformed::yes));
        plan.unwrap().data
    }

    #[tokio::test]
    async fn rows_with_large_values_are_handed_on_in_small_batches() {
        let (context, ended) = (context(), CancellationToken::new());
        let sql =
            "SELECT repeat('ab', 50000 * (x % 3)) AS made, x FROM generate_series(1, 2000) t(x)";
        let plan = plan(&context, sql, &ended).await;
        assert!(
            displayable(plan.as_ref())
                .indent(false)
                .to_string()
                .contains("ProjectionExec")
        );
        let batches = collect(plan, context.task_ctx()).await.unwrap();
        assert!(batches.len() > 2000 * 100_000 / (16 << 20));
        let mut next = 1;
        for batch in &batches {
            let made = batch.column(0).as_string::<i32>();
            assert!(made.value_data().len() <= 16 << 20);
            for (row, x) in batch
                .column(1)
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .enumerate()
            {
                assert_eq!(*x, next);
                assert_eq!(
                    made.value_length(row),
                    100_000 * i32::try_from(x % 3).unwrap()
                );
                next += 1;
            }
        }
        assert_eq!(next, 2001);
    }

    #[tokio::test]
    async fn filters_and_aggregates_compute_large_values_for_few_rows_at_once() {
        let (context, ended) = (context(), CancellationToken::new());
        // All rows at once would take 9 GB. `max_value` allows 1 GiB.
        for (sql, expected) in [
            (
                "SELECT sum(length(repeat('x', 1100000 + x - x))) FROM generate_series(1, 8192) t(x)",
                8192 * 1_100_000,
            ),
            (
                "SELECT count(*) FROM generate_series(1, 8192) t(x) WHERE length(repeat('x', 1100000 + x)) % 2 = 0",
                4096,
            ),
            (
                "SELECT sum(levenshtein(repeat('x', 1000 + x - x), repeat('y', 1000))) FROM generate_series(1, 100) t(x)",
                100_000,
            ),
        ] {
            let plan = plan(&context, sql, &ended).await;
            let batches = collect(plan, context.task_ctx()).await.unwrap();
            let made = batches[0].column(0).as_primitive::<Int64Type>().value(0);
            assert_eq!(made, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn a_query_that_has_ended_computes_no_more_pieces() {
        let (context, ended) = (context(), CancellationToken::new());
        for sql in [
            "SELECT repeat('ab', 50000 + x) FROM generate_series(1, 2000) t(x)",
            "SELECT count(*) FROM generate_series(1, 2000) t(x) WHERE length(repeat('x', 50000 + x)) < 7",
            "SELECT max(length(repeat('x', 50000 + x))) FROM generate_series(1, 2000) t(x)",
        ] {
            let plan = plan(&context, sql, &ended).await;
            ended.cancel();
            let error = collect(plan, context.task_ctx()).await.unwrap_err();
            assert!(
                error.to_string().contains("the query has ended"),
                "{sql}: {error}"
            );
        }
    }
}
