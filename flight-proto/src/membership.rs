/// DoAction type of [`JoinRequest`], at a gateway.
pub const JOIN_ACTION: &str = "volary.join";
/// DoAction type of [`LeaveRequest`], at a gateway.
pub const LEAVE_ACTION: &str = "volary.leave";

/// A worker that starts asks a gateway to take it in; so does one that no gateway has asked for its report for long.
///
/// The request is sealed with the key of the configured secret, or, where no secret is configured, with the key of an empty
/// one: a gateway without a secret takes workers from the same machine only.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinRequest {
    /// The id in the worker's data directory; none on its first join.
    #[prost(uint64, optional, tag = "1")]
    pub worker_id: Option<u64>,
    /// The cluster that the data directory belongs to; none on its first join.
    #[prost(string, optional, tag = "2")]
    pub cluster_id: Option<String>,
    /// `host:port` at which gateways reach the worker.
    #[prost(string, tag = "3")]
    pub address: String,
    /// Differs between two starts of the same worker.
    #[prost(string, tag = "4")]
    pub instance: String,
    /// The release that the worker runs.
    #[prost(string, tag = "5")]
    pub version: String,
}

/// The gateway's answer, sealed like the request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JoinResponse {
    /// The worker's id, to be kept in its data directory before anything else is done.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The cluster.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
    /// The key that the cluster's messages are sealed with; empty where it follows from the configured secret.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: bytes::Bytes,
    /// How often the worker is asked for its report at first, in milliseconds.
    #[prost(uint32, tag = "4")]
    pub heartbeat_ms: u32,
}

/// A worker that is going to stop says so, sealed like [`JoinRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaveRequest {
    /// The worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The start that ends.
    #[prost(string, tag = "2")]
    pub instance: String,
}

/// The gateway's answer, sealed like the request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaveResponse {}
