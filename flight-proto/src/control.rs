use crate::fragment::Expiry;
use crate::lineage::{Incarnation, Lineage};
use crate::snapshot::Snapshot;
use crate::write::TableDescription;

/// DoAction type of a [`Control`] message to a worker.
pub const CONTROL_ACTION: &str = "volary.control";

/// A small command from a gateway to a worker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Control {
    /// Id of the worker that the command is for.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The command.
    #[prost(oneof = "control::Command", tags = "2, 3, 4, 6, 9, 10")]
    pub command: Option<control::Command>,
    /// Id of the cluster.
    #[prost(string, tag = "5")]
    pub cluster_id: String,
    /// The history of writes that the gateway's catalog belongs to. A worker deletes what the
    /// command calls garbage only if the worker's rows are of the same history.
    #[prost(message, optional, tag = "7")]
    pub lineage: Option<Lineage>,
    /// Number of writes that the gateway's catalog has committed.
    #[prost(uint64, tag = "8")]
    pub commits: u64,
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
        /// Merges a table's segments, and asks for an [`super::OptimizeResult`] when that is done.
        #[prost(message, tag = "9")]
        Optimize(super::Optimize),
        /// Asks for a [`super::StorageState`].
        #[prost(message, tag = "10")]
        DescribeStorage(super::DescribeStorage),
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

/// Tells a worker to make as few segments as possible of a table's rows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Optimize {
    /// The table.
    #[prost(message, optional, tag = "1")]
    pub table: Option<TableDescription>,
    /// The writes that are committed. Rows of other writes are left where they are.
    #[prost(message, optional, tag = "2")]
    pub snapshot: Option<Snapshot>,
}

/// What a worker made of a table's segments.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct OptimizeResult {
    /// Number of the table's segments on this worker before.
    #[prost(uint64, tag = "1")]
    pub segments_before: u64,
    /// Number of the table's segments on this worker afterwards.
    #[prost(uint64, tag = "2")]
    pub segments_after: u64,
}

/// Asks a worker what it stores, and how much work that was.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DescribeStorage {}

/// What a worker stores, and what it has written for it since it started.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StorageState {
    /// Number of segments on disk, of all tables.
    #[prost(uint64, tag = "1")]
    pub segments: u64,
    /// Number of rows on disk, in segments and in the log.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// Size of the segments, in bytes.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Number of rows that are in the log and in no segment yet.
    #[prost(uint64, tag = "4")]
    pub log_rows: u64,
    /// Size of these rows, in bytes.
    #[prost(uint64, tag = "5")]
    pub log_bytes: u64,
    /// Size of the rows that went to the log, in bytes.
    #[prost(uint64, tag = "6")]
    pub logged_bytes: u64,
    /// Size of the segments that were made of rows in the log, in bytes.
    #[prost(uint64, tag = "7")]
    pub flushed_bytes: u64,
    /// Size of the segments that writes made, in bytes.
    #[prost(uint64, tag = "8")]
    pub written_bytes: u64,
    /// What was merged, and what is to be merged.
    #[prost(message, optional, tag = "9")]
    pub compaction: Option<CompactionState>,
    /// Number of rows that have expired and were deleted.
    #[prost(uint64, tag = "10")]
    pub expired_rows: u64,
}

/// What a worker has merged since it started, and what is to be merged.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CompactionState {
    /// Number of merges.
    #[prost(uint64, tag = "1")]
    pub merges: u64,
    /// Size of the segments that were merged, in bytes.
    #[prost(uint64, tag = "2")]
    pub read_bytes: u64,
    /// Size of the segments that came out, in bytes.
    #[prost(uint64, tag = "3")]
    pub written_bytes: u64,
    /// Number of segments that are to be merged.
    #[prost(uint64, tag = "4")]
    pub waiting_segments: u64,
    /// Size of the segments that are to be merged, in bytes.
    #[prost(uint64, tag = "5")]
    pub waiting_bytes: u64,
    /// The error of the last merge that failed. Empty if none has failed.
    #[prost(string, tag = "6")]
    pub failure: String,
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
    /// The first and the last write of each range of writes that failed, in ascending order. Their
    /// rows are garbage.
    #[prost(uint64, repeated, tag = "8")]
    pub aborted_bounds: Vec<u64>,
    /// The last abort that `aborted_bounds` covers. Aborts are numbered from 1 on.
    #[prost(uint64, tag = "9")]
    pub last_abort: u64,
    /// Time until the gateway asks again, in milliseconds. It grows with the number of workers.
    #[prost(uint32, tag = "4")]
    pub next_ms: u32,
    /// Says whether the worker must set aside its rows of failed writes, and of all writes from the
    /// lineage's `from_write` on, so that it can adopt the lineage. These rows belong to another
    /// history, and an operator has agreed to lose them.
    #[prost(bool, tag = "5")]
    pub set_aside: bool,
    /// What the worker should hold of the shards that it asked about in its last report.
    #[prost(message, repeated, tag = "6")]
    pub contents: Vec<ShardContent>,
    /// The writes that `contents` counts.
    #[prost(message, optional, tag = "7")]
    pub snapshot: Option<Snapshot>,
    /// The writes that every query sees that may still ask the worker; `None` if that is not known.
    #[prost(message, optional, tag = "10")]
    pub horizon: Option<Snapshot>,
    /// A time, in microseconds since 1970, before which no query began that may still ask the
    /// worker. It belongs to `horizon`.
    #[prost(sint64, tag = "11")]
    pub horizon_us: i64,
    /// The tables whose rows expire. The worker deletes rows that had expired at `horizon_us`.
    #[prost(message, repeated, tag = "12")]
    pub expiries: Vec<TableExpiry>,
}

/// How long the rows of one table are kept.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TableExpiry {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// How long the rows are kept.
    #[prost(message, optional, tag = "2")]
    pub expiry: Option<Expiry>,
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
    /// The last abort up to which the worker has deleted the rows of all failed writes, since it
    /// started.
    #[prost(uint64, tag = "15")]
    pub deleted_through: u64,
    /// The largest number of committed writes that the worker has heard of.
    #[prost(uint64, tag = "16")]
    pub heard_commits: u64,
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
    /// Shards with files that the worker's store does not name, and that may or may not be garbage.
    /// The gateway answers with its next question, which says what these shards should hold.
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
