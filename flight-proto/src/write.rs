use std::time::Duration;

use bytes::Bytes;

use crate::lineage::Lineage;

/// How often a worker that takes a write says that it lives: with an empty answer. Gateways wait for many times as long.
pub const SIGN_OF_LIFE: Duration = Duration::from_millis(200);

/// How long the descriptor of a DoPut opens a stream.
pub const DESCRIPTOR_LIFETIME: Duration = Duration::from_secs(300);

/// The descriptor of a DoPut at a worker: whose rows follow. The rows have the table's columns and, unless the table is a
/// reference table, a last column [`SHARD_COLUMN`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteRequest {
    /// The statement, for logs and errors.
    #[prost(string, tag = "1")]
    pub query_id: String,
    /// The worker that the rows are for.
    #[prost(uint64, tag = "2")]
    pub worker_id: u64,
    /// The write that the rows belong to: they are unseen until the catalog commits it.
    #[prost(uint64, tag = "3")]
    pub write_id: u64,
    /// The table.
    #[prost(message, optional, tag = "4")]
    pub table: Option<TableDescription>,
    /// The cluster.
    #[prost(string, tag = "5")]
    pub cluster_id: String,
    /// The start of the worker that the rows are for: it alone knows which streams have come.
    #[prost(string, tag = "6")]
    pub instance: String,
    /// Of this stream alone: a worker takes it once.
    #[prost(string, tag = "7")]
    pub stream_id: String,
    /// Which history of writes the gateway's catalog belongs to.
    #[prost(message, optional, tag = "8")]
    pub lineage: Option<Lineage>,
}

/// What a worker must know of a table to keep its rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableDescription {
    /// The table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// Its name, for errors.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its schema, as an Arrow IPC message.
    #[prost(bytes = "bytes", tag = "3")]
    pub schema: Bytes,
    /// Position of the shard key in the schema; none for a reference table, and for one whose rows are in any shard.
    #[prost(uint32, optional, tag = "4")]
    pub shard_key: Option<u32>,
    /// Columns that segments are sorted by.
    #[prost(uint32, repeated, tag = "5")]
    pub sort_key: Vec<u32>,
    /// Number of shards; 1 for a reference table.
    #[prost(uint32, tag = "6")]
    pub shards: u32,
    /// Whether rows come with [the shard that they go to](SHARD_COLUMN): not those of a reference table.
    #[prost(bool, tag = "7")]
    pub is_sharded: bool,
}

/// The name of the column (UInt32, not null) that says to which shard a row goes.
pub const SHARD_COLUMN: &str = "__volary_shard";

/// The `app_metadata` of the DoPut's answer: the rows are durable and unseen.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteResult {
    /// What each shard got.
    #[prost(message, repeated, tag = "1")]
    pub shards: Vec<ShardWritten>,
    /// What the columns hold, in the table's order: the catalog's statistics grow by it.
    #[prost(message, repeated, tag = "2")]
    pub columns: Vec<ColumnWritten>,
}

/// The rows that one shard got.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ShardWritten {
    /// The shard.
    #[prost(uint32, tag = "1")]
    pub shard: u32,
    /// Rows.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// Bytes of its segments.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Segments.
    #[prost(uint32, tag = "4")]
    pub segments: u32,
}

/// What one column of a write holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ColumnWritten {
    /// NULLs.
    #[prost(uint64, tag = "1")]
    pub nulls: u64,
    /// Smallest and largest value: two rows, one column, as an Arrow IPC stream; empty if unknown.
    #[prost(bytes = "bytes", tag = "2")]
    pub min_max: Bytes,
}
