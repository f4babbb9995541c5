use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;
use volary_flight_proto::Result;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Sealer;
use volary_gather::connections::{ConnectionOptions, WorkerConnections};
use volary_gather::{GatherTotals, KnownFragments};
use volary_node::admission::Admission;
use volary_node::data_dir::NodeRole;
use volary_node::disk::LocalDisk;
use volary_node::flight::FlightAdapter;
use volary_node::in_process::InProcessNodes;
use volary_node::listener::Listener;
use volary_node::memory::end_largest_when_full;
use volary_node::message_budget::MessageBudget;
use volary_node::message_limit::MessageLimit;
use volary_node::operations::ObservedNode;
use volary_node::server::{Entrance, RunningServer};
use volary_node::tls::{ClientTls, Tls};
use volary_node::{DataDir, Runtimes, memory};

use crate::background::run_blocking;
use crate::clients::{ClientCalls, ClientService};
use crate::config::{CLIENTS_UNFINISHED_BYTES, Config, ExecutionConfig, TICKET_BYTES};
use crate::context::WorkerContext;
use crate::flusher::flush_log;
use crate::fragment::cache::FragmentCache;
use crate::fragment::environment::FragmentEnvironments;
use crate::fragment::relay::STREAM_WINDOW_BYTES;
use crate::fragment::running::RunningFragments;
use crate::gate::WorkerGate;
use crate::history::History;
use crate::lookup::cache::LookupCache;
use crate::membership::{self, Reporter};
use crate::memory_cache::DecodedMemory;
use crate::observer::WorkerObserver;
use crate::scan::decoded::DecodedSegments;
use crate::scrub::scrub;
use crate::service::WorkerService;
use crate::storage::Storage;

/// Size of the cache that keeps segments' metadata between fragments, in bytes.
const SEGMENT_FOOTERS: usize = 50 << 20;

/// Timeout for connecting to another worker.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time that work on the CPU runtime may still take after its calls have ended. It has the data
/// directory open.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A worker that serves. Dropping it stops it without draining.
#[derive(Debug)]
pub struct Worker {
    context: Arc<WorkerContext>,
    data_dir: Weak<DataDir>,
    serving: RunningServer,
    /// Serves the address that only clients connect to, if there is one.
    serving_clients: Option<RunningServer>,
    /// Tasks for the membership, the scrub, the log, merges and the watch over the worker's memory.
    /// They end by themselves when the server stops.
    background: JoinSet<()>,
    observer: Arc<dyn ObservedNode>,
}

