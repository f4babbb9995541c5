//! A node's server from its start to its end.

use std::net::SocketAddr;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightService;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use volary_flight_proto::Result;

use crate::data_dir::DataDir;
use crate::listener::Listener;
use crate::message_limit::MessageLimit;

/// How long open calls may go on after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

/// A server that runs in the background. Dropping it stops it without draining.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stopping: CancellationToken,
    task: Option<JoinHandle<Result<()>>>,
}

impl Serving {
    /// Serves on the I/O runtime, and holds the lock on the data directory until nothing writes into it any more.
    pub fn start(
        listener: Listener,
        service: impl FlightService,
        limit: MessageLimit,
        data_dir: DataDir,
        io: &Handle,
    ) -> Self {
        let address = listener.address();
        let stopping = CancellationToken::new();
        let until = stopping.clone().cancelled_owned();
        let task = io.spawn(async move {
            let served = listener.serve(service, limit, until).await;
            drop(data_dir);
            served
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
