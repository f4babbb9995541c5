use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::StreamExt;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::any_service::{AnyService, BoxedFlightService};
use crate::connection::ConnectionServer;
pub use crate::connection::{
    Entrance, FIRST_CALL_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_CALLS, MAX_HEADER_LIST_BYTES,
};
use crate::listener::Listener;

/// Time that open calls may still take after the server was asked to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// A server that runs in the background. Dropping it stops it without waiting for open calls.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    is_encrypted: bool,
    stopping: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// Starts a server on the I/O runtime. It keeps `kept_alive`, such as the lock on the data
    /// directory and the certificates, until no call is left.
    pub fn start(
        listener: Listener,
        service: impl BoxedFlightService,
        entrance: Entrance,
        kept_alive: impl Send + 'static,
        io: &Handle,
    ) -> Self {
        let address = listener.address();
        let stopping = CancellationToken::new();
        let stop_signal = stopping.clone().cancelled_owned();
        let is_encrypted = entrance.tls.is_some();
        let task = io.spawn(async move {
            serve(listener, service, entrance, stop_signal).await;
            drop(kept_alive);
        });
        Self {
            address,
            is_encrypted,
            stopping,
            task: Some(task),
        }
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URI to connect to: `grpc://host:port`, or `grpc+tls://host:port` with TLS.
    pub fn uri(&self) -> String {
        self.uri_at(self.address)
    }

    /// Returns the URI to connect to at another address of the server.
    pub fn uri_at(&self, address: SocketAddr) -> String {
        let scheme = if self.is_encrypted {
            "grpc+tls"
        } else {
            "grpc"
        };
        format!("{scheme}://{address}")
    }

    /// Returns a token that is cancelled when the server begins to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Stops accepting connections, lets open calls end for a while, and closes the server.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        if let Some(mut task) = self.task.take()
            && tokio::time::timeout(DRAIN, &mut task).await.is_err()
        {
            tracing::warn!(address = %self.address, "calls are still open after {DRAIN:?}; closing");
            task.abort();
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stopping.cancel();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Serves until `shutdown` completes, then stops accepting connections and waits until open calls
/// have ended. Dropping the future breaks open calls off. Must be called within the I/O runtime.
/// Nodes of the same process can call the service without a connection if the entrance has a list
/// of such nodes.
///
/// tonic's server is not used. It ends calls at the client's timeout by itself: with an error that
/// is not ours, and even if what the call has written is about to become visible. It would also use
/// the same certificate until the process ends.
///
/// The code of tonic, hyper and h2 that serves connections is generic. Because the type of the
/// service is erased, this code is compiled and optimised once, in this crate, and not in the crate
/// of each service.
pub async fn serve(
    listener: Listener,
    service: impl BoxedFlightService,
    entrance: Entrance,
    shutdown: impl Future<Output = ()>,
) {
    let service = FlightServiceServer::new(AnyService::new(service))
        .max_decoding_message_size(entrance.message_limit.bytes)
        // The node has already chosen the size of the messages that it sends.
        .max_encoding_message_size(usize::MAX);
    let stopping = CancellationToken::new();
    let listed = entrance.in_process.as_ref().map(|nodes| {
        let service = service.clone();
        let (gate, limit) = (entrance.gate.clone(), entrance.message_limit);
        nodes.list(listener.address(), service, gate, limit, Handle::current())
    });
    let connections = ConnectionServer::new(service, entrance, stopping.clone());
    let mut open = JoinSet::new();
    {
        let mut accepted = pin!(listener.accept());
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                connection = accepted.next() => match connection {
                    Some(Ok(stream)) => {
                        open.spawn(connections.serve(stream));
                    }
                    Some(Err(error)) => tracing::debug!(%error, "a connection was not accepted"),
                    None => break,
                },
                Some(_) = open.join_next() => {}
            }
        }
        // From here on, a call finds no listed node, and soon no listener either.
        if let Some(listed) = &listed {
            listed.unlist();
        }
    }
    stopping.cancel();
    while open.join_next().await.is_some() {}
    if let Some(listed) = &listed {
        listed.wait_until_idle().await;
    }
}
