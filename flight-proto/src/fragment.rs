use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::tally::Tally;

/// The most rows per batch that anybody may ask for: operators reserve memory for so many.
pub const MAX_BATCH_ROWS: u32 = 1 << 20;

/// What workers run, as far as it is the same on all of them and for all statements that differ only in their values. It travels
/// once to each worker that is asked; later tickets name it by its [`FragmentId`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Fragment {
    /// The physical plan (`datafusion_proto::protobuf::PhysicalPlanNode`), whose leaves are [`ShardScan`]s, with a [`Parameter`]
    /// in place of every value.
    #[prost(bytes = "bytes", tag = "1")]
    pub plan: Bytes,
    /// Whether a worker must merge its partitions by the plan's output ordering into one sorted stream.
    #[prost(bool, tag = "2")]
    pub ordered: bool,
    /// How many rows of a worker are of use at the most.
    #[prost(uint64, optional, tag = "3")]
    pub fetch: Option<u64>,
    /// Rows per batch inside the worker's operators; [`MAX_BATCH_ROWS`] at the most.
    #[prost(uint32, tag = "4")]
    pub batch_rows: u32,
    /// The worker sends a keep-alive frame when nothing else was sent for so long (milliseconds).
    #[prost(uint32, tag = "5")]
    pub keep_alive_ms: u32,
    /// Whether the end-of-stream frame carries the plan with its metrics (EXPLAIN ANALYZE VERBOSE).
    #[prost(bool, tag = "6")]
    pub with_plan_metrics: bool,
    /// The session's time zone, for functions of time.
    #[prost(string, tag = "7")]
    pub time_zone: String,
    /// Whether rows come in the order of hash buckets, and of which.
    #[prost(message, optional, tag = "8")]
    pub buckets: Option<HashBuckets>,
    /// What the plan's [`MemberRows`] are; none if it has none, but scans.
    #[prost(message, optional, tag = "9")]
    pub relayed: Option<Relayed>,
}

/// A fragment that some workers run for another one, which merges their rows for a gateway.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Relayed {
    /// The encoded [`Fragment`] that they run. The [`Parameters`] are those of both fragments.
    #[prost(bytes = "bytes", tag = "1")]
    pub fragment: Bytes,
    /// A worker that is silent for so long is given up (milliseconds).
    #[prost(uint32, tag = "2")]
    pub idle_timeout_ms: u32,
    /// Bytes of a batch to aim at.
    #[prost(uint64, tag = "3")]
    pub batch_bytes: u64,
}

/// The buckets that a gateway merges rows by.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HashBuckets {
    /// The columns that are hashed, by position.
    #[prost(uint32, repeated, tag = "1")]
    pub columns: Vec<u32>,
    /// The gateway's partitions.
    #[prost(uint32, tag = "2")]
    pub partitions: u32,
    /// Buckets of each partition.
    #[prost(uint32, tag = "3")]
    pub rounds: u32,
}

/// The handle of a fragment: the first 16 bytes of the BLAKE3 hash of the encoded [`Fragment`].
///
/// 128 bits suffice. Gateways alone make fragments, and a worker checks those that it is sent. By chance, two among a million
/// fragments are named alike with a probability of 10⁻²⁷. Whoever wants to be named like somebody else's fragment has 2¹²⁸ plans to
/// try; whoever finds two plans named alike, among 2⁶⁴, has mixed up statements of his own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentId([u8; ID_BYTES]);

const ID_BYTES: usize = 16;

impl FragmentId {
    /// That of an encoded [`Fragment`].
    pub fn of(encoded: &[u8]) -> Self {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&blake3::hash(encoded).as_bytes()[..ID_BYTES]);
        Self(id)
    }

    /// As it stands in a ticket.
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
                    "the id of a fragment has {ID_BYTES} bytes, and this one has {}; run the same release on all nodes",
                    bytes.len()
                ))
            })
    }
}

impl fmt::Display for FragmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What stands in a fragment's plan in place of a value, as a physical extension expression.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Parameter {
    /// What becomes of it.
    #[prost(oneof = "parameter::Kind", tags = "1, 2")]
    pub kind: Option<parameter::Kind>,
}

/// The kinds of [`Parameter`].
pub mod parameter {
    /// What a parameter becomes, by its ordinal among the [values](super::Parameters) in the ticket.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Kind {
        /// A literal of this value (`datafusion_proto::protobuf::ScalarValue`).
        #[prost(uint32, tag = "1")]
        Literal(u32),
        /// Whether the expression below it is among these values (one column, as an Arrow IPC stream).
        #[prost(uint32, tag = "2")]
        KeySet(u32),
    }
}

/// The values that a ticket brings for a fragment's [`Parameter`]s.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Parameters {
    /// By ordinal, encoded as the parameter's kind says.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub values: Vec<Bytes>,
}

/// A leaf of a fragment. It travels as a DataFusion physical extension node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Leaf {
    /// Where its rows come from.
    #[prost(oneof = "leaf::Kind", tags = "1, 2")]
    pub kind: Option<leaf::Kind>,
}

/// The kinds of [`Leaf`].
pub mod leaf {
    /// Where a leaf's rows come from.
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

/// The rows of the ticket's [members](crate::ticket::Member), who run what is [`Relayed`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MemberRows {
    /// Their columns, as an Arrow IPC message.
    #[prost(bytes = "bytes", tag = "1")]
    pub schema: Bytes,
}

/// The rows of some shards of one table. A gateway plans with it; a worker binds it to its segments.
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
    pub table_schema: Bytes,
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
    /// The [tallies](crate::tally::Tally) of the committed rows, in the order of the shards; one for a reference table.
    /// Empty if the catalog does not know all of them.
    #[prost(fixed32, repeated, tag = "2")]
    pub tallies: Vec<u32>,
    /// Instead of the tallies, the numbers of the committed rows.
    #[prost(uint64, repeated, tag = "3")]
    pub rows: Vec<u64>,
}

/// The committed rows of a shard, as the catalog has counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// They have this tally.
    Tally(Tally),
    /// There are so many.
    Rows(u64),
}

impl ScanShards {
    /// What the catalog has counted of the shard at this position; `None` if the ticket does not say.
    pub fn expected(&self, position: usize) -> Option<Expected> {
        let tally = self.tallies.get(position);
        let rows = self.rows.get(position);
        tally
            .map(|tally| Expected::Tally(Tally(*tally)))
            .or_else(|| rows.map(|rows| Expected::Rows(*rows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn a_fragments_id_never_changes() {
        let id = FragmentId::of(b"");
        // The beginning of the hash of no bytes, as BLAKE3's own test vectors have it.
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
