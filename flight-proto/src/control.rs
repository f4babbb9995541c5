use crate::lineage::{Incarnation, Lineage};
use crate::snapshot::Snapshot;

/// DoAction type of [`Control`], at a worker.
pub const CONTROL_ACTION: &str = "volary.control";

/// A small command from a gateway to a worker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Control {
    /// The worker that the command is for.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The command.
    #[prost(oneof = "control::Command", tags = "2, 3, 4, 6")]
    pub command: Option<control::Command>,
    /// The cluster.
    #[prost(string, tag = "5")]
    pub cluster_id: String,
    /// Which history of writes the gateway's catalog belongs to. What the command says is garbage is deleted only by a
    /// worker of the same history.
    #[prost(message, optional, tag = "7")]
    pub lineage: Option<Lineage>,
}

/// The commands of [`Control`].
#[allow(
    clippy::module_inception,
    reason = "prost looks for the choices of a message in a module of its name"
)]
pub mod control {
    /// One command.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Command {
        /// Answer with a [`super::SegmentList`].
        #[prost(message, tag = "2")]
        ListSegments(super::ListSegments),
        /// Delete a table's files.
        #[prost(message, tag = "3")]
        DropTable(super::DropTable),
        /// Delete the rows of a write that failed.
        #[prost(message, tag = "4")]
        AbortWrite(super::AbortWrite),
        /// Answer with a [`super::WorkerReport`], and delete what is garbage.
        #[prost(message, tag = "6")]
        Report(super::Report),
    }
}

/// Asks for all segments of a worker.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListSegments {}

/// Deletes a table's files.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DropTable {
    /// The table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
}

/// Deletes the rows of a write that failed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AbortWrite {
    /// The write.
    #[prost(uint64, tag = "1")]
    pub write_id: u64,
}

/// Asks for a worker's report, and says what the worker may delete. A gateway asks again and again, of each worker that it knows.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Report {
    /// Tables that exist, or are being created.
    #[prost(uint64, repeated, tag = "1")]
    pub live_tables: Vec<u64>,
    /// Every table up to this one that is not live was dropped: its files are garbage. Later ones may exist.
    #[prost(uint64, tag = "2")]
    pub last_table: u64,
    /// Writes that failed: their rows are garbage.
    #[prost(uint64, repeated, tag = "3")]
    pub aborted_writes: Vec<u64>,
    /// When the gateway asks again, in milliseconds: the more workers there are, the later.
    #[prost(uint32, tag = "4")]
    pub next_ms: u32,
    /// Whether rows of writes from the lineage's `from_write` on are set aside, so that the lineage can be adopted: they
    /// are another history's, and an operator has agreed to lose them.
    #[prost(bool, tag = "5")]
    pub set_aside: bool,
    /// What the worker should hold of the shards that it asked about in its last report.
    #[prost(message, repeated, tag = "6")]
    pub contents: Vec<ShardContent>,
    /// The writes that the contents count.
    #[prost(message, optional, tag = "7")]
    pub snapshot: Option<Snapshot>,
}

/// A shard of a table.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ShardName {
    /// The table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// The shard.
    #[prost(uint32, tag = "2")]
    pub shard: u32,
}

/// What a worker should hold of a shard.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ShardContent {
    /// The shard.
    #[prost(message, optional, tag = "1")]
    pub shard: Option<ShardName>,
    /// Its committed rows.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// Their [tally](crate::tally::Tally), if the catalog knows it.
    #[prost(fixed32, optional, tag = "3")]
    pub tally: Option<u32>,
}

/// What a worker reports of itself: the answer to [`Report`], sealed for [`Purpose::Membership`](crate::seal::Purpose::Membership).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WorkerReport {
    /// The worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// Which start of the worker it is.
    #[prost(string, tag = "2")]
    pub instance: String,
    /// Fragments that run.
    #[prost(uint32, tag = "3")]
    pub running_fragments: u32,
    /// Memory reserved by fragments and writes, in bytes.
    #[prost(uint64, tag = "4")]
    pub memory_reserved_bytes: u64,
    /// Segments on disk, of all tables.
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
    /// Where clients fetch their parts of results: `grpc://host:port`, or `grpc+tls://` with TLS.
    #[prost(string, tag = "10")]
    pub clients_uri: String,
    /// The incarnations of the catalog that it has adopted, the oldest first. Empty if the last one is the question's.
    #[prost(message, repeated, tag = "11")]
    pub incarnations: Vec<Incarnation>,
    /// The highest write that it has rows of, seen or not; 0 if it has none.
    #[prost(uint64, tag = "12")]
    pub max_write: u64,
    /// Shards with files that no manifest names, and that may or may not be garbage: the gateway says what they should
    /// hold with its next question.
    #[prost(message, repeated, tag = "13")]
    pub unproven: Vec<ShardName>,
    /// Whether it has adopted the question's incarnation.
    #[prost(bool, tag = "14")]
    pub adopted: bool,
}

/// The segments of a worker.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentList {
    /// The segments, by table, shard and write.
    #[prost(message, repeated, tag = "1")]
    pub segments: Vec<SegmentDescription>,
}

/// One segment.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SegmentDescription {
    /// The table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// The shard.
    #[prost(uint32, tag = "2")]
    pub shard: u32,
    /// The write that made it.
    #[prost(uint64, tag = "3")]
    pub write_id: u64,
    /// Its file, relative to the worker's data directory.
    #[prost(string, tag = "4")]
    pub file: String,
    /// Rows.
    #[prost(uint64, tag = "5")]
    pub rows: u64,
    /// Bytes of the file.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// What is wrong with the file; empty if nothing is known to be.
    #[prost(string, tag = "7")]
    pub damage: String,
}
