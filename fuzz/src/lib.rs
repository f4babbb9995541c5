//! What the fuzz targets share. A target takes bytes as they may come from the network, and hands them to what reads them:
//! to a node's Flight service, as its listener would, or to a function of `flight-proto`.
//!
//! What must hold: our own code never panics, no allocation is absurd, and a node whose dependencies panic goes on serving
//! ([`guard`]). `README.md` says how targets are run.

/// Calls as they arrive at a node's listener.
pub mod call;
/// Where nodes keep files.
mod directory;
/// A gateway in this process.
pub mod gateway;
/// What no input may cause.
pub mod guard;
/// Sealed messages with any content.
pub mod seal;
/// The inputs that fuzzing starts from.
pub mod seeds;
/// A catalog's store in memory.
mod store;
/// What stands in for workers.
pub mod stub_worker;
/// Mutation of protobuf messages.
pub mod wire;
/// A worker in this process.
pub mod worker;
