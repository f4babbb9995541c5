//! A metric is a constant ([`Metric`]), so that one list of them is both the documentation and the
//! names that are sent. Nodes add their values to [`Samples`] only when somebody asks for them:
//! most values are counted anyway, so the metrics cost nothing in between.

/// Defines what a metric is.
mod definition;
/// Counts how often files and directories are made durable.
pub(crate) mod disk_syncs;
/// Counts how calls and statements end.
mod outcomes;
/// Measures the process: processor time, memory, open files.
pub(crate) mod process;
/// Counts rows and their bytes.
mod row_counts;
/// Measures how late the tasks of the runtimes run.
pub(crate) mod runtime_lag;
/// Collects the values of one scrape, and writes them as text.
mod samples;

pub use definition::{Metric, MetricKind, duration_histogram};
pub use outcomes::OutcomeCounts;
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::histogram::Histogram;
pub use row_counts::RowCounts;
pub(crate) use samples::TextFormat;
pub use samples::{Label, Samples};
