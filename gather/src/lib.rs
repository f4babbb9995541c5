//! Pulls the rows of many workers, and merges partial results bucket by bucket.
//!
//! A gateway gathers rows for its clients. A worker that relays gathers rows from other workers for
//! a gateway. This crate contains what both of them do. Each of them says how it reaches the
//! workers ([`peers::Peers`]) and what it asks them for ([`request::GatherRequest`]).
//!
//! All streams ([`stream::WorkerStream`]) of a gather are opened at once, when the gather is first
//! polled. The task that polls the gather reads them inline: a stream has no queue, no hand-over
//! and no task of its own.

/// Holds the schema that was announced to a client whose rows come from workers unchanged.
pub mod announced_schema;
/// Keeps the connections to workers: one per worker and window, made at its first use and shared by
/// all queries.
pub mod connections;
/// Limits how many bytes of a gather's rows are in transit at a time.
pub mod flow;
/// Passes messages of workers on to a client, undecoded if nothing is left to do with their rows.
pub mod forwarded;
/// Remembers which workers know which fragments.
pub mod known_fragments;
/// Defines the deadlines and sizes of a gather.
pub mod limits;
/// Reads the rows of other workers, on a worker that relays.
pub mod members;
/// Merges the partial results of many workers, some rounds of hash buckets at a time.
pub mod merge;
/// Merges several streams, which it reads in turn.
pub(crate) mod merged_streams;
/// Decodes the rows in a message of another node.
pub mod message_rows;
/// Defines how a node reaches the workers of its cluster.
pub mod peers;
/// Records what a gather learned about its workers: rows, bytes, time.
pub mod report;
/// Defines what the streams of one gather ask their workers for.
pub mod request;
/// Reads the rows of one worker: opening, retrying, deadlines, decoding.
pub mod stream;
/// Defines which worker is asked, and for what.
pub mod target;
/// Counts over all gathers of a node, for its metrics.
pub mod totals;

pub use connections::{Window, WorkerConnections, worker_error};
pub use known_fragments::{FragmentHolders, KnownFragments};
pub use limits::GatherLimits;
pub use merged_streams::MergedStreams;
pub use peers::Peers;
pub use request::GatherRequest;
pub use stream::WorkerStream;
pub use target::WorkerTarget;
pub use totals::GatherTotals;
