use crate::error::{Error, Result};

/// DoAction type of a [`JoinRequest`] to a gateway.
pub const JOIN_ACTION: &str = "volary.join";
/// DoAction type of a [`LeaveRequest`] to a gateway.
pub const LEAVE_ACTION: &str = "volary.leave";
/// DoAction type of a [`CheckRequest`] to a gateway.
pub const CHECK_ACTION: &str = "volary.check";

/// Maximum length of a worker's zone, in characters.
const MAX_ZONE_LENGTH: usize = 63;

/// Checks the name of a worker's zone.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the name is empty, too long, or has other characters than letters,
/// digits, `-`, `_` and `.`.
pub fn check_zone(zone: &str) -> Result<()> {
    let is_valid = (1..=MAX_ZONE_LENGTH).contains(&zone.len())
        && zone
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char));
    if is_valid {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "worker.zone is {zone:?}; a zone has 1 to {MAX_ZONE_LENGTH} letters, digits, \"-\", \"_\" and \".\""
    )))
}

/// Asks a gateway to let a worker join the cluster. A worker sends it when it starts, and when no
/// gateway has asked for its report for a long time.
///
/// The request is sealed with the key of the configured secret. If no secret is configured, it is
/// sealed with the key of an empty secret: a gateway without a secret accepts only workers on its
/// own machine.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinRequest {
    /// Id from the worker's data directory. `None` on the worker's first join.
    #[prost(uint64, optional, tag = "1")]
    pub worker_id: Option<u64>,
    /// Id of the cluster that the data directory belongs to. `None` on the worker's first join.
    #[prost(string, optional, tag = "2")]
    pub cluster_id: Option<String>,
    /// Address at which gateways reach the worker, as `host:port`.
    #[prost(string, tag = "3")]
    pub address: String,
    /// Name of this start of the worker. It differs between two starts of the same worker.
    #[prost(string, tag = "4")]
    pub instance: String,
    /// The release that the worker runs.
    #[prost(string, tag = "5")]
    pub version: String,
    /// Name of the place where the worker runs, such as an availability zone. `None` if it has
    /// none.
    #[prost(string, optional, tag = "6")]
    pub zone: Option<String>,
}

/// A gateway's answer to a [`JoinRequest`]. It is sealed with the same key, for
/// [`Purpose::MembershipAnswer`](crate::seal::Purpose::MembershipAnswer).
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinResponse {
    /// Id of the worker. The worker stores it in its data directory before it does anything else.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// Id of the cluster.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
    /// The key that the cluster's messages are sealed with. Empty if it follows from the configured
    /// secret.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: bytes::Bytes,
    /// How often the worker is asked for its report at first, in milliseconds.
    #[prost(uint32, tag = "4")]
    pub report_interval_ms: u32,
}

/// Says that a worker is going to stop. It is sealed like a [`JoinRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaveRequest {
    /// Id of the worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// Name of the start of the worker that ends.
    #[prost(string, tag = "2")]
    pub instance: String,
}

/// A gateway's answer to a [`LeaveRequest`]. It is sealed like a [`JoinResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaveResponse {}

/// Asks a gateway about itself, and whether it would let a worker join. Nothing changes.
/// `volary doctor` sends it before the worker starts.
///
/// It is sealed with the key of a [`JoinRequest`], for
/// [`Purpose::Check`](crate::seal::Purpose::Check).
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckRequest {
    /// The request of the worker, with an instance that is empty.
    #[prost(message, optional, tag = "1")]
    pub join: Option<JoinRequest>,
    /// Random bytes, which the answer repeats. They show that the answer is a new one, even if the
    /// clocks of the two machines differ.
    #[prost(bytes = "bytes", tag = "2")]
    pub nonce: bytes::Bytes,
}

/// A gateway's answer to a [`CheckRequest`]. It is sealed with the same key, for
/// [`Purpose::CheckAnswer`](crate::seal::Purpose::CheckAnswer).
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckAnswer {
    /// The nonce of the request.
    #[prost(bytes = "bytes", tag = "1")]
    pub nonce: bytes::Bytes,
    /// The release that the gateway runs.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Id of the cluster.
    #[prost(string, tag = "3")]
    pub cluster_id: String,
    /// The gateway's clock, in milliseconds since 1970.
    #[prost(uint64, tag = "4")]
    pub now_ms: u64,
    /// Says why the gateway would not let the worker join. Empty if it would.
    #[prost(string, tag = "5")]
    pub refusal: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_a_short_name() {
        let longest = "z".repeat(MAX_ZONE_LENGTH);
        for good in ["a", "eu-central-1a", "rack_7.row-2", &longest] {
            check_zone(good).unwrap();
        }
        let too_long = "z".repeat(MAX_ZONE_LENGTH + 1);
        for bad in ["", "a b", "zürich", "a/b", "a\n", &too_long] {
            let error = check_zone(bad).unwrap_err();
            assert!(
                error.message().contains("a zone has 1 to 63 letters"),
                "{error}"
            );
        }
    }
}
