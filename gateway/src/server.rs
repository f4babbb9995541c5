use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use volary_catalog::{Catalog, ProducerWindows, RedbStore};
use volary_flight_proto::ids::ClusterId;
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::data_dir::{Identity, NodeRole};
use volary_node::disk::LocalDisk;
use volary_node::in_process::InProcessNodes;
use volary_node::listener::Listener;
use volary_node::memory::end_largest_when_full;
use volary_node::operations::ObservedNode;
use volary_node::server::{Entrance, RunningServer};
use volary_node::tls::Tls;
use volary_node::{DataDir, Runtimes, memory, secret};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::engine::Engine;
use crate::flight_sql::{ClientGate, FlightSql};
use crate::login::Login;
use crate::observer::GatewayObserver;

/// A running gateway. Dropping it stops the gateway without draining.
#[derive(Debug)]
pub struct Gateway {
    cluster: Arc<Cluster>,
    serving: RunningServer,
    /// The task that asks the workers for their reports, the task that watches the memory, the task
    /// that drops the temporary tables of ended sessions, and the task that forgets producers. All
    /// end by themselves when the server stops.
    background: JoinSet<()>,
    observer: Arc<dyn ObservedNode>,
    /// Ends the streams of batches, which would otherwise stay open.
    ending_streams: CancellationToken,
}

impl Gateway {
    /// Opens the data directory and the catalog, binds the address and starts to serve.
    ///
    /// # Errors
    /// Returns the errors of the settings, the data directory, the catalog and the address.
    pub fn start(config: Config, runtimes: Runtimes) -> BoxFuture<'static, Result<Self>> {
        Self::start_beside(config, runtimes, None)
    }

    /// Starts a gateway as [`Self::start`] does. The gateway calls workers of its own process that
    /// are on the list `in_process` without a connection.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    // The future is boxed because other crates await it: without the box, each of them would
    // compile all of it again.
    pub fn start_beside(
        config: Config,
        runtimes: Runtimes,
        in_process: Option<InProcessNodes>,
    ) -> BoxFuture<'static, Result<Self>> {
        async move {
            let start = Self::start_on_io(config, runtimes.clone(), in_process);
            runtimes.on_io(start).await
        }
        .boxed()
    }

    async fn start_on_io(
        config: Config,
        runtimes: Runtimes,
        in_process: Option<InProcessNodes>,
    ) -> Result<Self> {
        config.validate()?;
        let data_dir = DataDir::open(&config.data_dir, NodeRole::Gateway)?;
        let listener = Listener::bind(config.listen)?;
        let address = listener.address();
        let catalog = open_catalog(&data_dir).await?;
        let catalog = catalog.with_temporary_limits(config.temporary_tables.limits());
        data_dir.claim(catalog.state().cluster_id(), None)?;
        let gateways_key = catalog.state().token_key()?;
        let login = Arc::new(Login::new(catalog.clone(), &config.security)?);
        if catalog.state().access().has_users() || config.security.admin_password.is_some() {
            secret::check_for_users(config.secret.is_some())?;
        }
        if let Some(password) = &config.security.admin_password {
            login.ensure_admin(password).await?;
        }
        let runtime_env = memory::runtime_env(&config.memory, data_dir.path(), 0)?;
        let observed_env = Arc::clone(&runtime_env);
        let observed_catalog = catalog.clone();
        let catalog_of_producers = catalog.clone();
        let tls = Tls::load(NodeRole::Gateway, &config.tls)?;
        let io = runtimes.io().clone();
        let cluster = Cluster::new(
            &config,
            address,
            catalog.clone(),
            tls.client(),
            io,
            in_process.as_ref(),
        );
        let config = Arc::new(config);
        let engine = Arc::new(Engine::new(
            Arc::clone(&config),
            catalog,
            Arc::clone(&cluster),
            runtimes.clone(),
            runtime_env,
            Arc::clone(login.passwords()),
        )?);
        let client_gate = ClientGate::new(
            Arc::clone(&login),
            cluster.sealer().clone(),
            engine.message_budget().clone(),
        );
        let entrance = Entrance {
            message_limit: config.query.message_limit(),
            tls: tls.server(),
            gate: Some(Arc::new(client_gate)),
            in_process: None,
        };
        let statements = Arc::clone(engine.statements());
        let ended_sessions = Arc::clone(&engine).drop_abandoned_temporary_tables();
        let expired_producers = forget_producers(catalog_of_producers, config.ingest.windows());
        let ending_streams = engine.streams().stopping().clone();
        let service = FlightSql::new(
            Arc::clone(&engine),
            Arc::clone(&cluster),
            Sealer::new(gateways_key),
            Arc::clone(&config),
            Arc::clone(&login),
        );
        let observer = Arc::new(GatewayObserver::new(
            engine,
            observed_catalog,
            Arc::clone(&cluster),
            login,
            service.session_count(),
            config,
            (data_dir.path(), observed_env),
        ));
        let serving =
            RunningServer::start(listener, service, entrance, (tls, data_dir), runtimes.io());
        let mut background = JoinSet::new();
        let reports = Arc::clone(&cluster).ask_workers(Arc::clone(&statements), serving.stopping());
        background.spawn_on(reports, runtimes.health());
        let stopping = serving.stopping();
        let watch = async move {
            let watching = end_largest_when_full(|why| statements.end_largest(why));
            stopping.run_until_cancelled(watching).await;
        };
        background.spawn_on(watch, runtimes.health());
        let stopping = serving.stopping();
        let search = async move {
            stopping.run_until_cancelled(ended_sessions).await;
        };
        background.spawn_on(search, runtimes.io());
        let stopping = serving.stopping();
        let forgetting = async move {
            stopping.run_until_cancelled(expired_producers).await;
        };
        background.spawn_on(forgetting, runtimes.io());
        tracing::info!(cluster = %cluster.id(), %address, "gateway serves");
        Ok(Self {
            cluster,
            serving,
            background,
            observer,
            ending_streams,
        })
    }

    /// Returns the address that the gateway listens on.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Returns the URI that clients connect to: `grpc://host:port`, or `grpc+tls://host:port` with
    /// TLS.
    pub fn uri(&self) -> String {
        self.serving.uri()
    }

    /// Returns the URI that clients connect to if they reach the gateway at `address`.
    pub fn uri_at(&self, address: SocketAddr) -> String {
        self.serving.uri_at(address)
    }

    /// Returns the gateway as monitoring systems see it.
    pub fn observer(&self) -> &Arc<dyn ObservedNode> {
        &self.observer
    }

    /// Returns the id of the cluster.
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster.id()
    }

    /// Waits until at least `workers` workers have joined and are alive.
    ///
    /// # Errors
    /// `UNAVAILABLE` if that does not happen within `timeout`.
    pub async fn wait_for_workers(&self, workers: usize, timeout: Duration) -> Result<()> {
        self.cluster.wait_for_workers(workers, timeout).await
    }

    /// Stops accepting calls, gives open calls some time to end, and closes the gateway.
    pub async fn shutdown(mut self) {
        self.ending_streams.cancel();
        self.serving.shutdown().await;
        while let Some(ended) = self.background.join_next().await {
            if let Err(error) = ended {
                tracing::warn!(%error, "a background task panicked: it asked the workers for their reports, watched the memory, dropped temporary tables or forgot producers");
            }
        }
    }
}

