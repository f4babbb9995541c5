use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::tally::Tally;

/// Maximum number of rows per batch that anybody may ask for. Operators reserve memory for this
/// many rows.
pub const MAX_BATCH_ROWS: u32 = 1 << 20;

/// The part of a plan that workers run. It is the same for all workers, and for all statements that
/// differ only in their values. It is sent to each worker once. Later tickets name it by its
/// [`FragmentId`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Fragment {
    /// The physical plan (`datafusion_proto::protobuf::PhysicalPlanNode`). Its leaves are
    /// [`Leaf`]s, and a [`Parameter`] stands in place of every value.
    #[prost(bytes = "bytes", tag = "1")]
    pub plan: Bytes,
    /// Says whether a worker must merge its partitions into one stream that is sorted by the plan's
    /// output ordering.
    #[prost(bool, tag = "2")]
    pub ordered: bool,
    /// Maximum number of rows that are needed from a worker.
    #[prost(uint64, optional, tag = "3")]
    pub fetch: Option<u64>,
    /// Rows per batch in the worker's operators, at most [`MAX_BATCH_ROWS`].
    #[prost(uint32, tag = "4")]
    pub batch_rows: u32,
    /// Time in milliseconds after which the worker sends a keep-alive frame if it has sent nothing
    /// else.
    #[prost(uint32, tag = "5")]
    pub keep_alive_ms: u32,
    /// Says whether the end-of-stream frame carries the plan with its metrics (EXPLAIN ANALYZE
    /// VERBOSE).
    #[prost(bool, tag = "6")]
    pub with_plan_metrics: bool,
    /// The hash buckets by which the rows are ordered. `None` if no such order is asked for.
    #[prost(message, optional, tag = "8")]
    pub buckets: Option<HashBuckets>,
    /// The fragment whose rows the plan's [`MemberRows`] leaf reads. `None` if all leaves of the
    /// plan are scans.
    #[prost(message, optional, tag = "9")]
    pub relayed: Option<Relayed>,
}

/// A fragment that the members of a relay run. The relay is a worker that merges the members' rows
/// for a gateway.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Relayed {
    /// The encoded [`Fragment`] that the members run. The [`Parameters`] in the relay's ticket are
    /// those of both fragments.
    #[prost(bytes = "bytes", tag = "1")]
    pub fragment: Bytes,
    /// Time in milliseconds after which a silent member is given up.
    #[prost(uint32, tag = "2")]
    pub idle_timeout_ms: u32,
    /// Target size of a batch, in bytes.
    #[prost(uint64, tag = "3")]
    pub batch_bytes: u64,
}

/// The hash buckets by which a gateway merges rows.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HashBuckets {
    /// The columns that are hashed, by position.
    #[prost(uint32, repeated, tag = "1")]
    pub columns: Vec<u32>,
    /// Number of the gateway's partitions.
    #[prost(uint32, tag = "2")]
    pub partitions: u32,
    /// Number of buckets in each partition.
    #[prost(uint32, tag = "3")]
    pub rounds: u32,
}

/// The handle of a fragment: the first 16 bytes of the BLAKE3 hash of the encoded [`Fragment`].
///
/// 128 bits are enough. Only gateways make fragments, and a worker checks the fragments that it is
/// sent. Among a million fragments, two have the same id by chance with a probability of 10⁻²⁷. An
/// attacker who wants the id of somebody else's fragment has to try 2¹²⁸ plans. An attacker who
/// finds two plans with the same id, among 2⁶⁴ plans, has only mixed up statements of his own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentId([u8; ID_BYTES]);

const ID_BYTES: usize = 16;

impl FragmentId {
    /// Computes the id of an encoded [`Fragment`].
    pub fn of(encoded: &[u8]) -> Self {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&blake3::hash(encoded).as_bytes()[..ID_BYTES]);
        Self(id)
    }

    /// Returns the bytes of the id, as a ticket carries them.
    pub fn to_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

impl TryFrom<&[u8]> for FragmentId {
    type Error = Error;

    fn try_from(bytes: &[u8]) -> Result<Self> {
        <[u8; ID_BYTES]>::try_from(bytes)
            .map(Self)
            .map_err(|_| {
                Error::invalid(format!(
                    "the id of a fragment has {ID_BYTES} bytes, but this one has {}; run the same release on all nodes",
                    bytes.len()
                ))
            })
    }
}

impl fmt::Display for FragmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A placeholder for a value in a fragment's plan. It travels as a physical extension expression.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Parameter {
    /// What a worker puts in place of the parameter.
    #[prost(oneof = "parameter::Kind", tags = "1, 2")]
    pub kind: Option<parameter::Kind>,
}

/// Defines the kinds of [`Parameter`].
pub mod parameter {
    /// What a worker puts in place of a parameter. The number is the ordinal of the value among the
    /// [values](super::Parameters) in the ticket.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Kind {
        /// A literal of the value (`datafusion_proto::protobuf::ScalarValue`).
        #[prost(uint32, tag = "1")]
        Literal(u32),
        /// A test whether the value of the parameter's child expression is in a set of values. The
        /// set is one column, encoded as an Arrow IPC stream.
        #[prost(uint32, tag = "2")]
        KeySet(u32),
    }
}

