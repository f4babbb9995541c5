use std::sync::atomic::{AtomicU64, Ordering};

use volary_node::metrics::{Metric, Samples};

use crate::report::StreamReport;

const STREAMS: Metric = Metric::counter(
    "volary_gather_streams_total",
    &["node"],
    "Streams of workers that the node has read, as a gateway or as a relay.",
);
const OPEN: Metric = Metric::gauge(
    "volary_gather_streams_open",
    &["node"],
    "Streams of workers that the node reads now.",
);
const RETRIES: Metric = Metric::counter(
    "volary_gather_retries_total",
    &["node"],
    "Streams of workers that failed before their first row and were opened again.",
);
const ROWS: Metric = Metric::counter(
    "volary_gather_rows_total",
    &["node"],
    "Rows that workers have sent to the node; counted when their stream ends.",
);
const BYTES: Metric = Metric::counter(
    "volary_gather_bytes_total",
    &["node"],
    "Bytes of rows that workers have sent to the node, as encoded; counted when their stream ends.",
);

/// The metrics of gathers.
pub const METRICS: &[Metric] = &[STREAMS, OPEN, RETRIES, ROWS, BYTES];

/// Totals over all gathers of a node since its start.
#[derive(Debug, Default)]
pub struct GatherTotals {
    begun: AtomicU64,
    ended: AtomicU64,
    retries: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl GatherTotals {
    /// Counts a stream that is read from now on.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a stream that is not read any more.
    pub(crate) fn end(&self, report: &StreamReport) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.retries
            .fetch_add(report.retries.into(), Ordering::Relaxed);
        self.rows.fetch_add(report.rows, Ordering::Relaxed);
        self.bytes.fetch_add(report.bytes, Ordering::Relaxed);
    }

    /// Adds the values of the node with this name.
    pub fn collect(&self, node: &str, samples: &mut Samples) {
        let labels = || [("node", node.to_owned())];
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // The ended ones are read first, so that there are never more of them than have begun.
        let ended = load(&self.ended);
        let begun = load(&self.begun);
        samples.counter(STREAMS, labels(), begun);
        samples.gauge(OPEN, labels(), begun.saturating_sub(ended) as f64);
        samples.counter(RETRIES, labels(), load(&self.retries));
        samples.counter(ROWS, labels(), load(&self.rows));
        samples.counter(BYTES, labels(), load(&self.bytes));
    }
}
