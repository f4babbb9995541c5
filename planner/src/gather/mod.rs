//! The plan node that pulls a fragment's rows from all its workers.
//!
//! [`exec::GatherExec`] has as many partitions as the gateway has use for; each owns an equal part of the workers, or of the workers that
//! relay ([`relays`]), and reads them as [`volary_gather`] does.

/// Settings.
pub mod config;
/// What workers should hold of the shards that they are asked for.
mod contents;
/// What a gather needs to know of the query it belongs to.
pub mod context;
/// The plan node.
pub mod exec;
/// What the workers are asked to run.
pub mod fragment;
/// Workers that merge the rows of others.
pub mod relays;
/// Filters that are known only while a query runs.
pub mod runtime_filter;

pub use context::QueryContext;
pub use exec::{GatherExec, what_holds_of_merged};
pub use fragment::PreparedFragment;
pub use volary_gather::Target;
