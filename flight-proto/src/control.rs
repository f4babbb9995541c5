use crate::lineage::{Incarnation, Lineage};
use crate::snapshot::Snapshot;

/// DoAction type of a [`Control`] message to a worker.
pub const CONTROL_ACTION: &str = "volary.control";

/// A small command from a gateway to a worker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Control {
    /// Id of the worker that the command is for.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The command.
    #[prost(oneof = "control::Command", tags = "2, 3, 4, 6")]
    pub command: Option<control::Command>,
    /// Id of the cluster.
    #[prost(string, tag = "5")]
    pub cluster_id: String,
    /// The history of writes that the gateway's catalog belongs to. A worker deletes what the
    /// command calls garbage only if the worker's rows are of the same history.
    #[prost(message, optional, tag = "7")]
    pub lineage: Option<Lineage>,
}

/// Defines the commands of [`Control`].
#[allow(
    clippy::module_inception,
    reason = "prost looks for the choices of a message in a module of its name"
)]
pub mod control {
    /// One command.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Command {
        /// Asks for a [`super::SegmentList`].
        #[prost(message, tag = "2")]
        ListSegments(super::ListSegments),
        /// Deletes a table's files.
        #[prost(message, tag = "3")]
        DropTable(super::DropTable),
        /// Deletes the rows of a write that failed.
        #[prost(message, tag = "4")]
        AbortWrite(super::AbortWrite),
        /// Asks for a [`super::WorkerReport`], and says what is garbage.
        #[prost(message, tag = "6")]
        Report(super::Report),
    }
}

/// Asks a worker for a list of all its segments.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListSegments {}

/// Tells a worker to delete a table's files.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DropTable {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
}

/// Tells a worker to delete the rows of a write that failed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AbortWrite {
    /// Id of the write.
    #[prost(uint64, tag = "1")]
    pub write_id: u64,
}

/// Asks a worker for its report, and says what the worker may delete. A gateway sends this question
/// periodically to each worker that it knows.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Report {
    /// Ids of the tables that exist, or that are being created.
    #[prost(uint64, repeated, tag = "1")]
    pub live_tables: Vec<u64>,
    /// Highest table id that `live_tables` covers. Every table up to this id that is not in
    /// `live_tables` was dropped, and its files are garbage. Later tables may exist.
    #[prost(uint64, tag = "2")]
    pub last_table: u64,
    /// Ids of writes that failed. Their rows are garbage.
    #[prost(uint64, repeated, tag = "3")]
    pub aborted_writes: Vec<u64>,
    /// Time until the gateway asks again, in milliseconds. It grows with the number of workers.
    #[prost(uint32, tag = "4")]
    pub next_ms: u32,
    /// Says whether the worker must set aside its rows of all writes from the lineage's
    /// `from_write` on, so that it can adopt the lineage. These rows belong to another history, and
    /// an operator has agreed to lose them.
    #[prost(bool, tag = "5")]
    pub set_aside: bool,
    /// What the worker should hold of the shards that it asked about in its last report.
    #[prost(message, repeated, tag = "6")]
    pub contents: Vec<ShardContent>,
    /// The writes that `contents` counts.
    #[prost(message, optional, tag = "7")]
    pub snapshot: Option<Snapshot>,
}

/// A shard of a table.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ShardName {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// Number of the shard.
    #[prost(uint32, tag = "2")]
    pub shard: u32,
}

/// What a worker should hold of a shard.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ShardContent {
    /// The shard.
    #[prost(message, optional, tag = "1")]
    pub shard: Option<ShardName>,
    /// Number of the shard's committed rows.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// The [tally](crate::tally::Tally) of the committed rows. `None` if the catalog does not know
    /// it.
    #[prost(fixed32, optional, tag = "3")]
    pub tally: Option<u32>,
}

/// What a worker reports about itself. It is the answer to [`Report`], and is sealed for
/// [`Purpose::Membership`](crate::seal::Purpose::Membership).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerReport {
    /// Id of the worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// Name of this start of the worker. It differs between two starts of the same worker.
    #[prost(string, tag = "2")]
    pub instance: String,
    /// Number of fragments that are running.
    #[prost(uint32, tag = "3")]
    pub running_fragments: u32,
    /// Memory that fragments and writes have reserved, in bytes.
    #[prost(uint64, tag = "4")]
    pub memory_reserved_bytes: u64,
    /// Number of segments on disk, of all tables.
    #[prost(uint64, tag = "5")]
    pub segments: u64,
    /// Number of rows on disk.
    #[prost(uint64, tag = "6")]
    pub rows: u64,
    /// Number of bytes on disk.
    #[prost(uint64, tag = "7")]
    pub bytes: u64,
    /// Ids of failed writes whose rows the worker has deleted.
    #[prost(uint64, repeated, tag = "8")]
    pub deleted_writes: Vec<u64>,
    /// Says whether the worker is draining before it stops.
    #[prost(bool, tag = "9")]
    pub draining: bool,
    /// Address at which clients fetch their parts of results: `grpc://host:port`, or `grpc+tls://`
    /// with TLS.
    #[prost(string, tag = "10")]
    pub clients_uri: String,
    /// The incarnations of the catalog that the worker has adopted, the oldest first. Empty if the
    /// worker has adopted the incarnation of the question.
    #[prost(message, repeated, tag = "11")]
    pub incarnations: Vec<Incarnation>,
    /// The highest write of which the worker has rows, whether queries see them or not. It is 0 if
    /// the worker has no rows.
    #[prost(uint64, tag = "12")]
    pub max_write: u64,
    /// Shards with files that no manifest names, and that may or may not be garbage. With its next
    /// question, the gateway says what these shards should hold.
    #[prost(message, repeated, tag = "13")]
    pub unproven: Vec<ShardName>,
    /// Says whether the worker has adopted the incarnation of the question.
    #[prost(bool, tag = "14")]
    pub adopted: bool,
}

/// The segments of a worker.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentList {
    /// The segments, ordered by table, shard and write.
    #[prost(message, repeated, tag = "1")]
    pub segments: Vec<SegmentDescription>,
}

/// One segment.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentDescription {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// Number of the shard.
    #[prost(uint32, tag = "2")]
    pub shard: u32,
    /// Id of the write that made the segment.
    #[prost(uint64, tag = "3")]
    pub write_id: u64,
    /// Path of the segment's file, relative to the worker's data directory.
    #[prost(string, tag = "4")]
    pub file: String,
    /// Number of rows.
    #[prost(uint64, tag = "5")]
    pub rows: u64,
    /// Size of the file, in bytes.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// What is wrong with the file. Empty if no damage is known.
    #[prost(string, tag = "7")]
    pub damage: String,
}
