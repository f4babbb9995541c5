//! Handing a fragment over to the CPU runtime and its rows back takes longer than reading a few
//! rows. So the start of a fragment is on the network thread if its last start was quick. The rest
//! of it is, too, if it is short. That is known once it is bound to its segments. A poll cannot be
//! broken off, so a plan is short only if it also computes little for each row.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use volary_exec::key_set::KeySetExpr;
use volary_node::Runtimes;

use super::cache::DecodedFragment;
use crate::scan::LoggedBatches;
use crate::storage::Segment;

/// Most values that a short fragment reads, in all rows and columns. They take about half a
/// millisecond.
const MAX_VALUES: u64 = 16 << 10;
/// Most bytes of the segments that a short fragment reads.
const MAX_BYTES: u64 = 256 << 10;
/// Most segments that a short fragment reads. Opening a segment takes longer than reading its rows,
/// if it has few.
const MAX_SEGMENTS: u64 = 8;

/// Starts a fragment with `work`: on the thread that polls the returned future if the fragment is
/// `cached` and its last start was quick, and otherwise on the CPU runtime.
///
/// # Errors
/// Returns the errors of the work.
pub(super) async fn start<T: Send + 'static>(
    runtimes: &Runtimes,
    cached: Option<Arc<DecodedFragment>>,
    work: impl Future<Output = volary_flight_proto::Result<T>> + Send + 'static,
) -> volary_flight_proto::Result<T> {
    let is_quick = cached
        .as_ref()
        .is_some_and(|fragment| fragment.starts_quickly());
    let timed = async move {
        let began = Instant::now();
        let started = work.await;
        if let Some(fragment) = cached {
            fragment.note_start(began.elapsed());
        }
        started
    };
    match is_quick {
        true => runtimes.start_here(timed).await,
        false => runtimes.on_cpu(timed).await,
    }
}

/// Returns whether a bound plan is expected to compute for less than a millisecond.
pub(super) fn is_short(plan: &Arc<dyn ExecutionPlan>) -> bool {
    // An operator with several partitions has tasks.
    plan.output_partitioning().partition_count() == 1
        && Reads::default().add(plan).is_ok_and(|is_short| is_short)
}

/// The segments that a plan reads.
#[derive(Default)]
struct Reads {
    values: u64,
    bytes: u64,
    segments: u64,
}

impl Reads {
    /// Adds what a part of the plan reads. Returns false if the plan is not short.
    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
        let is_plain = match plan.downcast_ref::<DataSourceExec>() {
            Some(scan) => self.add_scan(scan, plan.schema().fields().len()),
            None => computes_little(plan),
        };
        if !is_plain || !has_plain_expressions(plan)? {
            return Ok(false);
        }
        for child in plan.children() {
            if !self.add(child)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add_scan(&mut self, scan: &DataSourceExec, columns: usize) -> bool {
        let Some(scan) = scan.data_source().downcast_ref::<FileScanConfig>() else {
            return false;
        };
        let columns = columns.max(1) as u64;
        for file in scan.file_groups.iter().flat_map(|group| group.iter()) {
            let rows = if let Some(segment) = file.extension::<Arc<Segment>>() {
                self.bytes = self.bytes.saturating_add(segment.bytes());
                segment.rows()
            } else if let Some(logged) = file.extension::<LoggedBatches>() {
                logged.rows()
            } else {
                return false;
            };
            self.segments += 1;
            self.values = self.values.saturating_add(rows.saturating_mul(columns));
            if !self.are_few() {
                return false;
            }
        }
        true
    }

    fn are_few(&self) -> bool {
        self.values <= MAX_VALUES && self.bytes <= MAX_BYTES && self.segments <= MAX_SEGMENTS
    }
}

/// Returns whether an operator takes little time for each of its input's rows. A join, for example,
/// may make millions of rows from few.
fn computes_little(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<AggregateExec>()
        || plan.is::<SortExec>()
}

fn has_plain_expressions(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut are_plain = true;
    plan.apply_expressions(&mut |root| {
        root.apply(|expression| {
            are_plain &= is_plain(expression);
            Ok(if are_plain {
                TreeNodeRecursion::Continue
            } else {
                TreeNodeRecursion::Stop
            })
        })
    })?;
    Ok(are_plain)
}

/// Returns whether an expression takes little time for each value, whatever the value is. A
/// function or a regular expression may take seconds for a long text.
fn is_plain(expression: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        return matches!(
            binary.op(),
            Operator::And
                | Operator::Or
                | Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom
        );
    }
    expression.is::<Column>()
        || expression.is::<Literal>()
        || expression.is::<CastExpr>()
        || expression.is::<InListExpr>()
        || expression.is::<KeySetExpr>()
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
        || expression.is::<NotExpr>()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use datafusion::datasource::listing::PartitionedFile;
    use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
    use datafusion::datasource::table_schema::TableSchema;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::physical_expr::expressions::{LikeExpr, binary, col, lit};
    use datafusion::physical_plan::joins::CrossJoinExec;

