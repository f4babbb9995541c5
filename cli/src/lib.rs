//! The commands of the `volary` binary, as a library. Tests and benches use [`local`] to start a
//! whole cluster in one line.
//!
//! [`args`] reads the command line, [`settings`] adds the file and the environment, and [`run`]
//! chooses the command. [`gateway`], [`worker`] and [`local`] run processes that serve. [`sql`] and
//! [`status`] are clients of such a process. [`demo`] is both.

/// Defines the command line: commands, arguments and flags.
pub mod args;
/// Runs `volary certificates`: creates an authority for a cluster, and signs certificates for its
/// nodes and clients.
pub mod certificates;
/// Connects the command line to a gateway.
pub mod client;
/// Runs `volary completions`: prints completions for a shell.
pub mod completions;
/// Runs `volary demo`: loads TPC-H data into a local cluster, and runs a few queries that show how
/// it works.
pub mod demo;
/// Runs `volary doctor`: checks the settings, files and machine of a node before it starts.
pub mod doctor;
/// Runs `volary gateway`.
pub mod gateway;
/// Runs `volary local`: a gateway and its workers in one process.
pub mod local;
/// Writes logs to standard error, for people or for machines.
pub mod logging;
/// Finds out which gateway a client connects to, and with which credentials.
pub mod login;
/// Runs `volary man`: writes the pages of the manual.
pub mod manual;
/// Opens the listener for monitoring systems.
mod operations;
/// Runs the command that the command line names, and turns its error into an exit code.
pub mod run;
/// Reads settings from the file, the environment and the flags.
pub mod settings;
/// Ends a process that serves: waits for signals, and limits the time of the shutdown.
pub mod signals;
/// Runs `volary sql`: statements from an argument, a file, standard input or the keyboard.
pub mod sql;
/// Runs `volary status`: shows nodes, tables and shards.
pub mod status;
/// Formats rows as a table that fits the terminal.
pub mod table;
/// Prints to standard output, and formats numbers for people.
pub mod terminal;
/// Generates TPC-H data, as Arrow batches or as one Parquet file per table.
pub mod tpch;
/// Exports traces to a collector.
pub mod traces;
/// Runs `volary worker`.
pub mod worker;

pub use local::{LocalCluster, LocalOptions};
