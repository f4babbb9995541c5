//! A worker joins a gateway, and then answers gateways that ask for its report. It joins again when
//! no gateway asks any longer, and tells the gateway when it stops.
//!
//! The worker connects to a gateway only for the moment in which it sends a message. A permanent
//! connection would cost the gateway memory and a file descriptor, and there are thousands of
//! workers.

/// Asks a gateway about itself before the worker joins.
mod check;
/// Logs a repeated failure once.
mod failure_log;
/// Sends sealed messages to a gateway, and opens its answers.
mod gateway_client;
/// Answers gateways that ask for the worker's report, and deletes what they say is garbage.
mod reporter;

pub use check::{GatewayAnswer, check_gateway};
pub(crate) use gateway_client::{Call, GatewayClient};
pub use reporter::Reporter;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::membership::{JoinRequest, JoinResponse};
use volary_flight_proto::seal::{Key, Sealer};
use volary_flight_proto::{Error, Result};
use volary_node::tls::ClientTls;
use volary_node::{DataDir, Runtimes};

use crate::config::Config;
use crate::context::WorkerContext;

/// Time after which the worker gives up telling the gateway that it stops. A worker does not wait
/// for a gateway that is gone.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of pauses without a question after which a worker believes that it was forgotten. A pause
/// is the time between two expected questions. The pauses are counted one by one, so that a worker
/// whose own process was suspended does not believe that it was forgotten meanwhile.
const FORGOTTEN_AFTER: u32 = 5;
/// Shortest pause that a worker expects between two questions, whatever the gateway says.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// What a worker learns when it joins.
#[derive(Debug)]
pub struct JoinOutcome {
    /// Id of the worker.
    pub worker_id: WorkerId,
    /// Id of the worker's cluster.
    pub cluster_id: ClusterId,
    /// Opens what the cluster's gateways seal.
    pub sealer: Sealer,
    /// Interval at which the worker is asked for its report at first.
    pub question_interval: Duration,
}

/// Asks the gateway to admit the worker, and waits for the gateway as long as it takes. The worker
/// is reached at `address`, and `instance` identifies its start. When this function returns, the
/// data directory belongs to the worker and the cluster.
///
/// # Errors
/// Returns the refusal of a gateway, or the error of a data directory that belongs to another
/// worker.
pub async fn join(
    config: &Config,
    tls: Option<ClientTls>,
    address: &str,
    instance: &str,
    data_dir: &DataDir,
    runtimes: &Runtimes,
) -> Result<JoinOutcome> {
    let gateway = GatewayClient::new(config, tls, runtimes)?;
    let identity = data_dir.identity();
    let request = JoinRequest {
        worker_id: identity.worker_id.map(|id| id.0),
        cluster_id: identity.cluster_id.map(|id| id.to_string()),
        address: address.to_owned(),
        instance: instance.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: config.zone.clone(),
    };
    let answer = gateway.join(&request).await?;
    let (worker_id, cluster_id) = (WorkerId(answer.worker_id), answer.cluster_id.parse()?);
    // This comes before anything else. A worker that forgets its id would come back as another
    // worker, without its shards.
    data_dir.claim(cluster_id, Some(worker_id))?;
    let sealer = cluster_sealer(config, &answer).map_err(|error| error.at(&gateway))?;
    tracing::info!(worker = %worker_id, cluster = %cluster_id, gateway = config.gateway, "joined");
    Ok(JoinOutcome {
        worker_id,
        cluster_id,
        sealer,
        question_interval: question_interval(&answer),
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

fn question_interval(answer: &JoinResponse) -> Duration {
    Duration::from_millis(u64::from(answer.report_interval_ms))
}

/// Joins again whenever no gateway has asked for the worker's report for a long time, until
/// `stopping` is cancelled. Then tells the gateway that the worker stops. The worker is reached at
/// `address`. Run this on the health runtime.
pub(crate) async fn stay_joined(
    context: Arc<WorkerContext>,
    reports: Arc<Reporter>,
    address: String,
    stopping: CancellationToken,
) {
    let rejoining = join_when_forgotten(&context, &reports, &address);
    stopping.run_until_cancelled(rejoining).await;
    reports.begin_draining();
    leave(&context, &reports).await;
}

/// Joins again whenever the worker was forgotten.
///
/// Usually this is not needed: a gateway that was started again, or that has lost the worker, asks
/// by itself. But its catalog may be an older one, with another address of the worker. Or the
/// network may let through only connections that the worker opens.
async fn join_when_forgotten(context: &WorkerContext, reports: &Reporter, address: &str) {
    let mut silent_pauses = 0_u32;
    let mut has_joined_again = false;
    loop {
        let before = reports.question_stats();
        sleep(before.interval.max(SHORTEST_PAUSE)).await;
        if reports.question_stats().count != before.count {
            (silent_pauses, has_joined_again) = (0, false);
            continue;
        }
        silent_pauses = silent_pauses.saturating_add(1);
        if silent_pauses < FORGOTTEN_AFTER {
            continue;
        }
        match join_again(context, reports, address).await {
            Ok(every) => {
                if !has_joined_again {
                    tracing::info!(worker = %context.id, gateway = context.config.gateway, "joined again, because no gateway asks for reports");
                }
                (silent_pauses, has_joined_again) = (0, true);
                reports.set_question_interval(every);
            }
            Err(error) => reports.record_join_failure(&error),
        }
    }
}

/// Joins once, and returns how often the worker will be asked for its report.
async fn join_again(
    context: &WorkerContext,
    reports: &Reporter,
    address: &str,
) -> Result<Duration> {
    let gateway = GatewayClient::new(&context.config, context.tls.clone(), &context.runtimes)?;
    let request = JoinRequest {
        worker_id: Some(context.id.0),
        cluster_id: Some(context.cluster_id.to_string()),
        address: address.to_owned(),
        instance: reports.instance().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: context.config.zone.clone(),
    };
    let answer = gateway.join_once(&request).await?;
    if answer.worker_id != context.id.0 {
        return Err(Error::internal(format!(
            "{gateway} gave worker {} the id of worker {}; restart the worker",
            context.id,
            WorkerId(answer.worker_id)
        )));
    }
    Ok(question_interval(&answer))
}

/// Tells the gateway that the worker stops. The gateway then places nothing here any more, and need
/// not wait until the worker counts as lost.
async fn leave(context: &WorkerContext, reports: &Reporter) {
    let telling = async {
        let gateway = GatewayClient::new(&context.config, context.tls.clone(), &context.runtimes)?;
        gateway.leave(context.id, reports.instance()).await
    };
    match timeout(LEAVE_TIMEOUT, telling).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot tell the gateway that the worker stops");
        }
        Err(_) => {
            tracing::debug!(
                "cannot tell the gateway within {LEAVE_TIMEOUT:?} that the worker stops"
            );
        }
    }
}
