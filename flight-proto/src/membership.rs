/// DoAction type of a [`JoinRequest`] to a gateway.
pub const JOIN_ACTION: &str = "volary.join";
/// DoAction type of a [`LeaveRequest`] to a gateway.
pub const LEAVE_ACTION: &str = "volary.leave";

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
