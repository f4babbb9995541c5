/// DoAction type of [`JoinRequest`], at a gateway.
pub const JOIN_ACTION: &str = "volary.join";
/// DoAction type of [`HeartbeatRequest`], at a gateway.
pub const HEARTBEAT_ACTION: &str = "volary.heartbeat";

/// A worker that starts asks a gateway to take it in.
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
    /// How often the worker reports, in milliseconds.
    #[prost(uint32, tag = "4")]
    pub heartbeat_ms: u32,
}

/// What a worker reports while it lives.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeartbeatRequest {
    /// The worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The start that was joined.
    #[prost(string, tag = "2")]
    pub instance: String,
    /// Fragments that run.
    #[prost(uint32, tag = "3")]
    pub running_fragments: u32,
    /// Memory reserved by fragments and writes, in bytes.
    #[prost(uint64, tag = "4")]
    pub memory_reserved_bytes: u64,
    /// Segments, rows and bytes on disk, of all tables.
    #[prost(uint64, tag = "5")]
    pub segments: u64,
    /// Rows on disk.
    #[prost(uint64, tag = "6")]
    pub rows: u64,
    /// Bytes on disk.
    #[prost(uint64, tag = "7")]
    pub bytes: u64,
    /// Failed writes whose rows are deleted by now.
    #[prost(uint64, repeated, tag = "8")]
    pub collected_writes: Vec<u64>,
    /// Whether the worker drains before it stops.
    #[prost(bool, tag = "9")]
    pub draining: bool,
}

/// The gateway's answer: what the worker may delete.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeartbeatResponse {
    /// False if the gateway does not know this start: join again.
    #[prost(bool, tag = "1")]
    pub known: bool,
    /// Tables that exist, or are being created.
    #[prost(uint64, repeated, tag = "2")]
    pub live_tables: Vec<u64>,
    /// Every table up to this one that is not live was dropped: its files are garbage. Later ones may exist.
    #[prost(uint64, tag = "3")]
    pub last_table: u64,
    /// Writes that failed: their rows are garbage.
    #[prost(uint64, repeated, tag = "4")]
    pub aborted_writes: Vec<u64>,
    /// When the worker reports again, in milliseconds: the more workers there are, the later.
    #[prost(uint32, tag = "5")]
    pub next_ms: u32,
}
