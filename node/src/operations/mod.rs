//! A process answers monitoring systems on a listener of its own, off the path of the data:
//! `/metrics` for Prometheus, `/healthz` for whoever restarts processes that hang, and `/readyz`
//! for whoever sends clients only to nodes that serve.

/// Answers a request.
mod answer;
/// Defines the settings.
mod config;
/// Lists the metrics that all nodes have, and measures them.
mod node_metrics;
/// Knows the nodes of the process.
mod observed;
/// Serves the listener's connections.
mod server;
/// Reads and checks the token that `/metrics` asks for.
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use volary_flight_proto::Result;

use crate::Runtimes;
use crate::listener::Listener;
use crate::metrics::runtime_lag::{self, RuntimeLag};
use crate::metrics::{Metric, disk_syncs, process};
use crate::tls::Tls;
pub use config::{Config, TlsConfig};
pub use node_metrics::{METRICS as NODE_METRICS, NodeResources};
use observed::Observed;
pub use observed::ObservedNode;
use server::Server;

/// The metrics of a process, whatever nodes run in it.
pub fn process_metrics() -> impl Iterator<Item = Metric> {
    let metrics = [
        process::METRICS,
        runtime_lag::METRICS,
        disk_syncs::METRICS,
        NODE_METRICS,
    ];
    metrics.into_iter().flatten().copied()
}

/// The listener for monitoring systems. Dropping it closes the listener.
#[derive(Debug)]
pub struct Operations {
    observed: Arc<Observed>,
    address: Option<SocketAddr>,
    is_encrypted: bool,
    serving: JoinSet<()>,
}

/// Checks that the files which the settings name can be used. Must be called within a runtime.
///
/// # Errors
/// The errors of the files.
pub fn check_files(config: &Config) -> Result<()> {
    load_files(config).map(drop)
}

fn load_files(config: &Config) -> Result<Tls> {
    // The token is read again for each request.
    config.token_file.as_deref().map(token::read).transpose()?;
    Tls::load_for_operations(config.tls.certificate.clone(), config.tls.key.clone())
}

impl Operations {
    /// Opens the listener, if the settings name an address. The process is ready when it has
    /// `expected_nodes` nodes, and all of them serve. Must be called within the I/O runtime.
    ///
    /// # Errors
    /// The errors of the settings, of the certificate and of the address.
    pub fn start(config: &Config, expected_nodes: usize, runtimes: &Runtimes) -> Result<Self> {
        config.validate()?;
        let lag = config.listen.map(|_| RuntimeLag::measure(runtimes));
        let mut operations = Self {
            observed: Arc::new(Observed::new(expected_nodes, config.label_users, lag)),
            address: None,
            is_encrypted: false,
            serving: JoinSet::new(),
        };
        let Some(address) = config.listen else {
            return Ok(operations);
        };
        let tls = load_files(config)?;
        operations.is_encrypted = tls.server().is_some();
        let listener = Listener::bind(address)?;
        operations.address = Some(listener.address());
        let server = Server {
            observed: Arc::clone(&operations.observed),
            token_file: config.token_file.clone(),
            tls,
        };
        // The socket belongs to the I/O runtime, in which it was bound. The answers are computed on
        // the health runtime, so that a busy node is not declared dead.
        let serving = server.serve(listener, runtimes.health().clone());
        operations.serving.spawn_on(serving, runtimes.io());
        Ok(operations)
    }

    /// Adds a node of the process. It is shown as long as it runs.
    pub fn observe(&self, node: &Arc<dyn ObservedNode>) {
        self.observed.add(node);
    }

    /// Makes `/readyz` say from now on that the process stops.
    pub fn set_stopping(&self) {
        self.observed.set_stopping();
    }

    /// Returns the URI of the listener, or `None` if there is no listener.
    pub fn uri(&self) -> Option<String> {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        self.address.map(|address| format!("{scheme}://{address}"))
    }
}
