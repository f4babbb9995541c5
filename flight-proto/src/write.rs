use std::time::Duration;

use bytes::Bytes;

use crate::lineage::Lineage;

/// The interval at which a worker that takes a write sends keep-alives, which are empty answers.
/// The idle timeouts of gateways are much longer.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(200);

/// How long the descriptor of a DoPut can open a stream.
pub const DESCRIPTOR_LIFETIME: Duration = Duration::from_secs(300);

/// The descriptor of a DoPut at a worker. It says to which write and table the following rows
/// belong. The rows have the table's columns and, unless the table is a reference table, a last
/// column [`SHARD_COLUMN`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteRequest {
    /// Id of the statement, for logs and errors.
    #[prost(string, tag = "1")]
    pub query_id: String,
    /// Id of the worker that the rows are for.
    #[prost(uint64, tag = "2")]
    pub worker_id: u64,
    /// Id of the write that the rows belong to. No query sees the rows until the catalog commits
    /// the write.
    #[prost(uint64, tag = "3")]
    pub write_id: u64,
    /// The table that the rows are for.
    #[prost(message, optional, tag = "4")]
    pub table: Option<TableDescription>,
    /// Id of the cluster.
    #[prost(string, tag = "5")]
    pub cluster_id: String,
    /// The start of the worker that the rows are for. Only this start knows which streams have
    /// already come.
    #[prost(string, tag = "6")]
    pub instance: String,
    /// Unique id of this stream. A worker takes each stream once.
    #[prost(string, tag = "7")]
    pub stream_id: String,
    /// The history of writes that the gateway's catalog belongs to.
    #[prost(message, optional, tag = "8")]
    pub lineage: Option<Lineage>,
    /// Number of the user who writes. Workers share their processors among users.
    #[prost(uint32, tag = "9")]
    pub owner: u32,
    /// The span that the write belongs to, in the short form of
    /// [`TraceParent`](crate::trace::TraceParent). Empty if the statement is not traced.
    #[prost(bytes = "bytes", tag = "10")]
    pub trace: Bytes,
    /// Number of writes that the gateway's catalog has committed.
    #[prost(uint64, tag = "11")]
    pub commits: u64,
}

/// What a worker must know of a table to store its rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableDescription {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// Name of the table, for errors.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Schema of the table, as an Arrow IPC message.
    #[prost(bytes = "bytes", tag = "3")]
    pub schema: Bytes,
    /// Position of the shard key in the schema. `None` for a reference table, and for a table whose
    /// rows may be in any shard.
    #[prost(uint32, optional, tag = "4")]
    pub shard_key: Option<u32>,
    /// Positions of the columns that segments are sorted by.
    #[prost(uint32, repeated, tag = "5")]
    pub sort_key: Vec<u32>,
    /// Number of shards. It is 1 for a reference table.
    #[prost(uint32, tag = "6")]
    pub shards: u32,
    /// Says whether each row comes with [the shard that it goes to](SHARD_COLUMN). The rows of a
    /// reference table do not.
    #[prost(bool, tag = "7")]
    pub is_sharded: bool,
}

/// Name of the column (UInt32, not null) that says to which shard a row goes.
pub const SHARD_COLUMN: &str = "__volary_shard";

/// The `app_metadata` of the answer to a DoPut. It says that the rows are durable. No query sees
/// them yet.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteResult {
    /// What was written to each shard.
    #[prost(message, repeated, tag = "1")]
    pub shards: Vec<ShardWritten>,
    /// The statistics of each column of the written rows, in the order of the table's columns. The
    /// catalog adds them to its own.
    #[prost(message, repeated, tag = "2")]
    pub columns: Vec<ColumnWritten>,
    /// The smallest and the largest values of the columns that have bounds, in their order: two
    /// rows, as an Arrow IPC stream. Empty if no column has bounds.
    #[prost(bytes = "bytes", tag = "3")]
    pub bounds: Bytes,
}

/// The rows that were written to one shard.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ShardWritten {
    /// Number of the shard.
    #[prost(uint32, tag = "1")]
    pub shard: u32,
    /// Number of rows.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// Size of the segments, in bytes.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Number of segments.
    #[prost(uint32, tag = "4")]
    pub segments: u32,
}

/// The statistics of one column of a write.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ColumnWritten {
    /// Number of NULLs.
    #[prost(uint64, tag = "1")]
    pub nulls: u64,
    /// Says whether the smallest and the largest value are known.
    #[prost(bool, tag = "3")]
    pub has_bounds: bool,
}
