//! The process: start, serve, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use uuid::Uuid;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_gather::KnownFragments;
use volary_gather::connections::{ConnectionOptions, Connections};
use volary_node::admission::Admission;
use volary_node::data_dir::Role;
use volary_node::listener::Listener;
use volary_node::serving::Serving;
use volary_node::tls::{ClientTls, Tls};
use volary_node::{DataDir, Runtimes, memory};

use crate::config::{Config, Execution};
use crate::context::WorkerContext;
use crate::fragment::environment::Environments;
use crate::fragment::kept::KeptFragments;
use crate::fragment::relay::STREAM_WINDOW_BYTES;
use crate::membership::{self, Reports};
use crate::service::WorkerService;
use crate::storage::Storage;

/// Bytes of the segments' metadata that are kept between fragments.
const SEGMENT_FOOTERS: usize = 50 << 20;

/// Until a connection to another worker stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A worker that serves. Dropping it stops it without draining.
#[derive(Debug)]
pub struct Worker {
    context: Arc<WorkerContext>,
    serving: Serving,
    /// One task, which ends by itself when the server stops.
    membership: JoinSet<()>,
}

impl Worker {
    /// Opens the data directory, binds the address, joins the gateway (waiting for it as long as it takes) and serves.
    ///
    /// # Errors
    /// Those of the settings, the data directory, the address, and a refusal of the gateway.
    pub fn start(config: Config, runtimes: Runtimes) -> BoxFuture<'static, Result<Self>> {
        async move {
            let start = Self::start_on_io(config, runtimes.clone());
            runtimes.on_io(start).await
        }
        .boxed()
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
        let runtime_env = memory::runtime_env(&config.memory, data_dir.path(), SEGMENT_FOOTERS)?;
        let tls = Tls::load(Role::Worker, &config.tls)?;
        let instance = Uuid::new_v4().to_string();
        let advertised = config
            .advertise
            .clone()
            .unwrap_or_else(|| address.to_string());
        let (data, client) = (&mut data_dir, tls.client());
        let joined =
            membership::join(&config, client, &advertised, &instance, data, &runtimes).await?;
        let context = Arc::new(WorkerContext {
            id: joined.worker_id,
            cluster_id: joined.cluster_id,
            admission: admission("fragments", &config.execution),
            relaying: admission("fragments that relay", &config.execution),
            connections: connections(&config, tls.client(), &runtimes),
            tls: tls.client(),
            known_fragments: KnownFragments::default(),
            storage,
            runtime_env,
            environments: Environments::default(),
            fragments: KeptFragments::new(config.execution.kept_fragments.bytes()),
            runtimes: runtimes.clone(),
            sealer: joined.sealer.clone(),
            config,
        });
        let reports = Arc::new(Reports::new(
            Arc::clone(&context),
            instance,
            joined.asked_every,
        ));
        let service = WorkerService::new(Arc::clone(&context), Arc::clone(&reports));
        let limit = context.config.message_limit();
        let serving = Serving::start(listener, service, limit, tls, data_dir, runtimes.io());
        let staying = membership::stay_joined(
            Arc::clone(&context),
            reports,
            advertised,
            serving.stopping(),
        );
        let mut membership = JoinSet::new();
        membership.spawn_on(staying, runtimes.health());
        tracing::info!(worker = %context.id, %address, "worker serves");
        Ok(Self {
            context,
            serving,
            membership,
        })
    }

    /// Where gateways connect to: `grpc://host:port`, or `grpc+tls://` with TLS.
    pub fn uri(&self) -> String {
        let is_secured = self.context.config.tls.certificate.is_some();
        let scheme = if is_secured { "grpc+tls" } else { "grpc" };
        format!("{scheme}://{}", self.address())
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Its id.
    pub fn id(&self) -> WorkerId {
        self.context.id
    }

    /// Stops accepting, lets open calls end for a while, and closes.
    pub async fn shutdown(mut self) {
        self.serving.shutdown().await;
        // The gateway was told that the worker stops while calls ended; that has a deadline of its own.
        if let Some(Err(error)) = self.membership.join_next().await {
            tracing::warn!(worker = %self.context.id, %error, "the worker's membership panicked");
        }
    }
}

fn admission(what: &'static str, execution: &Execution) -> Admission {
    Admission::new(what, execution.max_running, execution.max_waiting)
}

fn connections(config: &Config, tls: Option<ClientTls>, runtimes: &Runtimes) -> Connections {
    let options = ConnectionOptions {
        connect_timeout: CONNECT_TIMEOUT,
        stream_window_bytes: STREAM_WINDOW_BYTES,
        max_message_bytes: config.message_limit().bytes,
    };
    Connections::new(&options, tls, runtimes.io().clone())
}
