//! Settings from file, environment and flags. The doc comments are the reference: `docs/configuration.md` is made from them.

mod layers;
/// `docs/limits.md`, from the defaults of the settings.
pub mod limits;
/// `docs/configuration.md`, from the doc comments.
pub mod reference;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::size::MemorySize;

use crate::logging;

pub use layers::{Flag, Layers, process_environment};

/// More workers than this in one process is a mistake. How many there can be depends on the files that it may open.
const MAX_LOCAL_WORKERS: usize = 4096;

/// All settings of the binary; each has a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The gateway: `volary gateway`, and the one of `volary local` and `volary demo`.
    pub gateway: volary_gateway::Config,
    /// The worker: `volary worker`, and each one of `volary local` and `volary demo`.
    pub worker: volary_worker::Config,
    /// The cluster in one process: `volary local` and `volary demo`. Takes the place of the settings of gateway and workers
    /// about addresses, directories and memory limits.
    pub local: Local,
    /// Logs, on standard error.
    pub log: logging::Config,
}

/// The cluster in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Local {
    /// Address that clients connect to. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Directory of the gateway's and the workers' directories.
    pub data_dir: PathBuf,
    /// Number of workers.
    pub workers: usize,
    /// Memory that queries may hold: half of it on the gateway, the rest divided among the workers.
    pub memory: MemorySize,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7100)),
            data_dir: PathBuf::from("volary-data"),
            workers: 4,
            memory: MemorySize::Percent(60),
        }
    }
}

impl Settings {
    /// The defaults, with the layers on top, checked.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown key, a value that the key does not take, or a file that is not TOML; `NOT_FOUND` for a
    /// file that is not there. The message names the key and the file, variable or flag.
    pub fn load(layers: &Layers) -> Result<Self> {
        let settings = layers.merge()?;
        settings.validate()?;
        Ok(settings)
    }

    /// Checks what types cannot say.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the key and what it takes.
    pub fn validate(&self) -> Result<()> {
        self.gateway.validate()?;
        self.worker.validate()?;
        self.log.validate()?;
        if !(1..=MAX_LOCAL_WORKERS).contains(&self.local.workers) {
            return Err(Error::invalid(format!(
                "local.workers is {}; it takes 1 to {MAX_LOCAL_WORKERS}",
                self.local.workers
            )));
        }
        Ok(())
    }

    /// As JSON, without the secrets.
    ///
    /// # Errors
    /// `INTERNAL`: a bug.
    pub fn shown(&self) -> Result<Value> {
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
