//! What workers run: a part of a plan whose leaves are [`ShardScanExec`]s, and the bytes as which it travels.

/// From a fragment to the bytes of a ticket.
pub mod encode;
/// Which shards of a table a scan reads.
mod selection;
/// The leaf: rows of some shards of a table.
mod shard_scan;
/// Literals that stand for a parameter of the statement.
pub mod statement_parameter;

pub use selection::Selection;
pub use shard_scan::{MAX_TARGET_PARTITIONS, ShardScanExec};
