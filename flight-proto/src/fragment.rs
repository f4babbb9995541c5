/// The leaf of a fragment: the rows of some shards of one table.
///
/// It travels as a DataFusion physical extension node. A gateway plans with it; a worker binds it to its segments.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ShardScan {
    /// The table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// The table's name as the user wrote it, for errors and EXPLAIN.
    #[prost(string, tag = "2")]
    pub table_name: String,
    /// Columns of the table to read, by position in the table's schema, in output order.
    #[prost(uint32, repeated, tag = "3")]
    pub projection: Vec<u32>,
    /// Whether every worker holds all rows (a reference table).
    #[prost(bool, tag = "4")]
    pub reference: bool,
    /// Position of the scan within its fragment: [`ScanShards`] says which shards it covers on a given worker.
    #[prost(uint32, tag = "5")]
    pub ordinal: u32,
    /// The table's whole schema, as an Arrow IPC message: what the segments are read as.
    #[prost(bytes = "bytes", tag = "6")]
    pub table_schema: bytes::Bytes,
    /// Whether the filter above it leaves so few rows that its columns are read first, and the others only for those rows.
    #[prost(bool, tag = "7")]
    pub late_materialisation: bool,
}

/// The shards that one scan of a fragment covers on the worker that the ticket is for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanShards {
    /// Shard numbers, ascending. Empty for a reference table.
    #[prost(uint32, repeated, tag = "1")]
    pub shards: Vec<u32>,
}
