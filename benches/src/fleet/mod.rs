//! A fleet has one gateway and a few [`host`] processes. The gateway has a process of its own, so
//! that its processor time and memory can be told from those of the workers. Each host process runs
//! many real workers, each with its own listener and data directory.

/// Runs many workers in one process.
pub mod host;
/// Starts and ends the processes of a fleet.
pub mod processes;

pub use processes::{ALLOCATED, Fleet, FleetOptions};
