//! Logs to standard error, for people or for machines.

use std::io::IsTerminal;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Logs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `text`, or `json`: one object a line.
    #[schemars(with = "String")]
    pub format: Format,
    /// What is logged, in the syntax of tracing's `EnvFilter`: `info`, `warn,volary_gateway=debug`. Default: `info` for nodes,
    /// `warn` for all other commands.
    pub filter: Option<String>,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

impl Config {
    /// Checks what types cannot say.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the filter is none.
    pub fn validate(&self) -> Result<()> {
        self.filter
            .as_deref()
            .map_or(Ok(()), |filter| parse(filter).map(drop))
    }
}

/// Starts logging; `default_filter` is for where the settings have none. A process that logs already (a test) goes on as it does.
///
/// # Errors
/// `INVALID_ARGUMENT` if the filter is none.
pub fn start(config: &Config, default_filter: &str) -> Result<()> {
    let filter = parse(config.filter.as_deref().unwrap_or(default_filter))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // An error says that a subscriber is set already.
    let _ = match config.format {
        Format::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        Format::Json => subscriber.json().flatten_event(true).try_init(),
    };
    Ok(())
}

fn parse(filter: &str) -> Result<EnvFilter> {
    EnvFilter::try_new(filter).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!(
                "log.filter is \"{filter}\"; write for example info or warn,volary_gateway=debug"
            ),
            source,
        )
    })
}