impl Worker {
    /// Opens the data directory, binds the address, joins the gateway and serves. Waits for the
    /// gateway as long as it takes.
    ///
    /// # Errors
    /// Returns the errors of the settings, the data directory and the address, and the refusal of a
    /// gateway.
    pub fn start(config: Config, runtimes: Runtimes) -> BoxFuture<'static, Result<Self>> {
        Self::start_beside(config, runtimes, None)
    }

    /// Starts a worker as [`Self::start`] does. While the worker serves, it is on the list
    /// `in_process`, so that a gateway of its own process can call it without a connection.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
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
        let data_dir = Arc::new(DataDir::open(&config.data_dir, NodeRole::Worker)?);
        let listener = Listener::bind(config.listen)?;
        let address = listener.address();
        let clients_listener = config.clients.listen.map(Listener::bind).transpose()?;
        let storage_dir = Arc::clone(&data_dir);
        let log_bytes = config.storage.log.bytes() as u64;
        let storage =
            run_blocking(move || Storage::of_worker(&storage_dir, Arc::new(LocalDisk), log_bytes))
                .await?;
        let runtime_env = memory::runtime_env(&config.memory, data_dir.path(), SEGMENT_FOOTERS)?;
        let tls = Tls::load(NodeRole::Worker, &config.tls)?;
        let instance = Uuid::new_v4().to_string();
        let advertised = config
            .advertise
            .clone()
            .unwrap_or_else(|| address.to_string());
        let clients_address = clients_listener.as_ref().map(Listener::address);
        let clients_uri = clients_uri(&config, clients_address, &advertised, &tls);
        let (data, client) = (&data_dir, tls.client());
        let joined =
            membership::join(&config, client, &advertised, &instance, data, &runtimes).await?;
        let history = History::new(Arc::clone(&data_dir), storage.clone());
        let decoded = DecodedMemory::new(
            config.lookup_bytes(),
            config.memory.limit.bytes(),
            &runtime_env.memory_pool,
        );
        let context = Arc::new(WorkerContext {
            id: joined.worker_id,
            cluster_id: joined.cluster_id,
            fragment_admission: create_admission("fragments", &config.execution),
            relay_admission: create_admission("fragments that relay", &config.execution),
            client_admission: create_admission("parts that clients fetch", &config.execution)
                .with_max_waiting_per_session(config.execution.max_waiting_per_client()),
            clients_uri,
            connections: connections(&config, tls.client(), &joined.sealer, &runtimes),
            tls: tls.client(),
            known_fragments: KnownFragments::default(),
            totals: Arc::default(),
            gather_totals: GatherTotals::default(),
            storage,
            history: Arc::new(history),
            lookups: LookupCache::new(decoded.clone()),
            decoded_segments: Arc::new(DecodedSegments::new(decoded)),
            runtime_env,
            environments: FragmentEnvironments::new(config.execution.value_limit()),
            running_fragments: RunningFragments::default(),
            fragment_cache: FragmentCache::new(config.execution.kept_fragments.bytes()),
            runtimes: runtimes.clone(),
            sealer: joined.sealer.clone(),
            config,
        });
        let reporter = Arc::new(Reporter::new(
            Arc::clone(&context),
            instance,
            joined.question_interval,
        ));
        let clients = ClientCalls::new(Arc::clone(&context), &runtimes)?;
        let service =
            WorkerService::new(Arc::clone(&context), Arc::clone(&reporter), clients.clone());
        let compactor = Arc::clone(service.compactor());
        let limit = context.config.message_limit();
        let unfinished = MessageBudget::new(
            CLIENTS_UNFINISHED_BYTES,
            "fetch the rows from a gateway with the same ticket",
        );
        let weak_data_dir = Arc::downgrade(&data_dir);
        let shared_resources = Arc::new((tls, data_dir));
        let (tls, io) = (&shared_resources.0, runtimes.io());
        let serving = RunningServer::start(
            listener,
            FlightAdapter(service),
            Entrance {
                message_limit: limit,
                tls: tls.server(),
                gate: Some(Arc::new(WorkerGate::for_nodes_and_clients(
                    context.sealer.clone(),
                    clients.clone(),
                    unfinished.clone(),
                ))),
                in_process,
            },
            Arc::clone(&shared_resources),
            io,
        );
        let serving_clients = clients_listener.map(|listener| {
            let limit = MessageLimit {
                bytes: limit.bytes.min(TICKET_BYTES),
                ..limit
            };
            let gate = WorkerGate::for_clients_only(clients.clone(), unfinished.clone());
            let entrance = Entrance {
                message_limit: limit,
                tls: tls.server_of_clients(),
                gate: Some(Arc::new(gate)),
                in_process: None,
            };
            let service = ClientService::new(clients);
            RunningServer::start(
                listener,
                FlightAdapter(service),
                entrance,
                Arc::clone(&shared_resources),
                io,
            )
        });
        let observer = Arc::new(WorkerObserver::new(
            Arc::clone(&context),
            Arc::clone(&reporter),
            shared_resources.1.path(),
        ));
        let membership_task = membership::stay_joined(
            Arc::clone(&context),
            reporter,
            advertised,
            serving.stopping(),
        );
        let scrubbing = scrub(
            context.storage.clone(),
            context.config.storage.clone(),
            Arc::clone(&context.totals),
            serving.stopping(),
        );
        let (running, stopping) = (context.running_fragments.clone(), serving.stopping());
        let watching = async move {
            let watching = end_largest_when_full(|why| running.end_largest(why));
            stopping.run_until_cancelled(watching).await;
        };
        let mut background = JoinSet::new();
        background.spawn_on(membership_task, runtimes.health());
        background.spawn_on(watching, runtimes.health());
        background.spawn_on(scrubbing, io);
        let flushing = flush_log(
            crate::write::WriteContext::of_worker(&context),
            serving.stopping(),
        );
        background.spawn_on(flushing, io);
        background.spawn_on(compactor.run(serving.stopping()), io);
        tracing::info!(worker = %context.id, %address, "worker serves");
        Ok(Self {
            context,
            data_dir: weak_data_dir,
            serving,
            serving_clients,
            background,
            observer,
        })
    }

    /// Returns the URI that gateways connect to: `grpc://host:port`, or `grpc+tls://host:port` with
    /// TLS.
    pub fn uri(&self) -> String {
        self.serving.uri()
    }

    /// Returns the URI at which clients fetch their parts of results.
    pub fn clients_uri(&self) -> &str {
        &self.context.clients_uri
    }

    /// Returns the address that the worker listens on.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Returns the worker as monitoring systems see it.
    pub fn observer(&self) -> &Arc<dyn ObservedNode> {
        &self.observer
    }

    /// Returns the id of the worker.
    pub fn id(&self) -> WorkerId {
        self.context.id
    }

    /// Stops accepting calls, gives open calls some time to end, and closes. Afterwards, another
    /// worker can open the data directory.
    pub async fn shutdown(mut self) {
        let id = self.id();
        let released = self
            .data_dir
            .upgrade()
            .map(|directory| directory.released());
        let clients = self.serving_clients.map(RunningServer::shutdown);
        let (_, ()) = tokio::join!(OptionFuture::from(clients), self.serving.shutdown());
        // Meanwhile, the membership task tells the gateway that the worker stops. It has a timeout
        // of its own.
        while let Some(ended) = self.background.join_next().await {
            if let Err(error) = ended {
                tracing::warn!(worker = %id, %error, "a background task panicked: the membership, the scrub, the flush of the log, the merges of segments or the watch over the memory");
            }
        }
        drop((self.context, self.observer));
        let released = OptionFuture::from(released);
        if timeout(RELEASE_TIMEOUT, released).await.is_err() {
            tracing::warn!(worker = %id, "work still uses the data directory {RELEASE_TIMEOUT:?} after the last call; leaving it");
        }
    }
}

