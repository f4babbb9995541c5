use bytes::Bytes;

use crate::ticket::{FragmentTicket, QueryTicket};

/// DoAction type of [`Introduction`], at a gateway.
pub const INTRODUCE_ACTION: &str = "volary.introduce";

/// What a client redeems for the rows of one worker: at that worker, or at any gateway, which asks the worker. It is sealed with a key that
/// gateways alone have. A worker shows it to a gateway, which answers what it says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DirectTicket {
    /// The query that the rows are a part of, as a gateway plans it again.
    #[prost(message, optional, tag = "1")]
    pub query: Option<QueryTicket>,
    /// What the worker runs; with its fragment.
    #[prost(message, optional, tag = "2")]
    pub part: Option<FragmentTicket>,
    /// The columns that were announced to the client, as an Arrow IPC message: what the fragment's rows are converted to.
    #[prost(bytes = "bytes", tag = "3")]
    pub announced: Bytes,
    /// How long the worker may take, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub timeout_ms: u64,
}

/// A worker asks a gateway who a client is, and whether the client may redeem a ticket. Workers know no users: what a client shows them,
/// they show a gateway.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Introduction {
    /// The `authorization` header of the client's call; none if it has none.
    #[prost(string, optional, tag = "1")]
    pub authorization: Option<String>,
    /// Where the client calls from: `ip:port`.
    #[prost(string, tag = "2")]
    pub peer: String,
    /// The sealed [`DirectTicket`] that the client wants to redeem; empty if it only logs in.
    #[prost(bytes = "bytes", tag = "3")]
    pub ticket: Bytes,
}

/// The gateway's answer to one that it knows and that may; otherwise it answers with an error, which is the client's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Introduced {
    /// The `authorization` header with which a client that has logged in by a password goes on.
    #[prost(string, optional, tag = "1")]
    pub authorization: Option<String>,
    /// The user's name.
    #[prost(string, tag = "2")]
    pub user: String,
    /// What the shown ticket says; none if none was shown.
    #[prost(message, optional, tag = "3")]
    pub ticket: Option<DirectTicket>,
}
