use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use volary_flight_proto::{Error, ErrorCode, Result};

/// Longest time of a shutdown. Anything that still runs after it is cut off. It is below the 30 s
/// that Kubernetes and supervisors like systemd commonly wait before they kill a process.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(20);

/// Receives SIGINT and SIGTERM from the moment of its creation. A signal that comes before
/// [`StopSignals::requested`] is called is not lost.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Begins to listen for the signals. Call it within a runtime.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn listen() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|source| Error::io("cannot listen for signals", source));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Returns when the next signal comes.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Runs an orderly shutdown. It ends when the shutdown is complete, at the deadline, or with
    /// the second signal, whichever comes first.
    ///
    /// # Errors
    /// Returns `DEADLINE_EXCEEDED` if the shutdown was cut off.
    pub async fn finish(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let cut_off = |why: &str| {
            Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!("the shutdown was cut off {why}; acknowledged writes are safe"),
            ))
        };
        tokio::select! {
            () = shutdown => Ok(()),
            () = tokio::time::sleep(SHUTDOWN_DEADLINE) => {
                cut_off(&format!("after {} s", SHUTDOWN_DEADLINE.as_secs()))
            }
            () = self.requested() => cut_off("by a second signal"),
        }
    }
}
