//! The code that the tests of the public protocol share.

/// Starts clusters in this process.
pub mod cluster;
/// Gets the answers of DataFusion alone, and compares results with them.
pub mod reference;

/// Nodes run with jemalloc, also those of tests.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
