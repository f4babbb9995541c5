use std::io::IsTerminal;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::traces::Traces;

/// Settings of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Format of the log: `text`, or `json` with one object per line.
    #[schemars(with = "String")]
    pub format: LogFormat,
    /// Filter of the log, in the syntax of tracing's `EnvFilter`, for example `info` or
    /// `warn,volary_gateway=debug`. Default: `info` for nodes, `warn` for all other commands.
    pub filter: Option<String>,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line, for machines.
    Json,
}

impl Config {
    /// Checks what the types of the settings cannot express.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the filter is not valid.
    pub fn validate(&self) -> Result<()> {
        self.filter
            .as_deref()
            .map_or(Ok(()), |filter| parse(filter).map(drop))
    }
}

/// Starts logging, and makes spans for `traces`. `default_filter` applies if the settings have no
/// filter. A process that logs already, such as a test, keeps its logging.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the filter is not valid.
pub fn start(config: &Config, default_filter: &str, traces: Option<&Traces>) -> Result<()> {
    let filter = parse(config.filter.as_deref().unwrap_or(default_filter))?;
    let registry = tracing_subscriber::registry();
    // An error means that a subscriber is set already.
    let _ = match traces {
        // The filter of a single layer loses lines if it is not the filter of everything: see the
        // filter of traces.
        None => registry.with(filter).with(lines(config.format)).try_init(),
        Some(traces) => registry
            .with(lines(config.format).with_filter(filter))
            .with(traces.layer())
            .try_init(),
    };
    Ok(())
}

/// Returns the layer that writes the lines of the log.
fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}

fn parse(filter: &str) -> Result<EnvFilter> {
    EnvFilter::try_new(filter).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!(
                "log.filter \"{filter}\" is not valid; write, for example, info or warn,volary_gateway=debug"
            ),
            source,
        )
    })
}
