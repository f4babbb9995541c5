use bytes::Bytes;

use crate::ticket::{FragmentTicket, QueryTicket};

/// DoAction type of an [`Introduction`] to a gateway.
pub const INTRODUCE_ACTION: &str = "volary.introduce";

/// The ticket that a client redeems for the rows of one worker. The client redeems it at that
/// worker, or at any gateway, which then asks the worker. The ticket is sealed with a key that only
/// gateways have. A worker therefore shows it to a gateway, which answers with the content.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DirectTicket {
    /// The query that the rows are a part of. A gateway uses it to plan the query again.
    #[prost(message, optional, tag = "1")]
    pub query: Option<QueryTicket>,
    /// What the worker runs, including the fragment itself.
    #[prost(message, optional, tag = "2")]
    pub part: Option<FragmentTicket>,
    /// The columns that were announced to the client, as an Arrow IPC message. The fragment's rows
    /// are converted to these columns.
    #[prost(bytes = "bytes", tag = "3")]
    pub announced: Bytes,
    /// How long the worker may take, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub timeout_ms: u64,
}

/// A worker's question to a gateway: who a client is, and whether the client may redeem a ticket.
/// Workers do not know users, so a worker passes on the client's credentials and ticket.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Introduction {
    /// The `authorization` header of the client's call. `None` if the call has none.
    #[prost(string, optional, tag = "1")]
    pub authorization: Option<String>,
    /// Address that the client calls from, as `ip:port`.
    #[prost(string, tag = "2")]
    pub peer: String,
    /// The sealed [`DirectTicket`] that the client wants to redeem. Empty if the client only logs
    /// in.
    #[prost(bytes = "bytes", tag = "3")]
    pub ticket: Bytes,
}

/// A gateway's answer to an [`Introduction`]. It means that the client is authenticated and may
/// redeem the ticket, if one was shown. Otherwise the gateway answers with an error for the client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Introduced {
    /// The `authorization` header that the client uses from now on, if it has logged in with a
    /// password.
    #[prost(string, optional, tag = "1")]
    pub authorization: Option<String>,
    /// Name of the user.
    #[prost(string, tag = "2")]
    pub user: String,
    /// Content of the ticket that was shown. `None` if no ticket was shown.
    #[prost(message, optional, tag = "3")]
    pub ticket: Option<DirectTicket>,
}
