//! Benchmarks. Each [table](tables) is an experiment whose variants are measured in turns, in one
//! run, on one machine.
//!
//! Machines are noisy. The figures to quote are therefore ratios between variants of the same run,
//! with their spread. If the processor time or the memory of something is of interest, it runs in a
//! process of its own: a gateway in a [`fleet`], stubs that stand in for workers ([`stub`]), and a
//! process that only reads ([`reading`]). The figures of a process come from Linux ([`procfs`]). No
//! other system is supported.

/// Counts the bytes that a process has allocated.
pub mod allocations;
/// Starts a cluster of Ballista, if its programs are installed.
pub mod ballista;
/// Defines what the tables of one run share: their size and their directories.
pub mod bench;
/// Runs clients that ask one question after another, each on its own connection.
pub mod clients;
/// Counts how often a disk flushes its cache.
pub mod disk_flushes;
/// Asks for rows by key, in one DoExchange each, as the client `volary` does.
pub mod exchange;
/// Starts thousands of real workers on one machine.
pub mod fleet;
/// Compares two values of a run with a limit for their ratio.
pub mod goals;
/// Measures variants in turns.
pub mod interleaved;
/// Starts a cluster in a process of its own.
pub mod local_process;
/// Starts and ends a process of another project.
mod logged_process;
/// Asks for the rows of many keys, in several ways.
pub mod looking_up;
/// Describes the machine and the software versions of a run.
pub mod machine;
/// Reads the metrics of a process.
pub mod metrics;
/// Finds ports that nobody listens on.
mod ports;
/// Starts PostgreSQL, if it is installed.
pub mod postgres;
/// Controls a process that reads commands from its standard input and answers on its standard
/// output.
pub mod process;
/// Reads the processor time, the context switches and the memory of a process from Linux's `/proc`
/// (proc(5)).
pub mod procfs;
/// Reads the rows of many workers in several ways: with the gateway's own gather, and with
/// alternatives to it.
pub mod reading;
/// Formats results for people, as tables in Markdown.
pub mod report;
/// Defines the results that are stored.
pub mod results;
/// Builds rows of a chosen width.
pub mod rows;
/// Computes medians, spread, ratios and percentiles.
pub mod statistics;
/// Runs stubs that stand in for workers and send messages that were encoded beforehand.
pub mod stub;
/// Defines the experiments: each is a table of variants that are measured side by side.
pub mod tables;
/// Writes rows in several ways, each batch durably and as a statement of its own.
pub mod writing;
