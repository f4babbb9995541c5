//! Joining a gateway, and reporting to it as long as the worker lives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use backon::{ExponentialBuilder, Retryable};
use prost::Message;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::membership::{
    HEARTBEAT_ACTION, HeartbeatRequest, HeartbeatResponse, JOIN_ACTION, JoinRequest, JoinResponse,
};
use volary_flight_proto::seal::{Key, Purpose, Sealer};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, flight_client};
use volary_node::{DataDir, Runtimes};

use crate::config::Config;
use crate::context::WorkerContext;
use crate::storage::Collected;

/// Until one attempt to reach the gateway is given up.
const DEADLINE: Duration = Duration::from_secs(10);
/// Until the last report is given up: a worker that stops does not wait for a gateway that is gone.
const LAST_REPORT: Duration = Duration::from_secs(2);
/// How long a message may be under way: clocks of two machines differ by seconds.
const MESSAGE_LIFETIME: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Reports are not sent more often, whatever the gateway says.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(10);

/// A worker's place in its cluster.
#[derive(Debug)]
pub struct Joined {
    /// The worker.
    pub worker_id: WorkerId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Opens what the cluster's gateways seal.
    pub sealer: Sealer,
    /// How often the worker reports.
    pub heartbeat: Duration,
}

/// Asks the gateway to take the worker in, which is reached at `address` and whose start is `instance`, and waits for the
/// gateway as long as it takes. The data directory belongs to the worker and the cluster when this returns.
///
/// # Errors
/// Those of a gateway that refuses, and of a data directory that belongs to another worker.
pub async fn join(
    config: &Config,
    address: &str,
    instance: &str,
    data_dir: &mut DataDir,
    runtimes: &Runtimes,
) -> Result<Joined> {
    let gateway = Gateway::new(config, runtimes)?;
    let identity = data_dir.identity();
    let request = JoinRequest {
        worker_id: identity.worker_id.map(|id| id.0),
        cluster_id: identity.cluster_id.map(|id| id.to_string()),
        address: address.to_owned(),
        instance: instance.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let answer = gateway.join(&request).await?;
    let (worker_id, cluster_id) = (WorkerId(answer.worker_id), answer.cluster_id.parse()?);
    // Before anything else: a worker that forgets its id would come back as another one, without its shards.
    data_dir.claim(cluster_id, Some(worker_id))?;
    let sealer = cluster_sealer(config, &answer).map_err(|error| error.at(&gateway))?;
    let heartbeat = Duration::from_millis(u64::from(answer.heartbeat_ms)).max(SHORTEST_HEARTBEAT);
    tracing::info!(worker = %worker_id, cluster = %cluster_id, gateway = config.gateway, "joined");
    Ok(Joined {
        worker_id,
        cluster_id,
        sealer,
        heartbeat,
    })
}

fn cluster_sealer(config: &Config, answer: &JoinResponse) -> Result<Sealer> {
    if let Some(secret) = &config.secret {
        return Ok(Sealer::new(Key::from_secret(secret)));
    }
    let key = <[u8; 32]>::try_from(answer.key.as_ref()).map_err(|_| {
        Error::invalid(
            "the gateway has a secret and this worker has none; set worker.secret to the gateway's gateway.secret",
        )
    })?;
    Ok(Sealer::new(Key::from(key)))
}

/// Reports to the gateway until `stopping` is cancelled, deletes what it says is garbage, and joins again when it has forgotten the
/// worker. To be run on the health runtime.
pub async fn heartbeats(
    context: Arc<WorkerContext>,
    address: String,
    instance: String,
    every: Duration,
    stopping: CancellationToken,
) {
    let gateway = match Gateway::new(&context.config, &context.runtimes) {
        Ok(gateway) => gateway,
        Err(error) => {
            tracing::error!(%error, "the worker cannot report");
            return;
        }
    };
    let mut reporter = Reporter {
        gateway,
        context,
        address,
        instance,
        collecting: None,
        collected: Collected::default(),
        reporting: Trouble::new("reporting to the gateway"),
        deleting: Trouble::new("deleting what is not needed any more"),
    };
    let work = async {
        loop {
            let pause = reporter.report().await.unwrap_or(every);
            sleep(pause.max(SHORTEST_HEARTBEAT)).await;
        }
    };
    stopping.run_until_cancelled(work).await;
    // The gateway places nothing here any more, and need not wait until the worker counts as lost.
    let last = HeartbeatRequest {
        draining: true,
        ..reporter.heartbeat()
    };
    match timeout(LAST_REPORT, reporter.gateway.heartbeat(&last)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "the gateway was not told that the worker stops");
        }
        Err(_) => {
            tracing::debug!(
                "the gateway was not told within {LAST_REPORT:?} that the worker stops"
            );
        }
    }
}

struct Reporter {
    gateway: Gateway,
    context: Arc<WorkerContext>,
    address: String,
    instance: String,
    /// Deleting runs beside the reports: it may take longer than a gateway waits for them.
    collecting: Option<JoinHandle<Collected>>,
    collected: Collected,
    reporting: Trouble,
    deleting: Trouble,
}

impl Reporter {
    /// Reports once, and tells when the gateway wants the next report.
    async fn report(&mut self) -> Option<Duration> {
        self.take_collected().await;
        let mut next = None;
        let result = match self.gateway.heartbeat(&self.heartbeat()).await {
            Ok(answer) if answer.known => {
                next =
                    (answer.next_ms > 0).then(|| Duration::from_millis(u64::from(answer.next_ms)));
                self.collect(answer);
                Ok(())
            }
            Ok(_) => self.join_again().await,
            Err(error) => Err(error),
        };
        self.reporting.note(result.err().as_ref());
        next
    }

