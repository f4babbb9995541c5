//! Merging the partial results of many workers, one round of hash buckets at a time.
//!
//! Partial aggregates of many groups from many workers do not fit into a gateway all at once. Workers therefore send them by
//! ascending bucket ([`volary_node::buckets`]). A few [`reader`]s, each with an equal part of the workers, hand the rows of a
//! step, which is some rounds, to the partitions ([`exchange`]); a partition ([`exec::BucketMergeExec`]) merges the step's groups, emits them and frees
//! them before the next step. How many steps there are is decided when all workers have said how much they have ([`steps`]): little
//! is merged in one.
//!
//! The partitions are those that DataFusion's repartitioning would have made, so that the plan above stays as it was planned; the
//! hashing is the workers' work.

/// Rows on their way from the readers to the partitions.
mod exchange;
/// The plan node.
mod exec;
/// What a merge reads.
mod inputs;
/// Rows of workers, read step by step.
mod reader;
/// In how many steps a merge is done.
mod steps;

pub use exec::BucketMergeExec;
pub use inputs::Source;
