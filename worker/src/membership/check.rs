use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use uuid::Uuid;
use volary_flight_proto::Result;
use volary_flight_proto::membership::{CheckRequest, JoinRequest};
use volary_node::Runtimes;
use volary_node::data_dir::Identity;
use volary_node::tls::ClientTls;

use super::gateway_client::GatewayClient;
use crate::config::Config;

/// What a gateway says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayAnswer {
    /// The release that the gateway runs.
    pub version: String,
    /// The time by which the gateway's clock is ahead of this machine's clock, in milliseconds. It
    /// is negative if the gateway's clock is behind.
    pub clock_ahead_ms: i64,
    /// The reason for which the gateway would not let the worker join.
    pub refusal: Option<String>,
}

/// Asks the gateway about itself, and whether it would let the worker join. Nothing changes.
/// `identity` is that of the worker's data directory, and `address` is where the worker would be
/// reached.
///
/// # Errors
/// Returns an error if the gateway does not answer, or has another secret.
pub async fn check_gateway(
    config: &Config,
    tls: Option<ClientTls>,
    address: &str,
    identity: Option<&Identity>,
    runtimes: &Runtimes,
) -> Result<GatewayAnswer> {
    let gateway = GatewayClient::new(config, tls, runtimes)?;
    let request = CheckRequest {
        join: Some(JoinRequest {
            worker_id: identity.and_then(|it| it.worker_id).map(|id| id.0),
            cluster_id: identity.and_then(|it| it.cluster_id.map(|id| id.to_string())),
            address: address.to_owned(),
            instance: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            zone: config.zone.clone(),
        }),
        nonce: Bytes::copy_from_slice(Uuid::new_v4().as_bytes()),
    };
    let asked_ms = now_ms();
    let answer = gateway.check(&request).await?;
    // The gateway read its clock at some time between the question and the answer.
    let between_ms = i64::midpoint(asked_ms, now_ms());
    Ok(GatewayAnswer {
        version: answer.version,
        clock_ahead_ms: i64::try_from(answer.now_ms).unwrap_or(i64::MAX) - between_ms,
        refusal: Some(answer.refusal).filter(|refusal| !refusal.is_empty()),
    })
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