    use super::*;

    const MOST_ROWS: usize = (MAX_VALUES / 2) as usize;

    /// Returns rows in the log with two columns: a number and a text.
    fn logged(rows: Range<usize>) -> PartitionedFile {
        let numbers: Int64Array = rows.clone().map(|row| row as i64).collect();
        let texts = StringArray::from_iter_values(rows.map(|row| row.to_string()));
        let columns = [
            ("n", Arc::new(numbers) as ArrayRef),
            ("text", Arc::new(texts) as ArrayRef),
        ];
        LoggedBatches::file(vec![RecordBatch::try_from_iter(columns).unwrap()])
    }

    /// Returns a scan with a partition for each list of files.
    fn scan(partitions: Vec<Vec<PartitionedFile>>) -> Arc<dyn ExecutionPlan> {
        let schema = logged(0..1).extension::<LoggedBatches>().unwrap().schema();
        let source = ParquetSource::new(TableSchema::from(schema));
        let store = ObjectStoreUrl::local_filesystem();
        let groups = partitions.into_iter().map(FileGroup::new).collect();
        let config = FileScanConfigBuilder::new(store, Arc::new(source));
        DataSourceExec::from_data_source(config.with_file_groups(groups).build())
    }

    fn few() -> Arc<dyn ExecutionPlan> {
        scan(vec![vec![logged(0..10)]])
    }

    #[test]
    fn a_scan_of_few_rows_in_few_segments_is_short() {
        let segments = |count: u64| (0..count).map(|_| logged(0..1)).collect::<Vec<_>>();
        for (partitions, short) in [
            (vec![vec![]], true),
            (vec![vec![logged(0..MOST_ROWS)]], true),
            (vec![vec![logged(0..MOST_ROWS + 1)]], false),
            (vec![vec![logged(0..MOST_ROWS), logged(0..1)]], false),
            (vec![segments(MAX_SEGMENTS)], true),
            (vec![segments(MAX_SEGMENTS + 1)], false),
            (vec![segments(1), segments(1)], false),
            (vec![vec![PartitionedFile::new("unknown", 1)]], false),
        ] {
            let described = format!("{partitions:?}");
            assert_eq!(is_short(&scan(partitions)), short, "{described:.200}");
        }
    }

    #[test]
    fn a_plan_is_short_only_if_it_computes_little_for_each_row() {
        let rows = few();
        let schema = rows.schema();
        let column = |name: &str| col(name, &schema).unwrap();
        let compare = |operator| binary(column("n"), operator, lit(7_i64), &schema).unwrap();
        let both = binary(
            compare(Operator::Lt),
            Operator::And,
            compare(Operator::NotEq),
            &schema,
        );
        let pattern = lit("%kea%");
        for (condition, short) in [
            (compare(Operator::Eq), true),
            (both.unwrap(), true),
            (
                Arc::new(LikeExpr::new(false, false, column("text"), pattern.clone())) as _,
                false,
            ),
            (
                binary(column("text"), Operator::RegexMatch, pattern, &schema).unwrap(),
                false,
            ),
        ] {
            let filter = FilterExec::try_new(Arc::clone(&condition), Arc::clone(&rows)).unwrap();
            let filter: Arc<dyn ExecutionPlan> = Arc::new(filter);
            assert_eq!(is_short(&filter), short, "{condition}");
        }
        let join: Arc<dyn ExecutionPlan> = Arc::new(CrossJoinExec::new(few(), few()));
        assert!(!is_short(&join));
    }
}
