//! A node's server from its start to its end.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use futures::StreamExt;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::connection::Connections;
use crate::data_dir::DataDir;
use crate::listener::Listener;
use crate::message_limit::MessageLimit;
use crate::tls::{ServerTls, Tls};

/// How long open calls may go on after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

/// A server that runs in the background. Dropping it stops it without draining.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stopping: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Serving {
    /// Serves on the I/O runtime, with the certificates that are there, and holds the lock on the data directory until nothing writes into it
    /// any more.
    pub fn start(
        listener: Listener,
        service: impl FlightService,
        limit: MessageLimit,
        tls: Tls,
        data_dir: DataDir,
        io: &Handle,
    ) -> Self {
        let address = listener.address();
        let stopping = CancellationToken::new();
        let until = stopping.clone().cancelled_owned();
        let task = io.spawn(async move {
            serve(listener, service, limit, tls.server(), until).await;
            drop(data_dir);
        });
        Self {
            address,
            stopping,
            task: Some(task),
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cancelled when the server begins to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Stops accepting, lets open calls end for a while, and closes.
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

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopping.cancel();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Serves until `shutdown` ends, stops accepting, and lets open calls end by themselves. Dropping it breaks them off. Must be called within
/// the I/O runtime.
///
/// The server of tonic is not used: it ends calls at the client's timeout by itself, in other words than ours and also where what
/// was done is about to be visible; and it would hold a certificate until the process ends.
pub async fn serve<S: FlightService>(
    listener: Listener,
    service: S,
    limit: MessageLimit,
    tls: Option<ServerTls>,
    shutdown: impl Future<Output = ()>,
) {
    let service = FlightServiceServer::new(service)
        .max_decoding_message_size(limit.bytes)
        // What a node sends it has sized itself.
        .max_encoding_message_size(usize::MAX);
    let stopping = CancellationToken::new();
    let connections = Connections::new(service, limit, tls, stopping.clone());
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
    }
    stopping.cancel();
    while open.join_next().await.is_some() {}
}
