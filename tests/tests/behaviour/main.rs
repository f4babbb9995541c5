//! Tests the behaviour of Volary through its public protocol. All tests are one binary, so that
//! only one has to be linked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

/// Tests connections to a node.
mod connections;
/// Tests that functions have the same values on workers as on a gateway.
mod functions;
/// Tests that groups are the same on workers as on a gateway.
mod grouping;
/// Tests calls within the process of an embedded cluster.
mod in_process;
/// Tests statements that differ only in their literals.
mod literals;
/// Tests long lists of constants.
mod long_lists;
/// Tests handwritten queries over real data, which has NULLs and skew.
mod nycflights;
/// Tests the plans that EXPLAIN shows: which part runs on which workers, and why not more.
mod plans;
/// Tests prepared statements that run again and again with other values.
mod prepared;
/// Tests random queries over random tables.
mod properties;
/// Tests relays, the workers that merge the rows of other workers for the gateway.
mod relays;
/// Tests DataFusion plans as Volary's nodes run them.
mod run;
/// Tests runtime filters: the small side of a join on the gateway narrows the scans of the other
/// side.
mod runtime_filters;
/// Tests the tickets of fragments.
mod tickets;
/// Tests the known traps of planning over shards, one by one.
mod traps;
