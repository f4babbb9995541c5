//! The code that the tests of the public protocol share.

/// Starts clusters in this process.
pub mod cluster;
/// Gets the answers of DataFusion alone, and compares results with them.
pub mod reference;
