/// DoAction type of [`Control`], at a worker.
pub const CONTROL_ACTION: &str = "volary.control";

/// A small command from a gateway to a worker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Control {
    /// The worker that the command is for.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// The command.
    #[prost(oneof = "control::Command", tags = "2, 3, 4")]
    pub command: Option<control::Command>,
    /// The cluster.
    #[prost(string, tag = "5")]
    pub cluster_id: String,
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
}
