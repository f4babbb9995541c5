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
