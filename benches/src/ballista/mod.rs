//! The programs of [Ballista](https://datafusion.apache.org/ballista/) are not a dependency: `make
//! ballista` installs them, and each runs in a process of its own.
//!
//! Ballista's scheduler answers Flight SQL, so the same client can query it and Volary.

/// Starts and ends the processes of a cluster.
mod cluster;
/// Finds Ballista's programs, which cargo installs and this workspace does not build.
mod programs;
/// Checks whether all executors have joined.
mod readiness;

pub use cluster::{BallistaCluster, BallistaOptions};
pub use programs::{MissingProgram, Programs};
