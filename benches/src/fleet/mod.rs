//! Thousands of real workers on one machine.
//!
//! A fleet is a gateway in a process of its own, so that its processor time and memory can be told from those of the workers, and
//! a few [`host`] processes with many workers each: real ones, each with its listener and its data directory.

/// Many workers in one process.
pub mod host;
/// The processes of a fleet, from their start to their end.
pub mod processes;

pub use processes::{Fleet, FleetOptions};
