//! The Flight SQL surface: what JDBC, ODBC, ADBC, pyarrow and the `volary` command meet.
//!
//! [`FlightSql`] implements the raw Flight service with the messages of Flight SQL, because what real drivers need differs
//! from what the protocol's documents say. The rules that decide whether they work, each at the place that keeps it:
//!
//! 1. One endpoint without a location, unless a client asks for others: `statement`, `direct`.
//! 2. Types that all clients read: `types`.
//! 3. A DoGet's schema is exactly that of the FlightInfo: `types`, `stream`.
//! 4. DDL and DML that come as a query run once, in GetFlightInfo: `statement`.
//! 5. A prepared statement without rows has a schema without fields: `prepared`.
//! 6. `?` is a parameter: the engine's part; rows are bound by position: `upload`.
//! 7. The handshake takes base64 without padding: `base64`.
//! 8. GetSqlInfo answers every standard id, and no other: `sql_info`.
//! 9. Every column of GetTables has metadata: `types`.
//! 10. No compression and no dictionaries: `stream`, `types`.
//!
//! The clients of this project's own send a statement, with its parameters, in one call: `exchange`.
//!
//! A statement goes `service` → `descriptor` → `statement` (or `prepared`, `update`) → the engine; its rows go from the engine
//! through `stream` and `running` to the client.

/// DoAction.
mod actions;
/// Credentials.
mod auth;
/// The headers of a call.
mod call;
/// Cancellation by a call.
mod cancel;
/// Options that a client sets.
mod client_option;
/// The session's cookie.
mod cookie;
/// What is asked for.
mod descriptor;
/// Rows that clients fetch from the workers.
mod direct;
/// Whether they do.
mod direct_option;
/// DoExchange: a statement in one call.
mod exchange;
/// Who is let in.
mod gate;
/// From credentials to a session.
mod handshake;
/// Bulk ingestion.
mod ingest;
/// The key listings.
mod keys;
/// ListFlights.
mod list;
/// What workers say: that they join and leave, and who wants something of them.
mod membership;
/// Catalogs, schemas, tables.
mod metadata;
/// Messages of workers that are handed to a client as they are.
mod passed_on;
/// PollFlightInfo.
pub(crate) mod poll;
/// Prepared statements.
mod prepared;
/// Tickets that live longer.
mod renew;
/// Open result streams.
mod running;
/// The Flight service.
mod service;
/// The session's options.
mod session_actions;
/// Sessions by token.
mod sessions;
/// What the server can do.
mod sql_info;
/// From SQL to a FlightInfo and its rows.
mod statement;
/// From batches to messages.
mod stream;
/// Tickets and kept plans.
mod tickets;
/// The types that clients see.
mod types;
/// DoPut.
mod update;
/// Rows that clients stream.
mod upload;
/// The SQL types.
mod xdbc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use volary_flight_proto::Error;

pub use gate::ClientGate;
pub use service::FlightSql;

/// The one map of errors goes by way of DataFusion's.
fn arrow_error(source: ArrowError) -> Error {
    DataFusionError::from(source).into()
}
