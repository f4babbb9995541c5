//! The worker: keeps shards on its own disk and serves them over Flight.
//!
//! [`service`] receives and opens tickets. [`fragment`] decodes the fragment of a ticket, binds it
//! to segments and runs it, for a gateway or for one of the [`clients`]. [`scan`] reads the
//! segments. Rows that arrive go through [`mod@write`] into [`storage`]. [`segment`] owns the
//! format of the files. [`compaction`] merges them. [`membership`] joins a gateway and answers its
//! questions.

/// Runs work that waits for the disk.
mod background;
/// Serves clients that fetch their part of a result from the worker themselves (direct results),
/// instead of through a gateway.
pub mod clients;
/// Merges small segments into larger ones.
mod compaction;
/// Defines the settings of a worker.
pub mod config;
/// Holds the resources that all calls of a worker share.
pub mod context;
/// Decides which rows have expired.
mod expiry;
/// Makes segments of the rows in the log when it becomes full.
mod flusher;
/// Turns a ticket into rows: decodes, binds and runs a fragment.
pub mod fragment;
/// Decides who may send a worker large messages: the nodes of its cluster, and clients that a
/// gateway knows.
mod gate;
/// Tracks which history of writes the worker's rows belong to.
pub mod history;
/// Keeps frames of rows in files, each of which is durable with one sync.
mod log;
/// Answers fragments that ask for rows by key from decoded columns.
pub mod lookup;
/// Keeps the worker's place in its cluster: joins a gateway, and reports to the gateways that ask.
pub mod membership;
/// Keeps decoded columns within a memory budget.
pub mod memory_cache;
/// Shows the worker to monitoring systems.
pub mod observer;
/// Limits how much background work reads and writes in a second.
mod pace;
/// Scans segments.
pub mod scan;
/// Compares all segments with their checksums in the background, repeatedly and slowly.
mod scrub;
/// Owns the format of the file of a segment: how it is written and read.
pub mod segment;
/// Starts, serves and stops the worker.
pub mod server;
/// Implements the worker's Flight service, for gateways and for clients with a ticket for this
/// worker's part of a result.
pub mod service;
/// Keeps shards on disk: segments, and the store that names them.
pub mod storage;
/// Counts what the worker does, for its metrics.
pub mod totals;
/// Turns arriving rows into complete segments.
pub mod write;

pub use config::Config;
pub use server::Worker;