/// Returns the URI that clients connect to. The address comes from the settings if they name one.
/// Otherwise it is the address for clients only if there is one, or else the address that gateways
/// connect to.
fn clients_uri(config: &Config, own: Option<SocketAddr>, advertised: &str, tls: &Tls) -> String {
    let scheme = if tls.server().is_some() {
        "grpc+tls"
    } else {
        "grpc"
    };
    let own = own.map(|address| address.to_string());
    let configured_address = config.clients.advertise.clone().or(own);
    format!(
        "{scheme}://{}",
        configured_address.as_deref().unwrap_or(advertised)
    )
}

/// Creates the places for one kind of fragment. One user gets at most three quarters of them, as on
/// a gateway. The limit is needed because a fragment keeps its place even if nobody reads its rows.
fn create_admission(what: &'static str, execution: &ExecutionConfig) -> Admission {
    Admission::new(what, execution.max_running, execution.max_waiting)
        .with_max_running_per_user(execution.max_running_per_user())
}

fn connections(
    config: &Config,
    tls: Option<ClientTls>,
    sealer: &Sealer,
    runtimes: &Runtimes,
) -> WorkerConnections {
    let options = ConnectionOptions {
        connect_timeout: CONNECT_TIMEOUT,
        stream_window_bytes: STREAM_WINDOW_BYTES,
        max_message_bytes: config.message_limit().bytes,
    };
    WorkerConnections::new(&options, tls, sealer.clone(), runtimes.io().clone())
}
