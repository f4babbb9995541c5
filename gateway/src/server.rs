//! The process: start, serve, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use volary_flight_proto::ids::ClusterId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::data_dir::Role;
use volary_node::listener::Listener;
use volary_node::{DataDir, Runtimes, memory};

use crate::catalog::{Catalog, RedbStore};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::engine::Engine;
use crate::flight_sql::FlightSql;

/// How long open calls may go on after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

/// A gateway that serves. Dropping it stops it without draining.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    cluster: Arc<Cluster>,
    engine: Arc<Engine>,
    stopping: CancellationToken,
    serving: Option<JoinHandle<Result<()>>>,
}

impl Gateway {
    /// Opens the data directory and the catalog, binds the address and serves.
    ///
    /// # Errors
    /// Those of the settings, the data directory, the catalog and the address.
    pub async fn start(config: Config, runtimes: Runtimes) -> Result<Self> {
        let io = runtimes.io().clone();
        io.spawn(Self::start_on_io(config, runtimes))
            .await
            .map_err(|source| {
                Error::with_source(ErrorCode::Internal, "starting the gateway panicked", source)
            })?
    }

    async fn start_on_io(config: Config, runtimes: Runtimes) -> Result<Self> {
        config.validate()?;
        let mut data_dir = DataDir::open(&config.data_dir, Role::Gateway)?;
        let listener = Listener::bind(config.listen)?;
        let address = listener.address();
        let store = RedbStore::open(data_dir.path()).await?;
        let catalog = Catalog::open(Arc::new(store)).await?;
        data_dir.claim(catalog.state().cluster_id(), None)?;
        let runtime_env = memory::runtime_env(&config.memory, data_dir.path())?;
        let cluster = Cluster::new(&config, catalog.clone(), runtimes.io().clone());
        let config = Arc::new(config);
        let engine = Arc::new(Engine::new(
            Arc::clone(&config),
            catalog,
            Arc::clone(&cluster),
            runtimes.clone(),
            runtime_env,
        ));
        let max_message = config.query.max_message.bytes();
        let service = FlightSql::new(
            Arc::clone(&engine),
            Arc::clone(&cluster),
            cluster.sealer().clone(),
            config,
        );
        let stopping = CancellationToken::new();
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
        tracing::info!(cluster = %cluster.id(), %address, "gateway serves");
        Ok(Self {
            address,
            cluster,
            engine,
            stopping,
            serving: Some(serving),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster.id()
    }

    /// The workers.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Plans and runs statements, for tests and benches that go below Flight SQL.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Waits until so many workers have joined and live.
    ///
    /// # Errors
    /// `UNAVAILABLE` if they do not within `timeout`.
    pub async fn wait_for_workers(&self, workers: usize, timeout: Duration) -> Result<()> {
        self.cluster.wait_for_workers(workers, timeout).await
    }

    /// Stops accepting, lets open calls end for a while, and closes.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        if let Some(mut serving) = self.serving.take()
            && tokio::time::timeout(DRAIN, &mut serving).await.is_err()
        {
            tracing::warn!("calls are still open after {DRAIN:?}; closing");
            serving.abort();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stopping.cancel();
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}
