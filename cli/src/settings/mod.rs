/// Merges the layers of settings: the defaults, the file, the environment and the flags, where a
/// later layer overrides an earlier one.
mod layers;
/// Generates `docs/limits.md`: the limits of a gateway, as `system.limits` lists them, and the
/// limits of a worker.
pub mod limits;
/// Generates `docs/metrics.md` from the definitions of the metrics.
pub mod metrics;
/// Generates `docs/configuration.md` from the doc comments of the settings and their defaults.
pub mod reference;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::operations;
use volary_node::size::MemorySize;

use crate::{logging, traces};

use layers::Merged;
pub use layers::{Flag, Layers, process_environment};

/// Maximum number of workers in one process. A larger number is a mistake. How many workers are
/// possible depends on the number of files that the process may open.
const MAX_LOCAL_WORKERS: usize = 4096;

/// All settings of the binary. Each setting has a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Settings of the gateway of `volary gateway`, `volary local` and `volary demo`.
    pub gateway: volary_gateway::Config,
    /// Settings of the worker of `volary worker`, and of each worker of `volary local` and
    /// `volary demo`.
    pub worker: volary_worker::Config,
    /// Settings of the cluster in one process: `volary local` and `volary demo`. They replace the
    /// settings of gateway and workers about addresses, directories and memory limits.
    pub local: LocalSettings,
    /// The listener of a process for monitoring systems. It answers `/metrics` (Prometheus and
    /// OpenMetrics), `/healthz` (200 as long as the process answers) and `/readyz` (200 as long as
    /// all nodes of the process serve, otherwise 503 with the reason).
    pub operations: operations::Config,
    /// Settings of distributed traces. The variables `OTEL_EXPORTER_OTLP_HEADERS`,
    /// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` of OpenTelemetry are honoured, too.
    pub traces: traces::Config,
    /// Settings of the log on standard error.
    pub log: logging::Config,
}

/// Settings of the cluster in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSettings {
    /// Address that clients connect to. With port 0, the system chooses a free port.
    pub listen: SocketAddr,
    /// Directory that holds the directories of the gateway and the workers.
    pub data_dir: PathBuf,
    /// Number of workers.
    pub workers: usize,
    /// Memory that queries may hold. The gateway gets half of it, and the workers share the other
    /// half.
    pub memory: MemorySize,
    /// Makes the gateway call the workers within the process. With `false`, it calls them over
    /// loopback, as a gateway calls workers of other processes, for example to measure what the
    /// network costs.
    pub in_process_calls: bool,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7100)),
            data_dir: PathBuf::from("volary-data"),
            workers: 4,
            memory: MemorySize::Percent(60),
            in_process_calls: true,
        }
    }
}

impl LocalSettings {
    fn validate(&self) -> Result<()> {
        if (1..=MAX_LOCAL_WORKERS).contains(&self.workers) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "local.workers is {}; it must be from 1 to {MAX_LOCAL_WORKERS}",
            self.workers
        )))
    }
}

impl Settings {
    /// Puts the layers on top of the defaults, and checks the result.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` for an unknown key, for a value that its key does not accept, and
    /// for a file that is not TOML. Returns `NOT_FOUND` if the file does not exist. The message
    /// names the key and the file, variable or flag.
    pub fn load(layers: &Layers) -> Result<Self> {
        let (settings, problems) = Self::examine(layers);
        match (problems.into_iter().next(), settings) {
            (Some(problem), _) => Err(problem),
            (None, Some(settings)) => Ok(settings),
            (None, None) => Err(Error::internal("the settings are missing")),
        }
    }

    /// Puts the layers on top of the defaults, and returns everything that is wrong: what
    /// [`Self::load`] returns, and what it would return after that was mended. The settings lack
    /// what was refused. They are `None` if the layers cannot be read at all.
    pub fn examine(layers: &Layers) -> (Option<Self>, Vec<Error>) {
        let Merged {
            settings,
            mut problems,
        } = layers.merge();
        if let Some(settings) = &settings {
            problems.extend(settings.refusals());
        }
        (settings, problems)
    }

    /// Returns what the types of the settings cannot express: the key and the values that it
    /// accepts, for the first wrong setting of each section.
    fn refusals(&self) -> impl Iterator<Item = Error> {
        let sections = [
            self.gateway.validate(),
            self.worker.validate(),
            self.operations.validate(),
            self.traces.validate(),
            self.log.validate(),
            self.local.validate(),
        ];
        sections.into_iter().filter_map(Result::err)
    }

    /// Returns the settings as JSON, without the secrets.
    ///
    /// # Errors
    /// Returns `INTERNAL` if there is a bug.
    pub fn without_secrets(&self) -> Result<Value> {
        let mut shown = to_json(self)?;
        for key in [
            "/gateway/secret",
            "/gateway/security/admin_password",
            "/worker/secret",
        ] {
            if let Some(secret) = shown.pointer_mut(key).filter(|secret| !secret.is_null()) {
                *secret = "(not shown)".into();
            }
        }
        Ok(shown)
    }
}

fn to_json(settings: &Settings) -> Result<Value> {
    serde_json::to_value(settings).map_err(|source| {
        Error::with_source(ErrorCode::Internal, "cannot encode the settings", source)
    })
}

#[cfg(test)]
mod tests;
