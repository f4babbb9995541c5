use volary_flight_proto::Result;
use volary_node::Runtimes;
use volary_worker::Worker;

use crate::settings::Settings;
use crate::signals::StopSignals;
use crate::{operations, terminal};

/// Runs a worker until a signal comes. Prints its id and address to standard output as soon as it
/// has joined its gateway.
///
/// # Errors
/// Returns an error if the worker cannot start, and `DEADLINE_EXCEEDED` if the shutdown was cut
/// off.
pub async fn run(settings: Settings, runtimes: Runtimes) -> Result<()> {
    let mut stop = StopSignals::listen()?;
    let operations = operations::start(&settings.operations, 1, &runtimes)?;
    let worker = tokio::select! {
        worker = Worker::start(settings.worker, runtimes) => worker?,
        () = stop.requested() => return Ok(()),
    };
    operations.observe(worker.observer());
    terminal::print_line(&format!(
        "volary: worker {} listening on {}",
        worker.id(),
        worker.uri()
    ))?;
    stop.requested().await;
    tracing::info!("stopping");
    operations.set_stopping();
    stop.finish(worker.shutdown()).await
}
