//! Decides which parts of a query run on the workers and which run on the gateway.
//!
//! A sharded table is a [`table::ShardedTable`]. Its scan becomes a `ShardScanExec` over the shards
//! that remain after [`pruning`]. DataFusion's rules then see a leaf that is partitioned by its
//! shard key. The rules of this crate ([`joins`], [`cut`]) use `locality` to decide which subtrees
//! run on the workers. The cut puts these subtrees below a [`crate::gather::GatherExec`]. Such a
//! subtree is a fragment, and [`crate::fragment::encode`] encodes it for tickets.

/// Removes the order within aggregates that do not depend on it.
pub mod aggregate_order;
/// Plans EXPLAIN ANALYZE, which runs a statement and shows its plan with measurements.
pub mod analysis;
/// Ends the planning of a statement when nobody waits for the plan any more.
pub(crate) mod awaited;
/// Keeps the top-k sorts of a union's branches from sharing a threshold.
mod branch_limits;
/// Merges the partial aggregates of many workers bucket by bucket.
mod bucket_merge;
/// Defines the functions that read the clock, such as `now`.
pub mod clock;
/// Decides whether matching rows of a join are in the same shard.
mod colocation;
/// Turns the maximal shard-local subtrees of a plan into fragments.
pub mod cut;
/// Reads numbers that are written beside decimals as decimals.
mod decimal_operands;
/// Renders the text of EXPLAIN, including fragments.
pub mod explain;
/// Writes the conditions of filters in a form that DataFusion can estimate.
mod filter_operators;
/// Defines fragments, the parts of plans that workers run: their leaves, the `ShardScanExec`s, and
/// their encoding.
pub mod fragment;
/// Defines the plan node that reads the rows of a fragment from all its workers.
pub mod gather;
/// Tells gathers how many of them a query has.
mod gather_count;
/// Keeps plans that are used again with other values.
pub mod generic_plan;
/// Compares and sorts intervals by their lengths.
mod interval_order;
/// Reorders inner joins so that workers can run more of them.
mod join_order;
/// Changes joins so that they can run on the workers.
pub mod joins;
/// Narrows gathers with each single key of a join.
mod key_filters;
/// Recognises shard keys in expressions, also within casts that keep the hashes of their values.
mod key_reference;
/// Plans queries without estimates for large filters, which would take too long.
pub mod large_filters;
/// Decides for which scans a worker reads the columns of a filter first, and other columns only for
/// rows that pass.
pub mod late_materialisation;
/// Decides where a subtree can run, and explains why it cannot run on the workers.
mod locality;
/// Protects value-changing casts against wrong rewrites.
pub mod narrowing_casts;
/// Corrects NOT IN where NULLs decide the result.
mod not_in;
/// Lets windows be in the order of values without distances.
mod peer_frames;
/// Decides which shards can hold matching rows.
pub mod pruning;
/// Lets some workers merge the rows of others, where the gateway alone would have too much to do.
pub mod relays;
/// Rewrites those expressions of a plan that may change.
mod rewrite_parts;
/// Lists the rules of the optimizer in their order.
pub mod rules;
/// Defines the functions that tell about the session, such as `current_user`.
pub mod session_functions;
/// Defines the settings of a session as an extension of DataFusion's settings.
pub mod session_settings;
/// Reads and writes instants in the time zone of the session.
pub mod session_zone;
/// Corrects comparisons with all or any rows of a subquery, such as `x > ALL (SELECT y …)`.
mod set_comparison;
/// Plans subqueries in places where DataFusion does not.
pub mod subqueries;
/// Represents a table of the catalog for DataFusion.
pub mod table;
/// Determines which workers a gather asks, and for which shards.
pub mod targets;
/// Casts texts that are compared with UUIDs, intervals and durations.
pub mod text_casts;
/// Plans arithmetic with times, intervals and parameters that the planner refuses.
pub mod time_arithmetic;
/// Keeps the units of timestamps that meet dates and texts.
mod time_types;
/// Makes the units agree in comparisons of times.
pub mod time_units;
/// Tests whether a value is one of a long list of constants.
pub mod value_list;
