//! The `volary` binary's commands, as a library: tests and benches start a whole cluster with [`local`], in one line.
//!
//! [`args`] reads the command line, [`settings`] adds file and environment, [`run`] picks the command. [`gateway`],
//! [`worker`] and [`local`] are processes that serve; [`sql`] and [`status`] are clients of one; [`demo`] is both.

/// The command line.
pub mod args;
/// `volary certificates`: an authority of a cluster's own, and what it signs.
pub mod certificates;
/// A connection of the command line to a gateway.
pub mod client;
/// `volary demo`: TPC-H on a local cluster.
pub mod demo;
/// `volary gateway`.
pub mod gateway;
/// `volary local`: a gateway and its workers in one process.
pub mod local;
/// Logs to standard error.
pub mod logging;
/// Where a client connects to, and as whom.
pub mod login;
/// From the command line to a command, and from its error to an exit code.
pub mod run;
/// Settings from file, environment and flags.
pub mod settings;
/// The end of a process that serves: signals, and a deadline for what is to be done after one.
pub mod signals;
/// `volary sql`: statements from argument, file, standard input or the keyboard.
pub mod sql;
/// `volary status`: nodes, tables and shards.
pub mod status;
/// Rows as a table that fits the terminal.
pub mod table;
/// Standard output, and numbers as people read them.
pub mod terminal;
/// TPC-H data.
pub mod tpch;
/// `volary worker`.
pub mod worker;

pub use local::{LocalCluster, LocalOptions};
