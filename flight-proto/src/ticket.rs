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

/// What a gateway redeems at a worker: a fragment, the values of its parameters, the shards it runs on, and the snapshot it sees.
///
/// The fragment travels along only where the worker may not know it. A worker that does not know the one that is named
/// [asks for it](crate::frame::SendFragment).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FragmentTicket {
    /// The query, for logs and errors: the 16 bytes of its id.
    #[prost(bytes = "bytes", tag = "1")]
    pub query_id: Bytes,
    /// The cluster, [in short](ClusterId::short).
    #[prost(fixed64, tag = "2")]
    pub cluster: u64,
    /// The worker that the ticket is for.
    #[prost(uint64, tag = "3")]
    pub worker_id: u64,
    /// The [`FragmentId`]'s bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub fragment_id: Bytes,
    /// The encoded [`Fragment`](crate::fragment::Fragment).
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub fragment: Option<Bytes>,
    /// The encoded [`Parameters`](crate::fragment::Parameters); empty if the fragment has none.
    #[prost(bytes = "bytes", tag = "6")]
    pub parameters: Bytes,
    /// For each scan of the plan, by its ordinal, the shards to read.
    #[prost(message, repeated, tag = "7")]
    pub scans: Vec<ScanShards>,
    /// Which writes are seen.
    #[prost(message, optional, tag = "8")]
    pub snapshot: Option<Snapshot>,
    /// Bytes of a batch that the worker aims at when it sends. No part of the fragment: it may depend on what else runs.
    #[prost(uint64, tag = "9")]
    pub batch_bytes: u64,
    /// Of rows by bucket: so many bytes in all come in a single round.
    #[prost(uint64, tag = "10")]
    pub small_bytes: u64,
    /// The workers whose rows this one merges, if the fragment [relays](crate::fragment::Relayed); it may be one of them.
    #[prost(message, repeated, tag = "11")]
    pub members: Vec<Member>,
    /// The schema that a client was announced, as Arrow IPC: the rows come as the client is sent them, in its types. Empty: in the fragment's own.
    #[prost(bytes = "bytes", tag = "12")]
    pub announced: Bytes,
    /// Which history of writes the gateway's catalog belongs to.
    #[prost(message, optional, tag = "13")]
    pub lineage: Option<Lineage>,
    /// The writes whose rows the scans' tallies count, where they are others than those of the snapshot.
    #[prost(message, optional, tag = "14")]
    pub counted: Option<Snapshot>,
    /// Whose query it is, as a number that tells users apart: the lower half of the [`fingerprint`] of the user's
    /// name. Workers share their places among users; two users with one number share theirs.
    #[prost(fixed32, tag = "15")]
    pub owner: u32,
}

/// A worker whose rows another one asks for, on behalf of a gateway.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Member {
    /// The worker.
    #[prost(uint64, tag = "1")]
    pub worker_id: u64,
    /// Where it listens, `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// For each scan of the relayed fragment's plan, by its ordinal, the shards to read.
    #[prost(message, repeated, tag = "3")]
    pub scans: Vec<ScanShards>,
}

impl FragmentTicket {
    /// The query.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is no id.
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

    /// The fragment.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is no id.
    pub fn fragment_id(&self) -> Result<FragmentId> {
        FragmentId::try_from(&self.fragment_id[..])
    }
}

/// What a client redeems at a gateway: a query that was planned. Valid on every gateway of the cluster: one that does not
/// know the plan makes it again from the statement and the snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QueryTicket {
    /// The query.
    #[prost(string, tag = "1")]
    pub query_id: String,
    /// The statement.
    #[prost(string, tag = "2")]
    pub sql: String,
    /// Parameters: one row, as an Arrow IPC stream; empty if there are none.
    #[prost(bytes = "bytes", tag = "3")]
    pub parameters: Bytes,
    /// Which writes are seen: the same rows each time the ticket is redeemed.
    #[prost(message, optional, tag = "4")]
    pub snapshot: Option<Snapshot>,
    /// The session's settings that are not the default.
    #[prost(map = "string, string", tag = "5")]
    pub settings: std::collections::HashMap<String, String>,
    /// The rows themselves, as an Arrow IPC stream, where the statement was run when its FlightInfo was asked for (DDL,
    /// DML, EXPLAIN ANALYZE); nothing is run when the ticket is redeemed.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub result: Option<Bytes>,
    /// A metadata command of Flight SQL (catalogs, tables …) as its `Any` message, instead of a statement.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub command: Option<Bytes>,
    /// The tables and views that the query read when it was planned, by name: a table's id, the [`fingerprint`] of a view's text. A
    /// snapshot says which writes are seen, not of which tables.
    #[prost(btree_map = "string, uint64", tag = "8")]
    pub reads: BTreeMap<String, u64>,
    /// The [`fingerprint`] of the columns that were announced.
    #[prost(fixed64, optional, tag = "9")]
    pub columns: Option<u64>,
    /// The user who may redeem it; empty where there are no users.
    #[prost(string, tag = "10")]
    pub user: String,
}

/// A number that tells texts apart, the same on every gateway: the first eight bytes of the text's BLAKE3 hash, little-endian.
pub fn fingerprint(text: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// A prepared statement: stateless, so that it is valid on every gateway and nothing leaks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreparedStatementHandle {
    /// The statement, with `?` or `$n` for its parameters.
    #[prost(string, tag = "1")]
    pub sql: String,
    /// The parameters that were bound: zero or more rows, as an Arrow IPC stream; none if nothing was bound.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub parameters: Option<Bytes>,
    /// The user who may run it; empty where there are no users.
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
