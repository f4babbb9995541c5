//! Large constants beside columns: few rows at once.
//!
//! Functions take a constant for a column that has it in each row: one of a megabyte is eight gigabytes in a batch of 8,192 rows, also
//! where all that is made of it is a number. So operators that compute with a large constant are given fewer rows at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::resources_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::{CaseExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

use super::around::{Around, AroundExec};
use crate::memory::{BeingMade, ProcessMemory};
use crate::size::MemorySize;
use crate::value_limit::ValueLimit;

/// Something is made of the copies of a constant that is as large as they are, often.
const MADE_OF_COPIES: usize = 2;

/// The operator, with fewer rows at once if it computes with a large constant.
///
/// # Errors
/// `ResourcesExhausted` for an operator that reads rows by itself, or makes pairs of them, and computes with a large constant.
pub(super) fn with_few_rows_at_once(
    node: Arc<dyn ExecutionPlan>,
    task: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(values) = ValueLimit::of(task.session_config()) else {
        return Ok(node);
    };
    let batch_rows = task.session_config().batch_size();
    let largest = largest_constant(node.as_ref())?;
    let rows = values.bytes.checked_div(largest);
    let rows = rows.unwrap_or(usize::MAX).max(1);
    let children = node.children();
    if rows >= batch_rows
        || children
            .iter()
            .any(|input| input.is::<PlaceholderRowExec>())
    {
        return Ok(node);
    }
    let is_row_by_row =
        node.is::<ProjectionExec>() || node.is::<FilterExec>() || node.is::<AggregateExec>();
    if !is_row_by_row {
        return resources_err!(
            "a constant of {} beside columns would take {} for {batch_rows} rows; {} allows {} at once: make the constant smaller, or put it into a table and join",
            MemorySize::from(largest),
            MemorySize::from(largest.saturating_mul(batch_rows)),
            values.setting,
            MemorySize::from(values.bytes)
        );
    }
    let inputs = children
        .into_iter()
        .map(|input| {
            AroundExec::wrap(
                Arc::clone(input),
                FewRows {
                    rows,
                    constant_bytes: largest,
                },
            )
        })
        .collect();
    replace_children_if_necessary(node, inputs)
}

/// The size of the largest constant that an operator's expressions take for a column, in bytes.
fn largest_constant(node: &dyn ExecutionPlan) -> Result<usize> {
    let mut largest = 0;
    node.apply_expressions(&mut |root| {
        largest = largest.max(size_of_constant(root));
        root.apply(|part| {
            if part.is::<ScalarFunctionExpr>() || part.is::<CaseExpr>() {
                let operands = part.children().into_iter();
                largest = operands.map(size_of_constant).fold(largest, usize::max);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(largest)
}

/// In bytes; 0 of what is none, and of what cannot be computed, which fails when it is.
fn size_of_constant(expression: &Arc<dyn PhysicalExpr>) -> usize {
    if let Some(literal) = expression.downcast_ref::<Literal>() {
        return literal.value().size();
    }
    if !is_constant(expression) {
        return 0;
    }
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let one_row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &one_row);
    let computed = one_row
        .map_err(DataFusionError::from)
        .and_then(|row| expression.evaluate(&row));
    match computed {
        Ok(ColumnarValue::Scalar(value)) => value.size(),
        Ok(ColumnarValue::Array(values)) => values.get_array_memory_size(),
        Err(_) => 0,
    }
}

/// Whether it is computed of nothing but constants, and always the same. Large ones are not computed while a statement is planned.
fn is_constant(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let children = expression.children();
    let is_computed = !children.is_empty() && !expression.is_volatile_node();
    expression.is::<Literal>() || (is_computed && children.into_iter().all(is_constant))
}

#[derive(Debug)]
struct FewRows {
    rows: usize,
    /// The constant beside each of them.
    constant_bytes: usize,
}

impl Around for FewRows {
    const NAME: &'static str = "FewRowsExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(Pieces {
            batches: within.execute(partition, context)?,
            rows: self.rows,
            constant_bytes: self.constant_bytes,
            left: None,
            being_made: None,
        }))
    }
}

