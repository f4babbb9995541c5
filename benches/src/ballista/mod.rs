//! Runs a cluster of [Ballista](https://datafusion.apache.org/ballista/) on this machine. Its
//! programs are not a dependency: `make ballista` installs them, and each runs in a process of its
//! own.
//!
//! Ballista's scheduler answers Flight SQL, so the same client can query it and Volary.

/// Starts and ends the processes of a cluster.
mod cluster;
/// Finds ports that nobody listens on.
mod ports;
/// Runs one process of Ballista.
mod process;
/// Finds the programs that cargo has installed.
mod programs;
/// Checks whether all executors have joined.
mod readiness;

pub use cluster::{BallistaCluster, BallistaOptions};
pub use programs::{MissingProgram, Programs};
