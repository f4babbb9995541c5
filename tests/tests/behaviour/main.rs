//! Tests the behaviour of Volary through its public protocol. All tests are one binary, so that
//! only one has to be linked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

mod connections;
mod nycflights;
mod plans;
mod prepared;
mod properties;
mod relays;
mod run;
mod runtime_filters;
mod tickets;
mod traps;