    fn heartbeat(&self) -> HeartbeatRequest {
        let totals = self.context.storage.totals();
        let running = self.context.admission.running();
        let reserved = self.context.runtime_env.memory_pool.reserved();
        HeartbeatRequest {
            worker_id: self.context.id.0,
            instance: self.instance.clone(),
            running_fragments: u32::try_from(running).unwrap_or(u32::MAX),
            memory_reserved_bytes: reserved as u64,
            segments: totals.segments,
            rows: totals.rows,
            bytes: totals.bytes,
            collected_writes: self.collected.writes.iter().map(|write| write.0).collect(),
            draining: false,
        }
    }

    /// The gateway has started again: it keeps who its workers are, but not who lives.
    async fn join_again(&self) -> Result<()> {
        let request = JoinRequest {
            worker_id: Some(self.context.id.0),
            cluster_id: Some(self.context.cluster_id.to_string()),
            address: self.address.clone(),
            instance: self.instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let answer = self.gateway.join_once(&request).await?;
        if answer.worker_id != self.context.id.0 {
            return Err(Error::internal(format!(
                "{} takes worker {} for worker {}; restart the worker",
                self.gateway,
                self.context.id,
                WorkerId(answer.worker_id)
            )));
        }
        tracing::info!(worker = %self.context.id, gateway = %self.gateway, "joined again");
        Ok(())
    }

    fn collect(&mut self, answer: HeartbeatResponse) {
        if self.collecting.is_none() {
            let storage = self.context.storage.clone();
            let work = move || storage.collect(&answer);
            self.collecting = Some(tokio::task::spawn_blocking(work));
        }
    }

    async fn take_collected(&mut self) {
        let Some(finished) = self.collecting.take_if(|task| task.is_finished()) else {
            return;
        };
        self.collected = finished.await.unwrap_or_else(|source| Collected {
            failure: Some(Error::with_source(
                ErrorCode::Internal,
                "deleting panicked",
                source,
            )),
            ..Collected::default()
        });
        self.deleting.note(self.collected.failure.as_ref());
    }
}

/// Something that is done again and again: it is logged when it begins to fail, or to fail in another way, and when it works
/// again, not each time.
struct Trouble {
    what: &'static str,
    failing: Option<ErrorCode>,
}

impl Trouble {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            failing: None,
        }
    }

    fn note(&mut self, error: Option<&Error>) {
        match error {
            Some(error) if self.failing != Some(error.code()) => {
                tracing::warn!(%error, "{} fails; it is tried again", self.what);
            }
            None if self.failing.is_some() => tracing::info!("{} works again", self.what),
            _ => {}
        }
        self.failing = error.map(Error::code);
    }
}

/// The gateway, as workers see it.
struct Gateway {
    address: String,
    client: FlightServiceClient<Channel>,
    sealer: Sealer,
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gateway at {}", self.address)
    }
}

impl Gateway {
    fn new(config: &Config, runtimes: &Runtimes) -> Result<Self> {
        // On the health runtime, too: reports do not wait behind rows.
        let client = flight_client(
            &config.gateway,
            &ChannelOptions::default(),
            runtimes.health(),
        )?;
        let secret = config.secret.as_deref().unwrap_or_default();
        Ok(Self {
            address: config.gateway.clone(),
            client,
            sealer: Sealer::new(Key::from_secret(secret)),
        })
    }

    /// Joins as soon as the gateway is there.
    async fn join(&self, request: &JoinRequest) -> Result<JoinResponse> {
        let backoff = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times();
        let mut logged = None;
        let attempt = || self.join_once(request);
        attempt
            .retry(backoff)
            .when(|error| {
                matches!(
                    error.code(),
                    ErrorCode::Unavailable
                        | ErrorCode::DeadlineExceeded
                        | ErrorCode::ResourceExhausted
                )
            })
            .notify(|error, _| {
                if logged != Some(error.code()) {
                    logged = Some(error.code());
                    tracing::warn!(%error, "waiting for the gateway");
                }
            })
            .await
    }

    async fn join_once(&self, request: &JoinRequest) -> Result<JoinResponse> {
        self.call(JOIN_ACTION, request).await
    }

    async fn heartbeat(&self, request: &HeartbeatRequest) -> Result<HeartbeatResponse> {
        self.call(HEARTBEAT_ACTION, request).await
    }

    async fn call<A: Message + Default>(&self, action: &str, request: &impl Message) -> Result<A> {
        let answered = timeout(DEADLINE, self.call_once(action, request)).await;
        let answer = answered.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!("no answer within {DEADLINE:?}; check its address and the network"),
            ))
        });
        answer.map_err(|error| error.at(self))
    }

    async fn call_once<A: Message + Default>(
        &self,
        action: &str,
        request: &impl Message,
    ) -> Result<A> {
        let body = self
            .sealer
            .seal(Purpose::Membership, request, MESSAGE_LIFETIME);
        let mut client = self.client.clone();
        let mut answers = client
            .do_action(Action::new(action, body))
            .await?
            .into_inner();
        let answer = answers.message().await?.ok_or_else(|| {
            Error::unavailable(
                "an answer without a message; check that a gateway of Volary listens there",
            )
        })?;
        self.sealer.open(Purpose::Membership, &answer.body)
    }
}
