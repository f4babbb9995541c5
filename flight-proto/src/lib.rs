//! All that crosses the network between Volary's nodes and its clients, and nothing else.
//!
//! Nodes talk Arrow Flight only. A gateway sends a worker a sealed [`ticket`] for a [`fragment`] (DoGet), rows to keep
//! (DoPut, [`write`]) or a small command (DoAction, [`control`]), of which one asks for its report; a worker sends its gateway
//! [`membership`] messages. What a worker streams back carries [`frame`] metadata beside the rows. Every message has a version by way of its
//! [`seal`] envelope, changes additively, and has a golden-bytes test.
//!
//! [`error`] is the one list of error codes, and the one map to and from gRPC.

/// What compressed rows say of their size.
pub mod compressed;
/// Small commands from a gateway to a worker (DoAction): report, drop a table, list segments.
pub mod control;
/// Results that clients fetch from the workers themselves.
pub mod direct;
/// The error codes, and their maps to gRPC and from DataFusion.
pub mod error;
/// The part of a plan that a worker runs, its handle, its parameters, and the leaf that names the shards.
pub mod fragment;
/// Metadata beside the rows of a worker's stream: keep-alive, end of stream with its statistics, a question for the fragment.
pub mod frame;
/// Identifiers as types of their own.
pub mod ids;
/// Schemas and rows as bytes.
pub mod ipc;
/// Which history of writes a gateway's catalog belongs to.
pub mod lineage;
/// How a worker joins a gateway, and says that it leaves.
pub mod membership;
/// Envelopes with a version, a purpose, an expiry and a MAC.
pub mod seal;
/// Flight SQL's session messages, which arrow-flight does not define.
pub mod session;
/// Which writes a query sees.
pub mod snapshot;
/// Which rows a shard holds, as one number.
pub mod tally;
/// What a client's DoGet redeems at a gateway, and a gateway's DoGet at a worker.
pub mod ticket;
/// Rows on their way to a worker's shards (DoPut).
pub mod write;

pub use error::{Error, ErrorCode, Result};
