use volary_flight_proto::Result;
use volary_gateway::{Config, Gateway};
use volary_node::Runtimes;

use crate::settings::Settings;
use crate::signals::StopSignals;
use crate::{operations, terminal};

/// Runs a gateway until a signal comes. Prints its address to standard output as soon as clients
/// can connect.
///
/// # Errors
/// Returns an error if the gateway cannot start, and `DEADLINE_EXCEEDED` if the shutdown was cut
/// off.
pub async fn run(settings: Settings, runtimes: Runtimes) -> Result<()> {
    let mut stop = StopSignals::listen()?;
    let operations = operations::start(&settings.operations, 1, &runtimes)?;
    let gateway = tokio::select! {
        gateway = Gateway::start(settings.gateway, runtimes) => gateway?,
        () = stop.requested() => return Ok(()),
    };
    operations.observe(gateway.observer());
    terminal::print_line(&format!("volary: listening on {}", gateway.uri()))?;
    stop.requested().await;
    tracing::info!("stopping");
    operations.set_stopping();
    stop.finish(gateway.shutdown()).await
}

/// Allows a gateway to start although its catalog is older than the rows of its workers.
///
/// # Errors
/// Returns the errors of the data directory and its catalog. No gateway may be using the directory.
pub async fn recover(config: Config) -> Result<()> {
    volary_gateway::server::recover(&config.data_dir).await?;
    terminal::print_line(&format!(
        "volary: the gateway at {} accepts its restored catalog. Start the gateway now. Workers then move the rows that the catalog does not know to the directory \"lost\" in their data directories.",
        config.data_dir.display()
    ))
}