/// Batches in pieces of so many rows. What an operator makes of one is taken to be there until it asks for the next one.
struct Pieces {
    batches: SendableRecordBatchStream,
    rows: usize,
    constant_bytes: usize,
    left: Option<RecordBatch>,
    being_made: Option<BeingMade<'static>>,
}

impl Pieces {
    fn hand_over(&mut self, piece: RecordBatch) -> Result<RecordBatch> {
        let copies = self.constant_bytes.saturating_mul(piece.num_rows());
        let bytes = copies.saturating_mul(MADE_OF_COPIES);
        self.being_made = ProcessMemory::this().make(bytes, || {
            let constant = MemorySize::from(self.constant_bytes);
            format!("a constant of {constant} beside {} rows", piece.num_rows())
        })?;
        Ok(piece)
    }
}

impl Stream for Pieces {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.being_made = None;
        let batch = match self.left.take() {
            Some(batch) => batch,
            None => match ready!(self.batches.poll_next_unpin(cx)) {
                Some(Ok(batch)) => batch,
                ended => return Poll::Ready(ended),
            },
        };
        let rows = batch.num_rows();
        if rows > self.rows {
            self.left = Some(batch.slice(self.rows, rows - self.rows));
            let piece = batch.slice(0, self.rows);
            return Poll::Ready(Some(self.hand_over(piece)));
        }
        Poll::Ready(Some(self.hand_over(batch)))
    }
}

impl RecordBatchStream for Pieces {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::Transformed;
    use datafusion::physical_plan::collect;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;
    use crate::memory::Limit;

    /// With a small limit: what is above 120 bytes is large.
    fn context() -> SessionContext {
        let values = Limit {
            bytes: 1_000_000,
            setting: "node.max_value",
        };
        let config = SessionConfig::new().with_target_partitions(2);
        SessionContext::new_with_config(ValueLimit(values).set(config))
    }

    async fn planned(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
        let frame = context.sql(sql).await.unwrap();
        frame.create_physical_plan().await.unwrap()
    }

    fn limited(
        plan: Arc<dyn ExecutionPlan>,
        context: &SessionContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let task = context.task_ctx();
        let limited =
            plan.transform_up(|node| with_few_rows_at_once(node, &task).map(Transformed::yes));
        Ok(limited?.data)
    }

    #[tokio::test]
    async fn operators_with_large_constants_are_given_few_rows_and_make_the_same() {
        let context = context();
        for (query, is_cut) in [
            ("cardinality(array_remove(range(0, 300), x)) AS made", true),
            (
                "max(cardinality(array_remove(range(0, 300), x))) AS made",
                true,
            ),
            (
                "length(CASE WHEN x > 0 THEN repeat('x', 2000) ELSE 'y' END) AS made",
                true,
            ),
            ("repeat('x', 2000) AS made, x", true),
            ("strpos('a short one', x::VARCHAR) AS made", false),
            ("x + 1 AS made", false),
        ] {
            let sql = format!("SELECT {query} FROM generate_series(1, 10000) t(x)");
            let few = limited(planned(&context, &sql).await, &context).unwrap();
            let shown = displayable(few.as_ref()).indent(false).to_string();
            assert_eq!(shown.contains(FewRows::NAME), is_cut, "{sql}:\n{shown}");
            let expected = planned(&context, &sql).await;
            let expected = collect(expected, context.task_ctx()).await.unwrap();
            let made = collect(few, context.task_ctx()).await.unwrap();
            let rows =
                |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            assert_eq!(rows(&made), rows(&expected), "{sql}");
        }
    }

    #[tokio::test]
    async fn one_row_may_be_all_of_a_constant_and_pairs_of_rows_may_not() {
        let context = context();
        let plan = planned(&context, "SELECT repeat('x', 5000) AS made").await;
        let shown = displayable(limited(plan, &context).unwrap().as_ref())
            .indent(false)
            .to_string();
        assert!(!shown.contains(FewRows::NAME), "{shown}");
        let join = "SELECT * FROM generate_series(1, 9) a(x) JOIN generate_series(1, 9) b(y) ON length(concat(repeat('x', 5000), x, y)) < 7";
        let error = limited(planned(&context, join).await, &context).unwrap_err();
        assert!(error.to_string().contains("put it into a table"), "{error}");
    }
}