/// The values for a fragment's [`Parameter`]s, as a ticket carries them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Parameters {
    /// The values, by ordinal. The kind of a parameter says how its value is encoded.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub values: Vec<Bytes>,
}

/// A leaf of a fragment's plan. It travels as a DataFusion physical extension node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Leaf {
    /// The source of the leaf's rows.
    #[prost(oneof = "leaf::Kind", tags = "1, 2")]
    pub kind: Option<leaf::Kind>,
}

/// Defines the kinds of [`Leaf`].
pub mod leaf {
    /// The source of a leaf's rows.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// The worker's own shards.
        #[prost(message, tag = "1")]
        Scan(super::ShardScan),
        /// Other workers.
        #[prost(message, tag = "2")]
        Members(super::MemberRows),
    }
}

/// The rows of the ticket's [members](crate::ticket::Member), which run the [`Relayed`] fragment.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MemberRows {
    /// Schema of the rows, as an Arrow IPC message.
    #[prost(bytes = "bytes", tag = "1")]
    pub schema: Bytes,
}

/// The rows of some shards of one table. A gateway plans with this leaf, and a worker binds it to
/// its segments.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ShardScan {
    /// Id of the table.
    #[prost(uint64, tag = "1")]
    pub table_id: u64,
    /// Name of the table as the user wrote it, for errors and EXPLAIN.
    #[prost(string, tag = "2")]
    pub table_name: String,
    /// The columns to read, by position in the table's schema, in output order.
    #[prost(uint32, repeated, tag = "3")]
    pub projection: Vec<u32>,
    /// Says whether the table is a reference table, of which every worker holds all rows.
    #[prost(bool, tag = "4")]
    pub reference: bool,
    /// Position of the scan within its fragment. The [`ScanShards`] at this position in a ticket
    /// say which shards the scan covers on the ticket's worker.
    #[prost(uint32, tag = "5")]
    pub ordinal: u32,
    /// The table's whole schema, as an Arrow IPC message. The segments are read with this schema.
    #[prost(bytes = "bytes", tag = "6")]
    pub table_schema: Bytes,
    /// Says whether the worker reads the columns of the filter above the scan first, and the other
    /// columns only for the rows that pass. This is useful if the filter lets few rows pass.
    #[prost(bool, tag = "7")]
    pub late_materialisation: bool,
    /// The rows that have expired, which the scan leaves out. `None` if rows do not expire.
    #[prost(message, optional, tag = "8")]
    pub expiry: Option<Expiry>,
    /// How the rows are divided among the shards of the table. `None` if a row may be in any shard.
    #[prost(message, optional, tag = "9")]
    pub sharding: Option<Sharding>,
}

/// How the rows of a table are divided among its shards: by the hash of the shard key. A worker
/// looks for a key only in the shard that the key belongs to.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Sharding {
    /// Position of the shard key in the table's schema.
    #[prost(uint32, tag = "1")]
    pub key_column: u32,
    /// Number of shards of the table, on all workers together.
    #[prost(uint32, tag = "2")]
    pub shards: u32,
}

/// How long the rows of a table are kept. A row expires when its time is further in the past than
/// that. Rows without a time never expire.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Expiry {
    /// Position of the column with the times of the rows, in the table's schema.
    #[prost(uint32, tag = "1")]
    pub time_column: u32,
    /// The time for which rows are kept, in microseconds.
    #[prost(uint64, tag = "2")]
    pub keep_us: u64,
}

/// The shards that one scan of a fragment covers on the worker that the ticket is for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScanShards {
    /// Numbers of the shards, ascending. Empty for a reference table.
    #[prost(uint32, repeated, tag = "1")]
    pub shards: Vec<u32>,
    /// The [tallies](crate::tally::Tally) of the committed rows, in the order of the shards. A
    /// reference table has one tally. Empty if the catalog does not know all tallies.
    #[prost(fixed32, repeated, tag = "2")]
    pub tallies: Vec<u32>,
    /// Numbers of committed rows, in the order of the shards. They are sent only instead of the
    /// tallies.
    #[prost(uint64, repeated, tag = "3")]
    pub rows: Vec<u64>,
}

/// The catalog's count of a shard's committed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedRows {
    /// The tally of the rows.
    Tally(Tally),
    /// The number of rows.
    Rows(u64),
}

impl ScanShards {
    /// Returns the catalog's count for the shard at this position. Returns `None` if the ticket has
    /// none.
    pub fn expected(&self, position: usize) -> Option<ExpectedRows> {
        let tally = self.tallies.get(position);
        let rows = self.rows.get(position);
        tally
            .map(|tally| ExpectedRows::Tally(Tally(*tally)))
            .or_else(|| rows.map(|rows| ExpectedRows::Rows(*rows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn a_fragments_id_never_changes() {
        let id = FragmentId::of(b"");
        // The id is the beginning of the hash of no bytes, which is one of BLAKE3's own test
        // vectors.
        assert_eq!(id.to_string(), "af1349b9f5f9a1a6a0404dea36dcc949");
        assert_eq!(FragmentId::try_from(&id.to_bytes()[..]).unwrap(), id);
        assert_ne!(FragmentId::of(b"a"), id);
    }

    #[test]
    fn an_id_of_another_length_is_refused() {
        for length in [0, 15, 17, 32] {
            let refused = FragmentId::try_from(&vec![0; length][..]);
            assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidArgument);
        }
    }
}
