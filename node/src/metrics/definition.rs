use prometheus_client::metrics::histogram::Histogram;

/// A metric, as it is documented and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name, with the unit. The name of a counter ends in `_total`.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: MetricKind,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The meaning, as one sentence.
    pub help: &'static str,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows while the process runs.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// A distribution of values.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// Defines a counter.
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, MetricKind::Counter, labels, help)
    }

    /// Defines a gauge.
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, MetricKind::Gauge, labels, help)
    }

    /// Defines a histogram.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, MetricKind::Histogram, labels, help)
    }

    const fn new(
        name: &'static str,
        kind: MetricKind,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            labels,
            help,
        }
    }
}

/// Returns a histogram of durations in seconds. Its buckets reach from half a millisecond, because
/// a point query takes a millisecond, to an hour, the default time limit of a statement.
pub fn duration_histogram() -> Histogram {
    Histogram::new([
        0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        30.0, 60.0, 300.0, 900.0, 3600.0,
    ])
}
