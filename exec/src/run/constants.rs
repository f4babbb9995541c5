//! Functions expand a constant to a column that has it in each row. A constant of one megabyte
//! takes eight gigabytes in a batch of 8,192 rows, even if the function makes only a number from
//! it.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use datafusion::common::resources_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::{CaseExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::few_rows::{CopiedPerRow, FewRows};
use super::wrapper::WrapperExec;
use crate::value_limit::ValueLimit;
use volary_node::size::MemorySize;

/// Factor for the memory of the copies of a constant. Functions often make something from the
/// copies that is as large as the copies themselves.
const COPIES: usize = 2;

/// Makes the operator compute fewer rows at once if it computes with a large constant.
///
/// # Errors
/// `ResourcesExhausted` for an operator that computes with a large constant and whose batches
/// cannot be cut: it reads rows by itself, or makes pairs of rows.
pub(super) fn cut_rows_for_constants(
    node: Arc<dyn ExecutionPlan>,
    task: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(limit) = ValueLimit::of(task.session_config()) else {
        return Ok(node);
    };
    let batch_rows = task.session_config().batch_size();
    let largest = largest_constant(node.as_ref())?;
    let rows = limit.bytes.checked_div(largest);
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
            "copying a constant of {} for each of {batch_rows} rows would take {}; {} allows {} at once: make the constant smaller, or put it into a table and join",
            MemorySize::from(largest),
            MemorySize::from(largest.saturating_mul(batch_rows)),
            limit.setting,
            MemorySize::from(limit.bytes)
        );
    }
    let inputs = children
        .into_iter()
        .map(|input| {
            let constant = LargeConstant {
                bytes: largest,
                rows,
            };
            WrapperExec::wrap(Arc::clone(input), FewRows(constant))
        })
        .collect();
    replace_children_if_necessary(node, inputs)
}

/// Returns the size in bytes of the largest constant that the operator's expressions expand to a
/// column.
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

/// Returns the size of a constant in bytes. Returns 0 if the expression is not constant, or if it
/// cannot be computed. In the latter case the expression fails when the plan runs.
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

/// Returns whether the expression is computed only from constants and always has the same value.
/// Computed constants exist because large ones are not computed while a statement is planned.
fn is_constant(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let children = expression.children();
    let is_computed = !children.is_empty() && !expression.is_volatile_node();
    expression.is::<Literal>() || (is_computed && children.into_iter().all(is_constant))
}

/// A large constant that is copied for each row.
#[derive(Debug, Clone, Copy)]
struct LargeConstant {
    bytes: usize,
    /// Number of rows for which the constant may be copied at once.
    rows: usize,
}

impl CopiedPerRow for LargeConstant {
    const NAME: &'static str = "FewRowsExec";

    fn max_rows(&self) -> usize {
        self.rows
    }

    fn bytes_per_row(&self) -> usize {
        self.bytes.saturating_mul(COPIES)
    }

    fn describe(&self, rows: usize) -> String {
        let constant = MemorySize::from(self.bytes);
        format!("copying a constant of {constant} for {rows} rows")
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::Transformed;
    use datafusion::physical_plan::collect;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::run::context_with_small_values as context;

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
            plan.transform_up(|node| cut_rows_for_constants(node, &task).map(Transformed::yes));
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
            assert_eq!(
                shown.contains(LargeConstant::NAME),
                is_cut,
                "{sql}:\n{shown}"
            );
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
        assert!(!shown.contains(LargeConstant::NAME), "{shown}");
        let join = "SELECT * FROM generate_series(1, 9) a(x) JOIN generate_series(1, 9) b(y) ON length(concat(repeat('x', 5000), x, y)) < 7";
        let error = limited(planned(&context, join).await, &context).unwrap_err();
        assert!(error.to_string().contains("put it into a table"), "{error}");
    }
}
