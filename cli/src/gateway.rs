//! `volary gateway`.

use volary_flight_proto::Result;
use volary_gateway::{Config, Gateway};
use volary_node::Runtimes;

use crate::signals::Stop;
use crate::terminal;

/// Runs a gateway until a signal. The address is on standard output as soon as clients may connect.
///
/// # Errors
/// Those of the start; `DEADLINE_EXCEEDED` if the shutdown was cut off.
pub async fn run(config: Config, runtimes: Runtimes) -> Result<()> {
    let mut stop = Stop::listen()?;
    let gateway = tokio::select! {
        gateway = Gateway::start(config, runtimes) => gateway?,
        () = stop.requested() => return Ok(()),
    };
    terminal::print_line(&format!("volary: listening on {}", gateway.uri()))?;
    stop.requested().await;
    tracing::info!("stopping");
    stop.finish(gateway.shutdown()).await
}

/// Lets a gateway start whose catalog is older than its workers' rows.
///
/// # Errors
/// Those of the data directory, which no gateway may be using, and of its catalog.
pub async fn recover(config: Config) -> Result<()> {
    volary_gateway::server::recover(&config.data_dir).await?;
    terminal::print_line(&format!(
        "volary: the gateway at {} goes on with its catalog as it is. Start it: workers move rows of writes that the catalog does not know to the directory lost in their data directories.",
        config.data_dir.display()
    ))
}
