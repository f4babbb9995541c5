//! A join copies a row for each of its partners, and puts thousands of the copies into one batch. A
//! value of one megabyte becomes gigabytes within one poll, and no memory pool counts that. Texts
//! of tables are views, whose copies take 16 bytes, and numbers are small. But texts that functions
//! make, and lists, are copied whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use futures::StreamExt;
use volary_flight_proto::{Error, ErrorCode};

use super::few_rows::{CopiedPerRow, FewRows};
use super::wrapper::{Wrapper, WrapperExec};
use crate::row_width::{can_be_wide, fixed_width, longest_list, widest_row};
use crate::value_limit::{MAX_VALUES_PER_BATCH, ValueLimit};
use volary_node::memory::ByteLimit;
use volary_node::size::MemorySize;

/// Wraps the inputs of an operator that copies rows, so that rows are refused if their copies would
/// be too large. The right side of a cross join returns few rows at a time instead.
///
/// # Errors
/// Fails if the operator cannot be rebuilt.
pub(super) fn limit_wide_rows(
    node: Arc<dyn ExecutionPlan>,
    task: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(limit) = ValueLimit::of(task.session_config()) else {
        return Ok(node);
    };
    let rows_at_once = task.session_config().batch_size();
    if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        if !has_wide(&join.left().schema()) {
            return Ok(node);
        }
        let widest = Arc::new(AtomicUsize::new(0));
        let left = WrapperExec::wrap(Arc::clone(join.left()), WidthRecorder(Arc::clone(&widest)));
        let right = FewRows(WidestRow { limit, widest });
        let right = WrapperExec::wrap(Arc::clone(join.right()), right);
        return replace_children_if_necessary(node, vec![left, right]);
    }
    let is_unnest = node.is::<UnnestExec>();
    if !is_unnest && !join_type(node.as_ref()).is_some_and(repeats_rows) {
        return Ok(node);
    }
    let lists = node.downcast_ref::<UnnestExec>().map(|unnest| {
        let lists = unnest.list_column_indices().iter();
        lists.map(|list| list.index_in_input_schema).collect()
    });
    let inputs = node.children().into_iter().map(|input| {
        if !is_unnest && !has_wide(&input.schema()) {
            return Arc::clone(input);
        }
        let width_check = Arc::new(WidthCheck {
            limit,
            rows_at_once,
            lists: lists.clone(),
        });
        WrapperExec::wrap(Arc::clone(input), width_check)
    });
    let inputs = inputs.collect();
    replace_children_if_necessary(node, inputs)
}

fn has_wide(schema: &Schema) -> bool {
    let mut types = schema.fields().iter().map(|field| field.data_type());
    types.any(can_be_wide)
}

fn join_type(node: &dyn ExecutionPlan) -> Option<JoinType> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return Some(*join.join_type());
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        return Some(*join.join_type());
    }
    let join = node.downcast_ref::<SortMergeJoinExec>()?;
    Some(join.join_type())
}

/// Returns whether the join may repeat a row of an input. All joins may, except those that only
/// check whether there is a partner.
fn repeats_rows(join: JoinType) -> bool {
    matches!(
        join,
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
    )
}

/// Records the width of the widest row of a cross join's left side. The join reads all of its left
/// side before the first row of its right side.
#[derive(Debug)]
struct WidthRecorder(Arc<AtomicUsize>);

