use std::future::{Future, pending};
use std::io;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Longest time of a shutdown. Anything that still runs after it is cut off. It is below the 30 s
/// that Kubernetes and supervisors like systemd commonly wait before they kill a process.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(20);

/// Receives SIGINT and SIGTERM from the moment of its creation. A signal that comes before
/// [`StopSignals::requested`] is called is not lost. The end of standard input can count as a
/// signal, too.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Is closed at the end of standard input. `None` if that does not count, or has counted.
    input: Option<oneshot::Receiver<()>>,
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
            input: None,
        })
    }

    /// Makes the end of standard input count as a signal. The system closes the pipe of a child
    /// process when its parent ends, however the parent ends. Linux can also send a signal then
    /// (`PR_SET_PDEATHSIG`), but sends it when the thread ends that started the child.
    ///
    /// # Errors
    /// Returns the error of the operating system if it cannot start a thread.
    pub fn listen_to_standard_input(&mut self) -> Result<()> {
        let (closed, input) = oneshot::channel();
        // A runtime would not end before a read of tokio's standard input ends.
        thread::Builder::new()
            .name("volary-stdin".to_owned())
            .spawn(move || {
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                drop(closed);
            })
            .map_err(|source| Error::io("cannot start a thread", source))?;
        self.input = Some(input);
        Ok(())
    }

    /// Returns when the next signal comes.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = end_of(&mut self.input) => {}
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

/// Returns when standard input is closed, but only once: standard input stays closed, and the
/// second signal would cut off the shutdown.
async fn end_of(input: &mut Option<oneshot::Receiver<()>>) {
    match input {
        // The sender sends nothing. It is dropped when standard input is closed.
        Some(closed) => {
            let _ = closed.await;
        }
        None => pending().await,
    }
    *input = None;
}
