/// Encodes a fragment into the bytes of a ticket.
pub mod encode;
/// Represents the shards of a table that a scan reads.
mod selection;
/// Scans shards of a table, as the leaf of a plan.
mod shard_scan;
/// Marks literals that stand for a parameter of the statement.
pub mod statement_parameter;

pub(crate) use selection::ShardSelection;
pub use shard_scan::MAX_TARGET_PARTITIONS;
pub(crate) use shard_scan::ShardScanExec;