impl Wrapper for WidthRecorder {
    const NAME: &'static str = "MeasuredExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let widest = Arc::clone(&self.0);
        let rows = within.execute(partition, context)?;
        let schema = rows.schema();
        let rows = rows.inspect(move |batch| {
            if let Ok(batch) = batch {
                widest.fetch_max(widest_row(batch), Ordering::Relaxed);
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The widest row of a cross join's left side, which is copied for each row of its right side.
#[derive(Debug, Clone)]
struct WidestRow {
    limit: ByteLimit,
    /// Bytes of the widest row, among the rows of the left side that were read so far.
    widest: Arc<AtomicUsize>,
}

impl CopiedPerRow for WidestRow {
    const NAME: &'static str = "FewPartnersExec";

    fn max_rows(&self) -> usize {
        let rows = self.limit.bytes.checked_div(self.bytes_per_row());
        rows.unwrap_or(usize::MAX).max(1)
    }

    fn bytes_per_row(&self) -> usize {
        self.widest.load(Ordering::Relaxed)
    }

    fn describe(&self, rows: usize) -> String {
        let row = MemorySize::from(self.bytes_per_row());
        format!("copying a row of {row} for {rows} other rows")
    }
}

/// Refuses rows whose copies for one batch would be too large.
#[derive(Debug)]
struct WidthCheck {
    limit: ByteLimit,
    /// Number of copies of a row that a join puts into a batch.
    rows_at_once: usize,
    /// The columns whose lists become rows, if the operator is an unnesting.
    lists: Option<Vec<usize>>,
}

impl WidthCheck {
    fn check(&self, batch: &RecordBatch) -> Result<()> {
        let mut row = widest_row(batch);
        let mut copies = self.rows_at_once;
        let mut copied_by = "a join";
        if let Some(lists) = &self.lists {
            // Unnesting first puts the elements of all lists of a row into one batch, however many.
            let lists = lists.iter().map(|list| longest_list(batch.column(*list)));
            copies = lists.max().unwrap_or_default();
            row = batch
                .project(&self.columns_without_lists(batch))
                .map(|others| widest_row(&others).saturating_add(fixed_width(&others)))?;
            copied_by = "unnest";
        }
        let bytes = row.saturating_mul(copies);
        let max_bytes = self.limit.bytes.saturating_mul(MAX_VALUES_PER_BATCH);
        if bytes <= max_bytes {
            return Ok(());
        }
        // DataFusion's own error for missing memory would make some joins spill.
        let error = Error::new(
            ErrorCode::ResourceExhausted,
            format!(
                "{copied_by} may copy a row of {} for each of {copies} rows at once, which takes {}; {} allows {}: leave large values out of its input, or compute them from its result",
                MemorySize::from(row),
                MemorySize::from(bytes),
                self.limit.setting,
                MemorySize::from(max_bytes)
            ),
        );
        Err(error.into())
    }

    /// Returns the columns whose values are copied for each element of a list.
    fn columns_without_lists(&self, batch: &RecordBatch) -> Vec<usize> {
        let lists = self.lists.as_deref().unwrap_or_default();
        let columns = 0..batch.num_columns();
        columns.filter(|column| !lists.contains(column)).collect()
    }
}

impl Wrapper for Arc<WidthCheck> {
    const NAME: &'static str = "NarrowExec";

    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let width_check = Arc::clone(self);
        let rows = within.execute(partition, context)?;
        let schema = rows.schema();
        let rows = rows.map(move |batch| {
            let batch = batch?;
            width_check.check(&batch)?;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::common::tree_node::{Transformed, TreeNode};
    use datafusion::physical_plan::collect;

    use super::*;
    use crate::run::context_with_small_values;

    async fn number(sql: &str) -> Result<i64> {
        let context = context_with_small_values();
        let plan = context.sql(sql).await?.create_physical_plan().await?;
        let task = context.task_ctx();
        let plan = plan.transform_up(|node| limit_wide_rows(node, &task).map(Transformed::yes))?;
        let batches = collect(plan.data, context.task_ctx()).await?;
        Ok(batches[0].column(0).as_primitive::<Int64Type>().value(0))
    }

    /// Returns a subquery for one row with a text of this many bytes.
    fn text(bytes: usize) -> String {
        format!(
            "(SELECT repeat('x', {bytes} + x - x) AS t, x FROM generate_series(1, 1) g(x)) AS texts"
        )
    }

    #[tokio::test]
    async fn a_cross_join_makes_few_copies_of_a_wide_row_at_once() {
        let numbers = "generate_series(1, 5000) AS n(y)";
        for bytes in [1, 100_000] {
            let sql = format!("SELECT sum(length(t) + y) FROM {numbers}, {}", text(bytes));
            let expected = 5000 * i64::try_from(bytes).unwrap() + 5000 * 5001 / 2;
            assert_eq!(number(&sql).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn joins_refuse_rows_that_are_too_wide_to_be_copied() {
        for join in [
            "JOIN generate_series(1, 10) AS n(y) ON x = y",
            "JOIN generate_series(1, 10) AS n(y) ON x + 0.5 < y",
            "LEFT JOIN generate_series(1, 10) AS n(y) ON x = y",
        ] {
            let narrow = format!(
                "SELECT sum(length(t || y::VARCHAR)) FROM {} {join}",
                text(400)
            );
            assert!(number(&narrow).await.is_ok(), "{narrow}");
            let wide = format!(
                "SELECT sum(length(t || y::VARCHAR)) FROM {} {join}",
                text(1000)
            );
            let error = number(&wide).await.unwrap_err().to_string();
            assert!(
                error.contains("a join may copy a row of"),
                "{wide}: {error}"
            );
        }
        let semi = format!(
            "SELECT sum(length(t)) FROM {} WHERE x IN (SELECT y FROM generate_series(1, 10) AS n(y))",
            text(100_000)
        );
        assert_eq!(number(&semi).await.unwrap(), 100_000);
    }

    #[tokio::test]
    async fn what_stands_beside_a_long_list_is_narrow() {
        let elements = |list: usize, bytes: usize| {
            format!(
                "SELECT sum(e * 0 + length(t)) FROM (SELECT unnest(range(0, {list})) AS e, t FROM {})",
                text(bytes)
            )
        };
        assert_eq!(number(&elements(100_000, 10)).await.unwrap(), 1_000_000);
        for sql in [elements(100_000, 60), elements(5_000, 1_000)] {
            let error = number(&sql).await.unwrap_err().to_string();
            assert!(error.contains("unnest may copy a row of"), "{sql}: {error}");
        }
    }
}
