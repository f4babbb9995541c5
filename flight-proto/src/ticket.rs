use std::collections::BTreeMap;

use bytes::Bytes;

use crate::fragment::ScanShards;
use crate::snapshot::Snapshot;

/// What a gateway redeems at a worker: a fragment, the shards it runs on, and the snapshot it sees. Self-contained: the
/// worker keeps no state between tickets.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FragmentTicket {
    /// The query, for logs and errors.
    #[prost(string, tag = "1")]
    pub query_id: String,
    /// The cluster.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
    /// The worker that the ticket is for.
    #[prost(uint64, tag = "3")]
    pub worker_id: u64,
    /// The physical plan (`datafusion_proto::protobuf::PhysicalPlanNode`), whose leaves are
    /// [`ShardScan`](crate::fragment::ShardScan)s.
    #[prost(bytes = "bytes", tag = "4")]
    pub plan: Bytes,
    /// For each scan of the plan, by its ordinal, the shards to read.
    #[prost(message, repeated, tag = "5")]
    pub scans: Vec<ScanShards>,
    /// Which writes are seen.
    #[prost(message, optional, tag = "6")]
    pub snapshot: Option<Snapshot>,
    /// Whether the worker must merge its partitions by the plan's output ordering into one sorted stream.
    #[prost(bool, tag = "7")]
    pub ordered: bool,
    /// How many rows of this worker are of use at the most.
    #[prost(uint64, optional, tag = "8")]
    pub fetch: Option<u64>,
    /// Rows per batch inside the worker's operators.
    #[prost(uint32, tag = "9")]
    pub batch_rows: u32,
    /// Bytes of a batch that the worker aims at when it sends.
    #[prost(uint64, tag = "10")]
    pub batch_bytes: u64,
    /// The worker sends a keep-alive frame when nothing else was sent for so long (milliseconds).
    #[prost(uint32, tag = "11")]
    pub keep_alive_ms: u32,
    /// Whether the end-of-stream frame carries the plan with its metrics (EXPLAIN ANALYZE VERBOSE).
    #[prost(bool, tag = "12")]
    pub with_plan_metrics: bool,
    /// The session's time zone, for functions of time.
    #[prost(string, tag = "13")]
    pub time_zone: String,
}

/// What a client redeems at a gateway: a query that was planned. Valid on every gateway of the cluster: one that does not
/// know the plan makes it again from the statement and the snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QueryTicket {
    /// The query.
    #[prost(string, tag = "1")]
    pub query_id: String,
    /// The statement.
    #[prost(string, tag = "2")]
    pub sql: String,
    /// Parameters: one row, as an Arrow IPC stream; empty if there are none.
    #[prost(bytes = "bytes", tag = "3")]
    pub parameters: Bytes,
    /// Which writes are seen: the same rows each time the ticket is redeemed.
    #[prost(message, optional, tag = "4")]
    pub snapshot: Option<Snapshot>,
    /// The session's settings that are not the default.
    #[prost(map = "string, string", tag = "5")]
    pub settings: std::collections::HashMap<String, String>,
    /// The rows themselves, as an Arrow IPC stream, where the statement was run when its FlightInfo was asked for (DDL,
    /// DML, EXPLAIN ANALYZE); nothing is run when the ticket is redeemed.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub result: Option<Bytes>,
    /// A metadata command of Flight SQL (catalogs, tables …) as its `Any` message, instead of a statement.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub command: Option<Bytes>,
    /// The tables and views that the query read when it was planned, by name: a table's id, the [`fingerprint`] of a view's text. A
    /// snapshot says which writes are seen, not of which tables.
    #[prost(btree_map = "string, uint64", tag = "8")]
    pub reads: BTreeMap<String, u64>,
    /// The [`fingerprint`] of the columns that were announced.
    #[prost(fixed64, optional, tag = "9")]
    pub columns: Option<u64>,
}

/// A number that tells texts apart, the same on every gateway: the first eight bytes of the text's BLAKE3 hash, little-endian.
pub fn fingerprint(text: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// A prepared statement: stateless, so that it is valid on every gateway and nothing leaks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedStatementHandle {
    /// The statement, with `?` or `$n` for its parameters.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// The parameters that were bound: zero or more rows, as an Arrow IPC stream; none if nothing was bound.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub parameters: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_the_same_on_every_gateway() {
        assert_eq!(fingerprint(""), 0xa6a1_f9f5_b949_13af);
        assert_ne!(fingerprint("SELECT 1"), fingerprint("SELECT 2"));
    }
}
