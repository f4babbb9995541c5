use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

use crate::error::{Error, ErrorCode, Result};
use crate::fragment::{FragmentId, ScanShards};
#[cfg(doc)]
use crate::ids::ClusterId;
use crate::ids::QueryId;
use crate::lineage::Lineage;
use crate::snapshot::Snapshot;

/// The ticket that a gateway redeems at a worker: a fragment, the values of its parameters, the
/// shards that it runs on, and the snapshot that it sees.
///
/// The ticket contains the fragment itself only if the worker may not know it. A worker that does
/// not know the fragment [asks for it](crate::frame::SendFragment).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FragmentTicket {
    /// The 16 bytes of the query's id, for logs and errors.
    #[prost(bytes = "bytes", tag = "1")]
    pub query_id: Bytes,
    /// Id of the cluster, in its [short form](ClusterId::short).
    #[prost(fixed64, tag = "2")]
    pub cluster: u64,
    /// Id of the worker that the ticket is for.
    #[prost(uint64, tag = "3")]
    pub worker_id: u64,
    /// The bytes of the [`FragmentId`].
    #[prost(bytes = "bytes", tag = "4")]
    pub fragment_id: Bytes,
    /// The encoded [`Fragment`](crate::fragment::Fragment). `None` if only its id is sent.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub fragment: Option<Bytes>,
    /// The encoded [`Parameters`](crate::fragment::Parameters). Empty if the fragment has none.
    #[prost(bytes = "bytes", tag = "6")]
    pub parameters: Bytes,
    /// The shards to read for each scan of the plan, by the scan's ordinal.
    #[prost(message, repeated, tag = "7")]
    pub scans: Vec<ScanShards>,
    /// The writes that the query sees.
    #[prost(message, optional, tag = "8")]
    pub snapshot: Option<Snapshot>,
    /// Target size of a batch that the worker sends, in bytes. It is not part of the fragment,
    /// because it may depend on what else runs.
    #[prost(uint64, tag = "9")]
    pub batch_bytes: u64,
    /// Maximum total size, in bytes, of rows by bucket that the worker may send in a single round.
    #[prost(uint64, tag = "10")]
    pub single_round_bytes: u64,
    /// The workers whose rows this worker merges, if the fragment
    /// [relays](crate::fragment::Relayed). The worker may itself be one of them.
    #[prost(message, repeated, tag = "11")]
    pub members: Vec<Member>,
    /// The schema that was announced to a client, as Arrow IPC. The worker sends the rows in this
    /// schema, exactly as the client gets them. If it is empty, the rows come in the fragment's own
    /// types.
    #[prost(bytes = "bytes", tag = "12")]
    pub announced: Bytes,
    /// The history of writes that the gateway's catalog belongs to.
    #[prost(message, optional, tag = "13")]
    pub lineage: Option<Lineage>,
    /// The writes whose rows the scans' tallies count. `None` if they are the writes of the
    /// snapshot.
    #[prost(message, optional, tag = "14")]
    pub counted: Option<Snapshot>,
    /// A number that tells users apart: the lower half of the [`fingerprint`] of the name of the
    /// user whose query it is. A worker divides its places to run among users. Two users with the
    /// same number share one part.
    #[prost(fixed32, tag = "15")]
    pub owner: u32,
    /// The span that the fragment belongs to, in the short form of
    /// [`TraceParent`](crate::trace::TraceParent). Empty if the query is not traced.
    #[prost(bytes = "bytes", tag = "16")]
    pub trace: Bytes,
    /// The time at which the statement began, in microseconds since 1970. Rows that had
    /// [expired](crate::fragment::Expiry) by then are left out.
    #[prost(sint64, tag = "17")]
    pub as_of_us: i64,
}

/// A worker that another worker asks for rows, on behalf of a gateway.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Member {
    /// Id of the worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// Address at which the worker listens, as `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The shards to read for each scan of the relayed fragment's plan, by the scan's ordinal.
    #[prost(message, repeated, tag = "3")]
    pub scans: Vec<ScanShards>,
}

impl FragmentTicket {
    /// Returns the id of the query.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the bytes are not an id.
    pub fn query_id(&self) -> Result<QueryId> {
        let id = Uuid::from_slice(&self.query_id).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                "the query id of a fragment ticket cannot be read; run the same release on all nodes",
                source,
            )
        })?;
        Ok(QueryId(id))
    }

    /// Returns the id of the fragment.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the bytes are not an id.
    pub fn fragment_id(&self) -> Result<FragmentId> {
        FragmentId::try_from(&self.fragment_id[..])
    }
}

