//! JDBC, ODBC, ADBC, pyarrow and the `volary` command call the interface for Flight SQL.
//!
//! [`FlightSql`] implements the raw Flight service with the messages of Flight SQL, because the
//! needs of real drivers differ from the documents of the protocol. Drivers work only if these
//! rules are kept. Each rule names the modules that keep it:
//!
//! 1. A result has one endpoint without a location, unless a client asks for others: `statement`,
//!    `direct`.
//! 2. Rows have types that all clients can read: `client_types`.
//! 3. The schema of a DoGet is exactly that of the FlightInfo: `client_types`, `stream`.
//! 4. DDL and DML that come as a query run once, in GetFlightInfo: `statement`.
//! 5. A prepared statement without rows has a schema without fields: `prepared`.
//! 6. `?` is a parameter: `engine`. Rows are bound to parameters by position: `upload`.
//! 7. Credentials may be base64 without padding: `auth`.
//! 8. GetSqlInfo answers every standard id, and no other id: `sql_info`.
//! 9. Every column of GetTables has metadata: `client_types`.
//! 10. Messages have no compression and no dictionaries: `stream`, `client_types`.
//!
//! Volary's own clients send a statement with its parameters in one call, and keys whose rows they
//! want: `exchange`.
//!
//! A statement passes through `service`, `descriptor`, and `statement` (or `prepared`, `update`) to
//! the engine. Its rows pass from the engine through `stream` and `watched_stream` to the client.

/// Handles DoAction, which carries the requests that are neither statements nor rows.
mod actions;
/// Reads the credentials in the `authorization` header.
mod auth;
/// Answers the action that asks whether a batch was committed.
mod batch_status;
/// Reads the caller, its session, its types and the deadline from the headers of a call, and writes
/// the headers of the answer.
mod call;
/// Handles CancelFlightInfo and CancelQuery, the calls that cancel a query.
mod cancel;
/// Identifies callers before their messages are read.
mod client_gate;
/// Reads options that a client sets with a header or in its session.
mod client_option;
/// Reads the messages of Flight SQL.
mod command;
/// Reads and writes cookies.
mod cookie;
/// Reads what a descriptor asks for.
mod descriptor;
/// Handles direct results, whose parts a client fetches from the workers.
mod direct;
/// Parses the client's `volary-direct-results` option.
mod direct_option;
/// Handles DoExchange: one call carries a statement, its parameters, its rows and its statistics.
mod exchange;
/// Handles the handshake, which exchanges credentials for a session.
mod handshake;
/// Handles CommandStatementIngest, which writes rows without a statement.
mod ingest;
/// Passes messages of workers on to a client, and joins small ones.
mod joined_messages;
/// Defines the columns of the key listings.
mod keys;
/// Starts the timers of streams that are not short.
mod late_timers;
/// Handles ListFlights, which lists each table as a flight with a path descriptor.
mod list;
/// Reads requests for the rows of keys.
mod lookup;
/// Handles Flight SQL's metadata commands: catalogs, schemas, tables, and the other facts about the
/// database that drivers ask for.
mod metadata;
/// Handles PollFlightInfo, which runs a query before the client asks for its rows.
mod poll;
/// Handles prepared statements.
mod prepared;
/// Handles RenewFlightEndpoint, which makes a ticket valid for longer.
mod renew;
/// Implements the Flight service: each method passes its call on to the module that handles it.
mod service;
/// Sets and reads the options of a session: `catalog`, `schema`, `volary-types`,
/// `volary-direct-results`, and every setting that SET knows.
mod session_actions;
/// Keeps the sessions of clients by their tokens.
mod sessions;
/// Answers GetSqlInfo, which asks what this server can do.
mod sql_info;
/// Makes the FlightInfo of a statement, and returns the rows of its ticket.
mod statement;
/// Converts a query's rows to the messages that a client is sent.
mod stream;
/// Keeps in tickets which tables and views their queries read.
mod ticket_reads;
/// Seals the tickets that clients redeem, and keeps the plans of queries whose tickets were not
/// redeemed yet.
mod tickets;
/// Handles DoPut: statements that write, parameters to bind, and bulk ingestion.
mod update;
/// Reads the rows that clients stream: parameters, and rows to ingest.
mod upload;
/// Watches open result streams and ends them: at the deadline, at a cancellation, or when the
/// client reads nothing for long.
mod watched_stream;
/// Handles the messages of workers, which join, leave, or ask whether a client may have rows.
mod worker_actions;
/// Answers GetXdbcTypeInfo with the SQL types, which ODBC asks for when it connects.
mod xdbc;

use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use volary_flight_proto::Error;
use volary_flight_proto::seal::Sealer;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::engine::Engine;
use crate::login::Login;
pub use client_gate::ClientGate;
use late_timers::LateTimers;
use poll::PolledQueries;
pub(crate) use sessions::SessionCount;
use sessions::Sessions;
use tickets::Tickets;

/// The service that clients and workers call. It implements Flight, and Flight SQL on top of it.
///
/// arrow-flight's own layer for Flight SQL is not used: it answers ListFlights, GetSchema and
/// PollFlightInfo with UNIMPLEMENTED, and refuses descriptors that are plain SQL.
#[derive(Debug)]
pub struct FlightSql {
    engine: Arc<Engine>,
    cluster: Arc<Cluster>,
    config: Arc<Config>,
    sessions: Sessions,
    tickets: Tickets,
    polled_queries: Arc<PolledQueries>,
    stream_timers: LateTimers,
    login: Arc<Login>,
}

impl FlightSql {
    /// Creates a service over the engine. `sealer` has a key that only the cluster's gateways know.
    pub fn new(
        engine: Arc<Engine>,
        cluster: Arc<Cluster>,
        sealer: Sealer,
        config: Arc<Config>,
        login: Arc<Login>,
    ) -> Self {
        Self {
            stream_timers: LateTimers::new(engine.runtimes().io()),
            engine,
            cluster,
            sessions: Sessions::new(&config.query),
            tickets: Tickets::new(sealer, &config.query),
            polled_queries: Arc::default(),
            login,
            config,
        }
    }

    /// Returns a counter of the clients' sessions.
    pub(crate) fn session_count(&self) -> SessionCount {
        self.sessions.count()
    }
}

/// Converts an Arrow error. It goes through DataFusion's error type, because errors are mapped in
/// that one place.
fn arrow_error(source: ArrowError) -> Error {
    DataFusionError::from(source).into()
}
