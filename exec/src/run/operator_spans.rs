use std::sync::Arc;
use std::time::SystemTime;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use tracing::Span;
use volary_node::traces;

/// Exports a span for each operator of a plan that has run, below `parent`, with its rows and its
/// computing time. DataFusion measures when an operator was started and when it ended. Operators
/// without these times are left out. Does nothing if the trace is not recorded.
pub fn record_operators(plan: &Arc<dyn ExecutionPlan>, parent: &Span) {
    if traces::is_recorded(parent) {
        record(plan, parent);
    }
}

fn record(plan: &Arc<dyn ExecutionPlan>, parent: &Span) {
    if let Some(metrics) = plan.metrics()
        && let Some(times) = times(&metrics)
    {
        let attributes = [
            ("rows", metrics.output_rows()),
            ("compute_ns", metrics.elapsed_compute()),
            ("bytes_scanned", sum(&metrics, "bytes_scanned")),
            ("spilled_bytes", metrics.spilled_bytes()),
        ];
        let attributes = attributes
            .into_iter()
            .filter_map(|(key, value)| Some((key, i64::try_from(value?).unwrap_or(i64::MAX))));
        traces::record_ended(parent, plan.name().to_owned(), times, attributes);
    }
    for child in plan.children() {
        record(child, parent);
    }
}

fn sum(metrics: &MetricsSet, name: &str) -> Option<usize> {
    metrics.sum_by_name(name).map(|value| value.as_usize())
}

/// Returns when the first partition of an operator started, and when the last one ended.
fn times(metrics: &MetricsSet) -> Option<(SystemTime, SystemTime)> {
    let (mut started, mut ended) = (None, None);
    for metric in metrics.iter() {
        match metric.value() {
            MetricValue::StartTimestamp(time) => {
                let time = time.value();
                started = match (started, time) {
                    (Some(first), Some(time)) => Some(std::cmp::min(first, time)),
                    (first, time) => first.or(time),
                };
            }
            MetricValue::EndTimestamp(time) => ended = ended.max(time.value()),
            _ => {}
        }
    }
    let started = SystemTime::from(started?);
    Some((started, SystemTime::from(ended?).max(started)))
}
