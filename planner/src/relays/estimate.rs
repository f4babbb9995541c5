use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::cost::MergeEstimate;
use crate::gather::GatherExec;

/// Estimates the merge of partial aggregates without groups.
pub(super) fn ungrouped(gather: &GatherExec) -> MergeEstimate {
    merge(gather, 1.0, 1.0)
}

/// Estimates the merge of the first rows of each worker, of which `fetch` are needed.
pub(super) fn first_rows(gather: &GatherExec, fetch: usize) -> MergeEstimate {
    let rows = fetch.max(1) as f64;
    merge(gather, rows, rows)
}

/// Estimates the merge of partial aggregates of groups. If the number of groups is unknown, each
/// row may be a group.
///
/// # Errors
/// An error if an operator cannot compute its statistics.
pub(super) fn grouped(gather: &GatherExec) -> Result<MergeEstimate> {
    let fragment = gather.fragment();
    let statistics = |plan| StatisticsContext::new().compute(plan, &StatisticsArgs::new());
    let (rows, groups) = match fragment.downcast_ref::<AggregateExec>() {
        Some(partial) => {
            let input = statistics(partial.input().as_ref())?;
            let keys = partial.group_expr().expr().iter();
            let keys = keys.map(|(key, _)| key.downcast_ref::<Column>());
            let values = keys.map(|key| distinct_values(&input, key?.index()));
            (input.num_rows, values.product())
        }
        None => (statistics(fragment.as_ref())?.num_rows, None),
    };
    let rows = rows.get_value().map_or(f64::MAX, |rows| *rows as f64);
    let groups = groups.map_or(rows, |groups: f64| groups.min(rows)).max(1.0);
    let rows_per_worker = rows / gather.targets().len().max(1) as f64;
    // This assumes that each row belongs to each group with the same probability.
    let groups_per_worker = groups * -(-rows_per_worker / groups).exp_m1();
    Ok(merge(gather, groups_per_worker.max(1.0), groups))
}

fn merge(gather: &GatherExec, rows: f64, distinct: f64) -> MergeEstimate {
    MergeEstimate {
        workers: gather.targets().len() as f64,
        rows,
        distinct,
        cores: gather.partitions() as f64,
    }
}

/// Returns the number of different values that a column may have.
fn distinct_values(statistics: &Statistics, column: usize) -> Option<f64> {
    let column = statistics.column_statistics.get(column)?;
    if let Some(count) = column.distinct_count.get_value() {
        return Some(*count as f64);
    }
    let number = |bound: &Precision<ScalarValue>| {
        let bound = bound.get_value()?;
        let is_whole = bound.data_type().is_integer() || bound.data_type().is_temporal();
        let number = is_whole.then(|| bound.cast_to(&arrow::datatypes::DataType::Int64))?;
        i64::try_from(number.ok()?).ok()
    };
    let (min, max) = (number(&column.min_value)?, number(&column.max_value)?);
    Some((max as f64 - min as f64 + 1.0).max(1.0))
}
