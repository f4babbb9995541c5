use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::definition::{Metric, MetricKind};

/// The end of a counter's name. The library adds it to names by itself.
const COUNTER_SUFFIX: &str = "_total";

/// A label: its name and its value.
pub type Label = (&'static str, String);

/// The format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The older format of Prometheus, which everything else reads.
    Prometheus,
}

impl TextFormat {
    /// Returns the media type of the text.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The values of all metrics at one time. Several nodes of a process add values of the same metric,
/// with other labels.
#[derive(Debug, Default)]
pub struct Samples {
    families: BTreeMap<&'static str, Family>,
}

#[derive(Debug)]
struct Family {
    metric: Metric,
    values: Vec<(Vec<Label>, Value)>,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Seconds(f64),
    Gauge(f64),
    Histogram(Histogram),
}

impl Samples {
    /// Adds the value of a counter.
    pub fn counter(&mut self, metric: Metric, labels: impl Into<Vec<Label>>, value: u64) {
        self.add(metric, labels.into(), Value::Count(value));
    }

    /// Adds the value of a counter of seconds.
    pub fn seconds(&mut self, metric: Metric, labels: impl Into<Vec<Label>>, value: f64) {
        self.add(metric, labels.into(), Value::Seconds(value));
    }

    /// Adds the value of a gauge.
    pub fn gauge(&mut self, metric: Metric, labels: impl Into<Vec<Label>>, value: f64) {
        self.add(metric, labels.into(), Value::Gauge(value));
    }

    /// Adds a histogram.
    pub fn histogram(&mut self, metric: Metric, labels: impl Into<Vec<Label>>, value: &Histogram) {
        self.add(metric, labels.into(), Value::Histogram(value.clone()));
    }

    fn add(&mut self, metric: Metric, labels: Vec<Label>, value: Value) {
        debug_assert!(
            labels.iter().map(|(name, _)| name).eq(metric.labels),
            "{} has the labels {:?}",
            metric.name,
            metric.labels
        );
        let family = self.families.entry(metric.name).or_insert(Family {
            metric,
            values: Vec::new(),
        });
        family.values.push((labels, value));
    }

    /// Returns the metrics of which there is a value, ordered by name.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> {
        self.families.values().map(|family| family.metric)
    }

    /// Writes all values as text.
    ///
    /// # Errors
    /// `INTERNAL` if there is a bug.
    pub(crate) fn into_text(self, format: TextFormat) -> Result<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::new(self)));
        let mut text = String::new();
        let written = match format {
            TextFormat::OpenMetrics => text::encode(&mut text, &registry),
            TextFormat::Prometheus => prometheus_text::encode(&mut text, &registry),
        };
        written.map_err(|source| {
            Error::with_source(ErrorCode::Internal, "the metrics cannot be written", source)
        })?;
        Ok(text)
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, values } in self.families.values() {
            let (name, kind) = match metric.kind {
                MetricKind::Counter => (
                    metric
                        .name
                        .strip_suffix(COUNTER_SUFFIX)
                        .unwrap_or(metric.name),
                    MetricType::Counter,
                ),
                MetricKind::Gauge => (metric.name, MetricType::Gauge),
                MetricKind::Histogram => (metric.name, MetricType::Histogram),
            };
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for (labels, value) in values {
                value.encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        /// Nothing here has an exemplar: a value that is linked to a trace.
        const NO_EXEMPLAR: Option<&Exemplar<[(String, String); 0], f64>> = None;
        match self {
            Self::Count(count) => encoder.encode_counter(count, NO_EXEMPLAR),
            Self::Seconds(seconds) => encoder.encode_counter(seconds, NO_EXEMPLAR),
            Self::Gauge(value) => encoder.encode_gauge(value),
            Self::Histogram(histogram) => histogram.encode(encoder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Metric = Metric::counter("volary_calls_total", &["node"], "Number of calls.");
    const WAIT: Metric = Metric::histogram("volary_wait_seconds", &[], "Time waited.");
    const BYTES: Metric = Metric::gauge("volary_bytes", &["node"], "Bytes.");

    fn samples() -> Samples {
        let mut samples = Samples::default();
        samples.counter(CALLS, [("node", "w1".to_owned())], 3);
        samples.gauge(BYTES, [("node", "a\"b\\c\n".to_owned())], 1.5);
        samples.counter(CALLS, [("node", "w2".to_owned())], 4);
        let wait = Histogram::new([1.0]);
        wait.observe(0.5);
        samples.histogram(WAIT, [], &wait);
        samples
    }

    #[test]
    fn the_values_of_several_nodes_are_one_metric() {
        let text = samples().into_text(TextFormat::OpenMetrics).unwrap();
        let expected = [
            "# HELP volary_bytes Bytes.",
            "# TYPE volary_bytes gauge",
            "volary_bytes{node=\"a\\\"b\\\\c\\n\"} 1.5",
            "# HELP volary_calls Number of calls.",
            "# TYPE volary_calls counter",
            "volary_calls_total{node=\"w1\"} 3",
            "volary_calls_total{node=\"w2\"} 4",
            "# HELP volary_wait_seconds Time waited.",
            "# TYPE volary_wait_seconds histogram",
            "volary_wait_seconds_sum 0.5",
            "volary_wait_seconds_count 1",
            "volary_wait_seconds_bucket{le=\"1.0\"} 1",
            "volary_wait_seconds_bucket{le=\"+Inf\"} 1",
            "# EOF",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_older_format_has_the_same_names() {
        let text = samples().into_text(TextFormat::Prometheus).unwrap();
        assert!(text.contains("# TYPE volary_calls_total counter"), "{text}");
        assert!(text.contains("volary_calls_total{node=\"w2\"} 4"), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
    }
}
