use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt, ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::TcpIncoming;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::open_files;

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Pause before the next accept, after a connection could not be accepted because the process or
/// the system had no free file descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// Shortest time between two warnings about missing file descriptors.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);
/// EMFILE (the limit of the process is reached) and ENFILE (the limit of the system is reached).
/// The numbers are the same on Linux and macOS.
const OUT_OF_FILES: [i32; 2] = [24, 23];

/// An address that is bound and accepts connections.
#[derive(Debug)]
pub struct Listener {
    incoming: TcpIncoming,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address`. Port 0 takes a free port. Must be called within the I/O runtime.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the port is in use, and `INVALID_ARGUMENT` if this machine does not have
    /// the address.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |source: std::io::Error| {
            let (code, advice) = match source.kind() {
                std::io::ErrorKind::AddrInUse => (
                    ErrorCode::AlreadyExists,
                    "the port is in use by another process; choose another one or stop that process",
                ),
                std::io::ErrorKind::AddrNotAvailable => (
                    ErrorCode::InvalidArgument,
                    "this machine has no such address",
                ),
                std::io::ErrorKind::PermissionDenied => (
                    ErrorCode::PermissionDenied,
                    "this user may not use the port",
                ),
                _ => (ErrorCode::Unavailable, "the address cannot be bound"),
            };
            Error::with_source(
                code,
                format!("cannot listen on {address}: {advice}"),
                source,
            )
        };
        let incoming = TcpIncoming::bind(address)
            .map_err(failed)?
            // Without it, Nagle's algorithm delays small messages: an answer took 92 ms instead of
            // 6 ms (measured).
            .with_nodelay(Some(true))
            .with_keepalive(Some(KEEPALIVE_INTERVAL));
        let address = incoming.local_addr().map_err(failed)?;
        Ok(Self { incoming, address })
    }

    /// Returns the bound address. Its port is the real one, even if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the connections as they are accepted.
    pub(crate) fn accept(self) -> impl Stream<Item = std::io::Result<TcpStream>> {
        PausingAccept::new(self.incoming)
    }
}

/// Stream of accepted connections that pauses when no more files may be open. The connection that
/// could not be accepted is still pending, so accepting it again without a pause would be a busy
/// loop.
struct PausingAccept<S> {
    accepted: S,
    pause: Option<Pin<Box<Sleep>>>,
    warned_at: Option<Instant>,
}

impl<S> PausingAccept<S> {
    fn new(accepted: S) -> Self {
        Self {
            accepted,
            pause: None,
            warned_at: None,
        }
    }

    fn warn(&mut self, error: &std::io::Error) {
        if self
            .warned_at
            .is_some_and(|warned_at| warned_at.elapsed() < WARNING_INTERVAL)
        {
            return;
        }
        self.warned_at = Some(Instant::now());
        tracing::warn!(
            %error,
            limit = open_files::limit(),
            "connections have to wait, because this process may open no more files; raise the limit (ulimit -n, LimitNOFILE= of systemd, the container's nofile)"
        );
    }
}

impl<S, C> Stream for PausingAccept<S>
where
    S: Stream<Item = std::io::Result<C>> + Unpin,
{
    type Item = std::io::Result<C>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.accepted.poll_next_unpin(cx)) {
                Some(Err(error)) if is_out_of_files(&error) => {
                    self.warn(&error);
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
                next => return Poll::Ready(next),
            }
        }
    }
}

fn is_out_of_files(error: &std::io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| OUT_OF_FILES.contains(&code))
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_cannot_be_accepted_for_want_of_files_is_waited_for() {
        let out_of_files = || Err(std::io::Error::from_raw_os_error(OUT_OF_FILES[0]));
        let reset = || Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let accepted = [out_of_files(), Ok(1), out_of_files(), reset(), Ok(2)];
        let started = Instant::now();
        let mut incoming = PausingAccept::new(stream::iter(accepted));
        assert_eq!(incoming.next().await.unwrap().unwrap(), 1);
        // Other errors concern only the one connection.
        let kind = incoming.next().await.unwrap().unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
        assert_eq!(incoming.next().await.unwrap().unwrap(), 2);
        assert!(incoming.next().await.is_none());
        assert!(started.elapsed() >= 2 * PAUSE);
    }
}
