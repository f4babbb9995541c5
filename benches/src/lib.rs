//! Benchmarks of whole statements: a cluster beside one DataFusion process, on the same rows in the same run.
//!
//! Machines are noisy: the two sides run in turns, and what is quoted is the ratio, with its spread.

/// Thousands of real workers on one machine.
pub mod fleet;
/// Turns, medians and spread.
pub mod interleaved;
/// Loading beside plain Parquet writing.
pub mod load;
/// Results as a table and as JSON.
pub mod report;
/// The 22 queries of TPC-H.
pub mod tpch;
