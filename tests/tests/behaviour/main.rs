//! What Volary does, asked through its public protocol. One binary, so that it is linked once.
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
