//! The end of a process that serves: signals, and a deadline for what is to be done after one.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use volary_flight_proto::{Error, ErrorCode, Result};

/// What still runs after it is cut off. Below the 30 s that Kubernetes and systemd-like supervisors commonly wait before they kill.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(20);

/// SIGINT and SIGTERM, from the moment this is made: a signal that comes before [`Stop::requested`] is waited for is not lost.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn listen() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|source| Error::io("cannot listen for signals", source));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Ends with the next signal.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Runs an orderly shutdown to its end, its deadline, or the second signal, whatever comes first.
    ///
    /// # Errors
    /// `DEADLINE_EXCEEDED` if the shutdown was cut off.
    pub async fn finish(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let cut_off = |why: &str| {
            Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!("the shutdown was cut off {why}; what was acknowledged is safe"),
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
