//! Pulls the rows of many workers, and merges partial results bucket by bucket.
//!
//! A gateway gathers for its clients, and a worker that relays gathers from other workers for a gateway. What both do is here; how they
//! know the workers is theirs ([`peers::Peers`]), and so is what they ask for ([`request::Request`]).
//!
//! All streams ([`stream::WorkerStream`]) of a gather are opened at once when it is first polled, and read inline by the task that polls
//! it: no queue, no hand-over and no task per stream.

/// What a client was announced to whom rows of workers are passed on as they come.
pub mod announced;
/// Connections to workers: one per worker and window.
pub mod connections;
/// How much of a gather's rows is on its way at a time.
pub mod flow;
/// Streams read in turns.
pub mod in_turns;
/// Which workers know which fragments.
pub mod known_fragments;
/// Deadlines and sizes.
pub mod limits;
/// The rows of other workers, on one that relays.
pub mod members;
/// The partial results of many workers, merged piece by piece.
pub mod merge;
/// The rows in a message of another node.
pub mod message_rows;
/// Messages of workers that are a client's, too.
pub mod passed_on;
/// How a node reaches the workers of its cluster.
pub mod peers;
/// What a gather learned of its workers: rows, bytes, time.
pub mod report;
/// What the streams of one gather ask their workers for.
pub mod request;
/// The rows of one worker: opening, retrying, deadlines, decoding.
pub mod stream;
/// Who is asked, and for what.
pub mod target;

pub use connections::{Connections, Window, worker_error};
pub use in_turns::InTurns;
pub use known_fragments::{KnownBy, KnownFragments};
pub use limits::Limits;
pub use peers::Peers;
pub use request::Request;
pub use stream::WorkerStream;
pub use target::Target;
