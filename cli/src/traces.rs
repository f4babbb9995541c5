//! Traces go to a collector with OTLP over gRPC. Spans are queued, and are dropped if the collector
//! does not take them in time: a collector that is down never delays a statement.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{Protocol, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanData,
    SpanExporter,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::traces::{INSTRUMENTATION, set_exporting};

/// Number of ended spans that wait for the collector. A query on 2,000 workers has about as many
/// spans on its gateway. Further spans are dropped.
const MAX_QUEUED_SPANS: usize = 8 * 1024;
const MAX_BATCH_SPANS: usize = 512;
/// Time after which ended spans are sent, even if they are few.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the end of the process waits for the last spans to be sent.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Prefix of the targets of our own spans.
const TARGET_PREFIX: &str = "volary";

/// Settings of distributed traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// URL of the collector that traces are sent to with OTLP over gRPC, such as
    /// `http://127.0.0.1:4317`. Without it, no traces are made. If the collector is down, traces
    /// are lost, and nothing else happens.
    pub endpoint: Option<String>,
    /// Share of the statements that are traced, from 0 to 1. It applies to statements whose client
    /// sends no header `traceparent`. The header says by itself whether its trace is recorded.
    pub sample: f64,
    /// Longest time that sending spans to the collector may take.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample: 1.0,
            timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Checks what the types of the settings cannot express.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` with the key and the values that it accepts.
    pub fn validate(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(Error::invalid(format!(
                "traces.sample is {}; it must be from 0 to 1",
                self.sample
            )));
        }
        match self.endpoint.as_deref() {
            Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
                Err(Error::invalid(format!(
                    "traces.endpoint is \"{url}\"; it must be a URL, such as http://127.0.0.1:4317"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Sends the traces of this process to the collector.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    /// Serves the connection to the collector. It is a runtime of its own, because it is needed
    /// before the runtimes of the node exist, and after they have ended.
    _runtime: Runtime,
}

impl Traces {
    /// Begins to export traces, if the settings name a collector. `service` is the name of this
    /// kind of process in traces.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the URL of the collector is not valid.
    pub fn start(config: &Config, service: &'static str) -> Result<Option<Self>> {
        let Some(endpoint) = &config.endpoint else {
            return Ok(None);
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("volary-traces")
            .enable_all()
            .build()
            .map_err(|source| Error::io("cannot start the thread that sends traces", source))?;
        let exporter = {
            let _entered = runtime.enter();
            opentelemetry_otlp::SpanExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .with_protocol(Protocol::Grpc)
                .with_timeout(config.timeout)
                .build()
                .map_err(|source| {
                    Error::with_source(
                        ErrorCode::InvalidArgument,
                        format!("traces.endpoint \"{endpoint}\" cannot be used"),
                        source,
                    )
                })?
        };
        let exporter = LoggedExporter {
            exporter,
            endpoint: endpoint.clone(),
            has_failed: AtomicBool::new(false),
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(EXPORT_INTERVAL)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let root_sampler = Sampler::TraceIdRatioBased(config.sample);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(root_sampler)))
            .with_resource(resource(service))
            .build();
        global::set_tracer_provider(provider.clone());
        set_exporting();
        Ok(Some(Self {
            provider,
            _runtime: runtime,
        }))
    }

    /// Returns the layer that makes the spans of `tracing` spans of the exported traces.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer: SdkTracer = self.provider.tracer(INSTRUMENTATION);
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            // Nothing asks for OpenTelemetry's current context, which would change at each entry of
            // a span.
            .with_context_activation(false)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_filter(Exported)
    }

    /// Sends the last spans.
    pub fn finish(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Exports our own spans, and of our log what is worth knowing where a span is looked at.
struct Exported;

impl Exported {
    fn exports(metadata: &Metadata<'_>) -> bool {
        let least = if metadata.is_span() {
            Level::DEBUG
        } else {
            Level::INFO
        };
        metadata.target().starts_with(TARGET_PREFIX) && *metadata.level() <= least
    }
}

impl<S> Filter<S> for Exported {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Self::exports(metadata)
    }

    /// Never answers `always`. A span that all filters always want is made without asking them.
    /// Then it gets the last answer that was given on this thread, and that may be a refusal: a
    /// library only asked whether something would be logged, and logged nothing
    /// (<https://github.com/tokio-rs/tracing/issues/2519>).
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::exports(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }
}

fn resource(service: &'static str) -> Resource {
    let resource = Resource::builder();
    let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => resource,
        None => resource.with_service_name(service),
    };
    resource
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// An exporter that logs when the collector begins to fail, and when it works again. Without it, a
/// collector that is down would be a line in the log each second, or none.
#[derive(Debug)]
struct LoggedExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    endpoint: String,
    has_failed: AtomicBool,
}

impl SpanExporter for LoggedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.exporter.export(batch).await;
        let had_failed = self.has_failed.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !had_failed => {
                tracing::warn!(endpoint = self.endpoint, %error, "traces cannot be sent, and are lost; check traces.endpoint and the collector");
            }
            Ok(()) if had_failed => {
                tracing::info!(endpoint = self.endpoint, "traces are sent again");
            }
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_are_refused_with_the_key() {
        let too_many = Config {
            sample: 1.5,
            ..Config::default()
        };
        let error = too_many.validate().unwrap_err();
        assert_eq!(
            error.message(),
            "traces.sample is 1.5; it must be from 0 to 1"
        );
        let no_url = Config {
            endpoint: Some("collector:4317".to_owned()),
            ..Config::default()
        };
        let error = no_url.validate().unwrap_err();
        assert!(
            error
                .message()
                .starts_with("traces.endpoint is \"collector:4317\""),
            "{error}"
        );
        Config::default().validate().unwrap();
    }
}
