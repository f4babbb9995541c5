//! A gather ([`exec::GatherExec`]) has as many partitions as the gateway can use. Each partition
//! owns an equal part of the workers, or of the workers that relay ([`relay_plan`]). It reads them
//! through [`volary_gather`].

/// Defines the settings of gathers: the section `gateway.gather`.
pub mod config;
/// Holds what a gather needs to know about its query.
pub mod context;
/// Implements the plan node [`GatherExec`].
pub mod exec;
/// Makes the request for a fragment's rows.
mod fragment_request;
/// Describes the fragment that the workers of a gather run.
mod fragment_spec;
/// Asks workers for the rows of keys, with a fragment that is made once.
mod lookup;
/// Chooses the workers that merge the rows of the others for the gateway.
pub(crate) mod relay_plan;
/// Names the span that a query's gathers are below in its trace.
mod run_span;
/// Narrows scans with filters that are known only while a query runs.
pub(crate) mod runtime_filter;
/// Adds the catalog's tallies to the shards that workers are to read.
mod shard_counts;

pub use context::QueryContext;
pub use exec::GatherExec;
pub(crate) use exec::merged_properties;
pub use fragment_spec::PreparedFragment;
pub use lookup::{LookupFragment, LookupMemory, WorkerKeys};
pub use run_span::RunSpan;
pub use volary_gather::WorkerTarget;
