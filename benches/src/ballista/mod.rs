//! A cluster of [Ballista](https://datafusion.apache.org/ballista/) on this machine: its own programs, which are no dependency and which
//! `make ballista` installs, each in a process of its own.
//!
//! Its scheduler answers Flight SQL, so that it is asked with the same client as Volary.

/// Its processes together, from their start to their end.
mod cluster;
/// Ports that nobody listens on.
mod ports;
/// One of its processes.
mod process;
/// What cargo has installed, or has not.
mod programs;
/// Whether all executors have joined.
mod readiness;

pub use cluster::{Cluster, Layout};
pub use programs::{Missing, Programs};
