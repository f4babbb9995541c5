use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use volary_gather::members::MembersExec;

use crate::segment::STORE_WAIT_TIME;

/// Name of DataFusion's metric with the time in which a scan computed: it opened, read and decoded
/// files.
const SCAN_TIME: &str = "time_elapsed_processing";

/// The work that a plan did, from the metrics of its operators. The times of partitions that run in
/// parallel are added.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Time in which the operators computed, without their inputs.
    pub(super) compute: Duration,
    /// The part of `compute` that belongs to scans.
    scan_compute: Duration,
    pub(super) scanned_rows: u64,
    pub(super) scanned_bytes: u64,
    /// Time in which scans worked, including `scan_compute`.
    scan: Duration,
    /// Time in which scans waited for storage.
    store_wait: Duration,
}

impl Work {
    /// Adds up the metrics of a plan.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut work = Self::default();
        work.add(plan);
        work
    }

    /// Returns the time in which scans read and decoded, or waited for storage.
    pub(super) fn read(&self) -> Duration {
        self.scan + self.store_wait
    }

    /// Returns the time in which other operators than scans computed.
    pub(super) fn compute_without_scans(&self) -> Duration {
        self.compute.saturating_sub(self.scan_compute)
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        let children = plan.children();
        if let Some(metrics) = plan.metrics() {
            let compute = metrics.elapsed_compute().unwrap_or(0);
            self.compute += Duration::from_nanos(compute as u64);
            // The members themselves report what they have scanned.
            if children.is_empty() && !plan.is::<MembersExec>() {
                self.add_scan(&metrics);
            }
        }
        for child in children {
            self.add(child);
        }
    }

    fn add_scan(&mut self, metrics: &MetricsSet) {
        let (mut compute, mut scan) = (0, Duration::ZERO);
        for metric in metrics.iter() {
            match metric.value() {
                MetricValue::ElapsedCompute(time) => compute += time.value(),
                MetricValue::OutputRows(rows) => self.scanned_rows += rows.value() as u64,
                MetricValue::Count { name, count } if name == "bytes_scanned" => {
                    self.scanned_bytes += count.value() as u64;
                }
                MetricValue::Time { name, time } => {
                    let time = Duration::from_nanos(time.value() as u64);
                    match &**name {
                        SCAN_TIME => scan += time,
                        STORE_WAIT_TIME => self.store_wait += time,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        self.scan += scan;
        // Leaves that read no files only compute.
        if !scan.is_zero() {
            self.scan_compute += Duration::from_nanos(compute as u64);
        }
    }
}