/// Interval at which producers are looked for whose window has passed.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);

/// Forgets the producers whose window has passed, again and again.
async fn forget_producers(catalog: Catalog, windows: ProducerWindows) {
    let mut interval = tokio::time::interval(FORGET_INTERVAL);
    loop {
        interval.tick().await;
        // Each change forgets only some, so that others need not wait long for their turn.
        loop {
            match catalog.forget_producers(windows).await {
                Ok(0) => break,
                Ok(count) => tracing::debug!(count, "producers were forgotten after their window"),
                Err(error) => {
                    tracing::warn!(%error, "expired producers cannot be forgotten yet; retrying");
                    break;
                }
            }
        }
    }
}

/// Lets the gateway of this data directory start even if its catalog lost its last commits, or if
/// workers have rows of writes that are missing from its catalog: see [`Catalog::recover`]. No
/// gateway may run on the directory meanwhile.
///
/// # Errors
/// Returns the errors of the directory and the catalog.
pub async fn recover(directory: &Path) -> Result<()> {
    let data_dir = DataDir::open_existing(directory, NodeRole::Gateway)?;
    RedbStore::accept_lost_commits(data_dir.path())?;
    open_catalog(&data_dir).await?.recover().await
}

async fn open_catalog(data_dir: &DataDir) -> Result<Catalog> {
    refuse_missing_catalog(data_dir.path(), &data_dir.identity())?;
    let store = RedbStore::open(data_dir.path(), Arc::new(LocalDisk)).await?;
    Catalog::open(Arc::new(store)).await
}

/// Refuses a data directory that belongs to a cluster and has no catalog. A new catalog would know
/// nothing of the workers' tables.
fn refuse_missing_catalog(directory: &Path, identity: &Identity) -> Result<()> {
    let file = RedbStore::path_in(directory);
    if identity.cluster_id.is_none() || file.exists() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::DataLoss,
        format!(
            "the catalog {} is missing; restore the newest backup of it (docs/repair.md)",
            file.display()
        ),
    ))
}

/// What the catalog of a gateway that does not run says about its cluster.
#[derive(Debug, Default)]
pub struct CatalogSummary {
    /// The workers that have ever joined: their names, such as `worker w3`, and their addresses.
    pub workers: Vec<(String, String)>,
    /// Says whether there are users. The gateway then needs a secret.
    pub has_users: bool,
}

/// Reads the catalog in the data directory of a gateway that does not run. The catalog stays as it
/// is.
///
/// # Errors
/// Returns the errors of the catalog.
pub async fn read_catalog(directory: &Path, identity: &Identity) -> Result<CatalogSummary> {
    refuse_missing_catalog(directory, identity)?;
    if !RedbStore::path_in(directory).exists() {
        return Ok(CatalogSummary::default());
    }
    let store = RedbStore::open(directory, Arc::new(LocalDisk)).await?;
    let Some(state) = Catalog::read(&store).await? else {
        return Ok(CatalogSummary::default());
    };
    let workers = state
        .workers()
        .map(|worker| (format!("worker {}", worker.id), worker.address.clone()))
        .collect();
    Ok(CatalogSummary {
        workers,
        has_users: state.access().has_users(),
    })
}
