use volary_flight_proto::Result;
use volary_node::Runtimes;
use volary_node::operations::{Config, Operations};

use crate::terminal;

/// Opens the listener for monitoring systems, if the settings name an address, and prints its URI
/// to standard output. `expected_nodes` is the number of nodes that the process is going to have.
///
/// # Errors
/// Returns the errors of [`Operations::start`].
pub(crate) fn start(
    config: &Config,
    expected_nodes: usize,
    runtimes: &Runtimes,
) -> Result<Operations> {
    let operations = Operations::start(config, expected_nodes, runtimes)?;
    if let Some(uri) = operations.uri() {
        terminal::print_line(&format!("volary: metrics at {uri}/metrics"))?;
    }
    Ok(operations)
}