/// The ticket that a client redeems at a gateway: a query that was planned. It is valid on every
/// gateway of the cluster. A gateway without the plan plans the query again from the statement and
/// the snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QueryTicket {
    /// Id of the query.
    #[prost(string, tag = "1")]
    pub query_id: String,
    /// Text of the statement.
    #[prost(string, tag = "2")]
    pub sql: String,
    /// The parameters: one row, as an Arrow IPC stream. Empty if the statement has none.
    #[prost(bytes = "bytes", tag = "3")]
    pub parameters: Bytes,
    /// The writes that the query sees. The rows are the same each time the ticket is redeemed.
    #[prost(message, optional, tag = "4")]
    pub snapshot: Option<Snapshot>,
    /// The session's settings that are not the default.
    #[prost(map = "string, string", tag = "5")]
    pub settings: std::collections::HashMap<String, String>,
    /// The rows themselves, as an Arrow IPC stream, if the statement was run when its FlightInfo
    /// was asked for (DDL, DML, EXPLAIN ANALYZE). Then nothing is run when the ticket is redeemed.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub result: Option<Bytes>,
    /// A metadata command of Flight SQL (catalogs, tables …) as its `Any` message, instead of a
    /// statement.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub command: Option<Bytes>,
    /// The tables and views of the schema `public` that the query read when it was planned, by
    /// name. The value is the id of a table, or the [`fingerprint`] of a view's text and owner. The
    /// snapshot is not enough: it says which writes are seen, but not of which tables.
    #[prost(btree_map = "string, uint64", tag = "8")]
    pub reads: BTreeMap<String, u64>,
    /// The [`fingerprint`] of the columns that were announced.
    #[prost(fixed64, optional, tag = "9")]
    pub columns: Option<u64>,
    /// Name of the user who may redeem the ticket. Empty if there are no users.
    #[prost(string, tag = "10")]
    pub user: String,
    /// The tables and views in other schemas that the query read when it was planned.
    #[prost(message, repeated, tag = "11")]
    pub reads_in_schemas: Vec<RelationRead>,
    /// Id of the session whose temporary tables the query reads. `None` if it reads none.
    #[prost(string, optional, tag = "12")]
    pub session: Option<String>,
    /// The span in which the query was planned, in the short form of
    /// [`TraceParent`](crate::trace::TraceParent). Empty if the query is not traced.
    #[prost(bytes = "bytes", tag = "13")]
    pub trace: Bytes,
}

/// A table or a view in another schema than `public` that a query read when it was planned.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RelationRead {
    /// Name of the schema.
    #[prost(string, tag = "1")]
    pub schema: String,
    /// Name of the table or view within the schema.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The id of a table, or the [`fingerprint`] of a view's text and owner.
    #[prost(uint64, tag = "3")]
    pub version: u64,
}

/// Returns a number that tells texts apart and that is the same on every gateway: the first eight
/// bytes of the text's BLAKE3 hash, little-endian.
pub fn fingerprint(text: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The handle of a prepared statement. No gateway keeps any state for it, so it is valid on every
/// gateway, and a handle that is never closed leaks nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedStatementHandle {
    /// Text of the statement, with `?` or `$n` for its parameters.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// The parameters that were bound: zero or more rows, as an Arrow IPC stream. `None` if nothing
    /// was bound.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub parameters: Option<Bytes>,
    /// Name of the user who may run the statement. Empty if there are no users.
    #[prost(string, tag = "3")]
    pub user: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_the_same_on_every_gateway() {
        assert_eq!(fingerprint(""), 0xa6a1_f9f5_b949_13af);
        assert_ne!(fingerprint("SELECT 1"), fingerprint("SELECT 2"));
    }

    #[test]
    fn the_ids_of_a_fragment_ticket_are_read_and_nonsense_is_refused() {
        let query = QueryId::new();
        let fragment = FragmentId::of(b"a fragment");
        let ticket = FragmentTicket {
            query_id: Bytes::copy_from_slice(query.0.as_bytes()),
            fragment_id: fragment.to_bytes(),
            ..FragmentTicket::default()
        };
        assert_eq!(ticket.query_id().unwrap(), query);
        assert_eq!(ticket.fragment_id().unwrap(), fragment);
        let nonsense = FragmentTicket {
            query_id: vec![1; 15].into(),
            ..FragmentTicket::default()
        };
        for error in [
            nonsense.query_id().unwrap_err(),
            nonsense.fragment_id().unwrap_err(),
        ] {
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        }
    }
}
