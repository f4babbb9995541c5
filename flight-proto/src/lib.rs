//! Defines everything that crosses the network among Volary's nodes and clients, and nothing else.
//!
//! Nodes talk only Arrow Flight. A gateway sends a worker three kinds of messages: a sealed
//! [`ticket`] for a [`fragment`] (DoGet), rows to store (DoPut, [`write`]), and small commands
//! (DoAction, [`control`]). One of the commands asks the worker for its report. A worker sends its
//! gateway [`membership`] messages. The stream that a worker sends back carries [`frame`] metadata
//! beside the rows. The [`seal`] envelope of a message carries its version. Messages change only by
//! gaining fields, and each message has a golden-bytes test.
//!
//! [`error`] holds the only list of error codes, and the only mapping to and from gRPC.
//! [`sqlstate`] says more precisely what went wrong, in the codes that other databases use.

/// Reads the uncompressed size that a compressed message states.
pub mod compressed;
/// Defines the small commands from a gateway to a worker (DoAction): report, drop a table, abort a
/// write, list segments.
pub mod control;
/// Defines the messages for results that clients fetch from the workers themselves.
pub mod direct;
/// Defines the errors that cross the network, and maps them to and from gRPC.
pub mod error;
/// Defines the part of a plan that a worker runs: its handle, its parameters and its leaves.
pub mod fragment;
/// Defines the metadata beside the rows of a worker's stream: keep-alive, end of stream with its
/// statistics, request for the fragment, and buckets of the rows.
pub mod frame;
/// Defines a type for each kind of identifier.
pub mod ids;
/// Encodes schemas and rows as bytes inside other messages, and decodes them.
pub mod ipc;
/// Describes the history of writes that a gateway's catalog belongs to.
pub mod lineage;
/// Defines the message with which a client asks for the rows of keys (DoExchange).
pub mod lookup;
/// Defines the messages with which a worker joins and leaves a gateway.
pub mod membership;
/// Seals messages in envelopes with a version, a purpose, an expiry and a MAC.
pub mod seal;
/// Defines Flight's session messages, which arrow-flight does not define.
pub mod session;
/// Defines which writes a query sees.
pub mod snapshot;
/// Defines the SQLSTATE codes of errors: what went wrong, in the codes that other databases use.
pub mod sqlstate;
/// Defines the times of a fragment's stages, in the frame at the end of its stream.
pub mod stage_times;
/// Computes the tally of a shard: a checksum over the rows that it holds.
pub mod tally;
/// Defines the tickets that a client redeems at a gateway, and that a gateway redeems at a worker
/// (DoGet).
pub mod ticket;
/// Names the span of a distributed trace that a call continues.
pub mod trace;
/// Defines the messages for rows on their way to a worker's shards (DoPut).
pub mod write;
/// Represents sets of writes.
pub mod write_set;

pub use error::{Error, ErrorCode, Result};
pub use sqlstate::SqlState;
