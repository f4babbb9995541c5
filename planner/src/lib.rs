//! What runs where.
//!
//! A sharded table is a [`table::ShardedTable`]: its scan becomes a [`crate::fragment::ShardScanExec`] over the shards that
//! [`pruning`] leaves. The planner's own rules then see a leaf that is partitioned by its shard key, and the rules here
//! ([`joins`], [`cut`]) decide by [`locality`] which subtrees run on the workers. What the cut leaves below a
//! [`crate::gather::GatherExec`] is a fragment, which [`crate::fragment::encode`] puts into tickets.

/// EXPLAIN ANALYZE.
pub mod analysis;
/// Planning that ends when nobody waits for the plan any more.
pub mod awaited;
/// Top-k of the branches of a union.
pub mod branch_limits;
/// Final aggregates of what many workers have aggregated in part.
pub mod bucket_merge;
/// When rows that match are in the same shard.
pub mod colocation;
/// The maximal shard-local subtrees become fragments.
pub mod cut;
/// EXPLAIN's text, fragments included.
pub mod explain;
/// What workers run: the leaf of plans, and the encoding of fragments.
pub mod fragment;
/// The plan node that pulls a fragment's rows from all its workers.
pub mod gather;
/// Gathers learn how many they are.
pub mod gather_count;
/// Plans that are used again with other values.
pub mod generic_plan;
/// Inner joins in an order that lets workers do more of them.
pub mod join_order;
/// Joins that can run on the workers.
pub mod joins;
/// Each key of a join narrows what it can.
pub mod key_filters;
/// Whether an expression is a shard key.
pub mod key_reference;
/// Where a worker should read a filter's columns first.
pub mod late_materialisation;
/// Where a subtree can run, and why not on the workers.
pub mod locality;
/// Casts that make other values of some.
pub mod narrowing;
/// NOT IN where NULLs decide.
pub mod not_in;
/// Which shards can hold matching rows.
pub mod pruning;
/// Merges that some workers do for the gateway.
pub mod relays;
/// The optimizer's rules, in their order.
pub mod rules;
/// What a session may take.
pub mod session_limits;
/// A table of the catalog as DataFusion sees it.
pub mod table;
/// Which workers a fragment's gather asks, and for which shards.
pub mod targets;
