//! The code that the fuzz targets share. A target takes bytes as they may come from the network. It
//! gives them to a node's Flight service, as a listener would, or to a function of `flight-proto`.
//!
//! Our own code must never panic, no allocation may exceed a limit, and a node must continue to
//! serve after a dependency panics ([`guard`]). `README.md` says how to run the targets.

/// Calls a node's service in the way that its listener does.
pub mod call;
/// Creates the directories in which nodes keep files.
pub mod directory;
/// Runs a gateway in this process.
pub mod gateway;
/// Detects panics, large allocations and long computations, which no input may cause.
pub mod guard;
/// Runs work on a stack as large as those of a node's threads.
mod large_stack;
/// Makes the files of a worker's log.
pub mod log_file;
/// Seals messages with any content.
pub mod seal;
/// Makes the inputs that fuzzing starts from.
pub mod seeds;
/// Keeps a catalog's store in memory.
mod store;
/// Stands in for the workers of a gateway.
pub mod stub_worker;
/// Mutates protobuf messages field by field.
pub mod wire;
/// Runs a worker in this process.
pub mod worker;
