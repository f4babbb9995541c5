//! The partial aggregates of many groups from many workers do not fit into a gateway all at once.
//! Therefore workers send them by ascending bucket ([`volary_exec::buckets`]). A merge is done in
//! steps, and each step covers some rounds of buckets. A few [`reader`]s, each with an equal part
//! of the workers, hand the rows of a step to the partitions ([`exchange`]). A partition
//! ([`exec::BucketMergeExec`]) merges the groups of the step, emits them, and frees them before the
//! next step. The number of steps is decided when all workers have announced the size of their rows
//! ([`steps`]). Small results are merged in one step.
//!
//! The partitions are those that DataFusion's repartitioning would have made, so that the plan
//! above stays as it was planned. The workers do the hashing.

/// Queues rows on their way from the readers to the partitions.
mod exchange;
/// Defines the plan node that merges.
mod exec;
/// Starts the readers of a merge, and ends them when nobody reads their rows any more.
mod inputs;
/// Reads the rows of workers step by step.
mod reader;
/// Decides in how many steps a merge is done.
mod steps;

pub use exec::BucketMergeExec;
pub use inputs::GatherSource;
