//! The process: start, serve, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::admission::Admission;
use volary_node::data_dir::Role;
use volary_node::listener::Listener;
use volary_node::{DataDir, Runtimes, memory};

use crate::config::Config;
use crate::membership;
use crate::service::{WorkerContext, WorkerService};
use crate::storage::Storage;

/// How long open calls may go on after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

/// A worker that serves. Dropping it stops it without draining.
#[derive(Debug)]
pub struct Worker {
    address: SocketAddr,
    context: Arc<WorkerContext>,
    stopping: CancellationToken,
    serving: Option<JoinHandle<Result<()>>>,
    reporting: Option<JoinHandle<()>>,
}

impl Worker {
    /// Opens the data directory, binds the address, joins the gateway (waiting for it as long as it takes) and serves.
    ///
    /// # Errors
    /// Those of the settings, the data directory, the address, and a refusal of the gateway.
    pub async fn start(config: Config, runtimes: Runtimes) -> Result<Self> {
        let io = runtimes.io().clone();
        io.spawn(Self::start_on_io(config, runtimes))
            .await
            .map_err(|source| {
                Error::with_source(ErrorCode::Internal, "starting the worker panicked", source)
            })?
    }

    async fn start_on_io(config: Config, runtimes: Runtimes) -> Result<Self> {
        config.validate()?;
        let mut data_dir = DataDir::open(&config.data_dir, Role::Worker)?;
        let listener = Listener::bind(config.listen)?;
        let address = listener.address();
        let storage_dir = data_dir.path().to_owned();
        let storage = tokio::task::spawn_blocking(move || Storage::open(&storage_dir))
            .await
            .map_err(|source| {
                Error::with_source(ErrorCode::Internal, "opening the shards panicked", source)
            })??;
        let runtime_env = memory::runtime_env(&config.memory, data_dir.path())?;
        let instance = Uuid::new_v4().to_string();
        let advertised = config
            .advertise
            .clone()
            .unwrap_or_else(|| address.to_string());
        let joined =
            membership::join(&config, &advertised, &instance, &mut data_dir, &runtimes).await?;
        let context = Arc::new(WorkerContext {
            id: joined.worker_id,
            cluster_id: joined.cluster_id,
            admission: Admission::new(
                "fragments",
                config.execution.max_running,
                config.execution.max_waiting,
            ),
            storage,
            runtime_env,
            runtimes: runtimes.clone(),
            sealer: joined.sealer.clone(),
            config,
        });
        let stopping = CancellationToken::new();
        let service = WorkerService::new(Arc::clone(&context));
        let max_message = context.config.execution.max_message.bytes();
        let serving = runtimes.io().spawn({
            let stopping = stopping.clone();
            async move {
                let served = listener
                    .serve(service, max_message, stopping.cancelled_owned())
                    .await;
                // The lock on the data directory is held until nothing writes into it any more.
                drop(data_dir);
                served
            }
        });
        let reporting = runtimes.health().spawn(membership::heartbeats(
            Arc::clone(&context),
            advertised,
            instance,
            joined.heartbeat,
            stopping.clone(),
        ));
        tracing::info!(worker = %context.id, %address, "worker serves");
        Ok(Self {
            address,
            context,
            stopping,
            serving: Some(serving),
            reporting: Some(reporting),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its id.
    pub fn id(&self) -> WorkerId {
        self.context.id
    }

    /// What all calls share; for tests and benches.
    pub fn context(&self) -> &Arc<WorkerContext> {
        &self.context
    }

    /// Stops accepting, lets open calls end for a while, and closes.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        if let Some(mut serving) = self.serving.take()
            && tokio::time::timeout(DRAIN, &mut serving).await.is_err()
        {
            tracing::warn!(worker = %self.context.id, "calls are still open after {DRAIN:?}; closing");
            serving.abort();
        }
        if let Some(reporting) = self.reporting.take() {
            reporting.abort();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stopping.cancel();
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        if let Some(reporting) = self.reporting.take() {
            reporting.abort();
        }
    }
}
