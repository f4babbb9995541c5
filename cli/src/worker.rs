use volary_flight_proto::Result;
use volary_node::Runtimes;
use volary_worker::{Config, Worker};

use crate::signals::StopSignals;
use crate::terminal;

/// Runs a worker until a signal comes. Prints its id and address to standard output as soon as it
/// has joined its gateway.
///
/// # Errors
/// Returns an error if the worker cannot start, and `DEADLINE_EXCEEDED` if the shutdown was cut
/// off.
pub async fn run(config: Config, runtimes: Runtimes) -> Result<()> {
    let mut stop = StopSignals::listen()?;
    let worker = tokio::select! {
        worker = Worker::start(config, runtimes) => worker?,
        () = stop.requested() => return Ok(()),
    };
    terminal::print_line(&format!(
        "volary: worker {} listening on {}",
        worker.id(),
        worker.uri()
    ))?;
    stop.requested().await;
    tracing::info!("stopping");
    stop.finish(worker.shutdown()).await
}
