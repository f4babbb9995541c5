use std::time::Duration;

use volary_node::memory::ProcessMemory;
use volary_node::message_budget::MAX_STRANGERS_BYTES;
use volary_node::server::{
    FIRST_CALL_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_CALLS, MAX_HEADER_LIST_BYTES,
};
use volary_node::unidentified_calls::MAX_WAITING_CALLS as STRANGERS_CALLS;
use volary_node::whole_messages::MAX_UNIDENTIFIED_BYTES;

use super::limit::{GatewayLimit, LimitedQuantity};
use crate::config::Config;
use crate::login::passwords::{MAX_WAITING, MAX_WAITING_PER_ADDRESS};
use crate::login::throttle::{
    FAILURES_BEFORE_WAIT as FREE_FAILURES, MAX_REMEMBERED as FAILURES_REMEMBERED,
};
use crate::statements::MAX_POLLED;
use crate::system_tables::column::milliseconds;

const REFUSED: &str = "RESOURCE_EXHAUSTED";
pub(super) const WAITS: &str = "waits";
const TOO_LATE: &str = "DEADLINE_EXCEEDED";
const INVALID: &str = "INVALID_ARGUMENT";
const CLOSED: &str = "the connection is closed";
pub(super) const SPILLS: &str = "spills, or RESOURCE_EXHAUSTED";
const FORGOTTEN: &str = "the least recently used one is forgotten";

pub(super) const RUNNING: &str = "running statements";
const TEMPORARY_TABLES: &str = "temporary tables and views";
pub(super) const OPERATORS: &str = "memory of operators";
pub(super) const MAX_RUNNING_PER_USER: &str = "gateway.query.max_running_per_user";
pub(super) const QUERY_MEMORY: &str = "gateway.query.memory";

/// Returns the limits of a gateway with these settings, in the order in which they are listed.
pub fn gateway_limits(config: &Config) -> Vec<GatewayLimit> {
    let mut limits = node_limits(config);
    limits.extend(user_limits(config));
    limits.extend(statement_limits(config));
    limits.extend(connection_limits());
    limits
}

fn node_limits(config: &Config) -> Vec<GatewayLimit> {
    let query = &config.query;
    let count = |name, most: usize, beyond| {
        GatewayLimit::new("node", name, most as u64, "statements", beyond)
    };
    let bytes =
        |name, most: usize, beyond| GatewayLimit::new("node", name, most as u64, "bytes", beyond);
    vec![
        count(RUNNING, query.max_running, WAITS)
            .with_setting("gateway.query.max_running")
            .with_quantity(LimitedQuantity::Running),
        count("waiting statements", query.max_waiting, REFUSED)
            .with_setting("gateway.query.max_waiting")
            .with_quantity(LimitedQuantity::Waiting),
        count("statements in kept places", query.kept_places, WAITS)
            .with_setting("gateway.query.kept_places")
            .with_quantity(LimitedQuantity::KeptPlaces),
        bytes(OPERATORS, config.memory.limit.bytes(), SPILLS)
            .with_setting("gateway.memory.limit")
            .with_share_of_memory(config.memory.limit)
            .with_quantity(LimitedQuantity::OperatorBytes),
        bytes(
            "memory of the process",
            ProcessMemory::this().allowed(),
            "the largest statement ends with RESOURCE_EXHAUSTED",
        )
        .with_setting("gateway.memory.limit")
        .with_value_text("a fifth more, and 512 MiB more at least")
        .with_quantity(LimitedQuantity::ProcessBytes),
        bytes("spilled data", config.memory.spill_limit.bytes(), REFUSED)
            .with_setting("gateway.memory.spill_limit"),
        bytes("incomplete messages", query.max_unfinished.bytes(), REFUSED)
            .with_setting("gateway.query.max_unfinished")
            .with_quantity(LimitedQuantity::MessageBytes),
        bytes(
            "rows of small writes",
            config.ingest.queue_memory.bytes(),
            REFUSED,
        )
        .with_setting("gateway.ingest.queue_memory")
        .with_quantity(LimitedQuantity::QueuedBytes),
        bytes(
            "rows of streams",
            config.ingest.stream_memory.bytes(),
            WAITS,
        )
        .with_setting("gateway.ingest.stream_memory")
        .with_quantity(LimitedQuantity::StreamBytes),
        GatewayLimit::new(
            "node",
            "streams of batches",
            config.ingest.max_streams as u64,
            "streams",
            REFUSED,
        )
        .with_setting("gateway.ingest.max_streams")
        .with_quantity(LimitedQuantity::Streams),
        GatewayLimit::new(
            "table",
            "producers and batch ids",
            config.ingest.max_producers as u64,
            "producers",
            REFUSED,
        )
        .with_setting("gateway.ingest.max_producers"),
        GatewayLimit::new(
            "stream",
            "batches that are not answered",
            config.ingest.stream_window.bytes() as u64,
            "bytes",
            WAITS,
        )
        .with_setting("gateway.ingest.stream_window"),
        GatewayLimit::new(
            "node",
            "streams of lookups",
            config.lookup.max_streams as u64,
            "streams",
            REFUSED,
        )
        .with_setting("gateway.lookup.max_streams")
        .with_quantity(LimitedQuantity::LookupStreams),
        GatewayLimit::new(
            "stream",
            "keys that are not answered",
            config.lookup.window.bytes() as u64,
            "bytes",
            WAITS,
        )
        .with_setting("gateway.lookup.window"),
        GatewayLimit::new(
            "stream",
            "keys of a batch",
            config.lookup.max_keys as u64,
            "keys",
            INVALID,
        )
        .with_setting("gateway.lookup.max_keys"),
        GatewayLimit::new(
            "node",
            "sessions",
            query.max_sessions,
            "sessions",
            FORGOTTEN,
        )
        .with_setting("gateway.query.max_sessions"),
        bytes(
            "plans kept between GetFlightInfo and DoGet",
            query.kept_plans.bytes(),
            "the statement is planned again",
        )
        .with_setting("gateway.query.kept_plans"),
        bytes(
            "generic plans",
            query.generic_plans.bytes(),
            "the statement is planned again",
        )
        .with_setting("gateway.query.generic_plans"),
        bytes(
            "statements kept since they were described",
            query.described_bytes(),
            "the statement is parsed and planned again",
        )
        .with_setting("gateway.query.generic_plans"),
        GatewayLimit::new(
            "node",
            TEMPORARY_TABLES,
            config.temporary_tables.max_tables as u64,
            "tables and views",
            REFUSED,
        )
        .with_setting("gateway.temporary_tables.max_tables")
        .with_quantity(LimitedQuantity::TemporaryTables),
        bytes(
            "rows of temporary tables",
            config.temporary_tables.max_size.bytes(),
            REFUSED,
        )
        .with_setting("gateway.temporary_tables.max_size")
        .with_quantity(LimitedQuantity::TemporaryBytes),
        count(
            "polled statements",
            MAX_POLLED,
            "start when their rows are fetched",
        ),
        count(
            "statements that have ended and are listed",
            query.history,
            "the oldest is forgotten",
        )
        .with_setting("gateway.query.history"),
        GatewayLimit::new(
            "node",
            "passwords that wait to be checked",
            MAX_WAITING as u64,
            "passwords",
            REFUSED,
        ),
        GatewayLimit::new(
            "node",
            "users and addresses whose log-ins have failed",
            FAILURES_REMEMBERED,
            "users and addresses",
            FORGOTTEN,
        ),
    ]
}

fn user_limits(config: &Config) -> Vec<GatewayLimit> {
    let query = &config.query;
    vec![
        GatewayLimit::new(
            "user",
            RUNNING,
            query.max_running_per_user() as u64,
            "statements",
            WAITS,
        )
        .with_setting(MAX_RUNNING_PER_USER),
        GatewayLimit::new(
            "user",
            "incomplete messages",
            query.message_budget().max_of_user() as u64,
            "bytes",
            REFUSED,
        )
        .with_setting("gateway.query.max_unfinished"),
        GatewayLimit::new(
            "user",
            "sessions",
            query.max_sessions_per_user(),
            "sessions",
            FORGOTTEN,
        )
        .with_setting("gateway.query.max_sessions"),
        GatewayLimit::new(
            "user and address",
            "failed log-ins without a wait",
            u64::from(FREE_FAILURES),
            "log-ins",
            "each further one doubles the wait, up to a minute",
        ),
        GatewayLimit::new(
            "user",
            TEMPORARY_TABLES,
            config.temporary_tables.limits().tables_of_user() as u64,
            "tables and views",
            REFUSED,
        )
        .with_setting("gateway.temporary_tables.max_tables"),
        GatewayLimit::new(
            "user",
            "rows of temporary tables",
            config.temporary_tables.limits().bytes_of_user(),
            "bytes",
            REFUSED,
        )
        .with_setting("gateway.temporary_tables.max_size"),
        GatewayLimit::new(
            "session",
            "waiting statements",
            query.max_waiting_per_session() as u64,
            "statements",
            REFUSED,
        )
        .with_setting("gateway.query.max_waiting_per_session"),
    ]
}

fn statement_limits(config: &Config) -> Vec<GatewayLimit> {
    let query = &config.query;
    let statement_limit = |name, most: usize, unit, beyond| {
        GatewayLimit::new("statement", name, most as u64, unit, beyond)
    };
    let time = |name, most: Duration, beyond| {
        GatewayLimit::new("statement", name, milliseconds(most), "ms", beyond)
    };
    vec![
        time("running time", query.timeout, TOO_LATE).with_setting("gateway.query.timeout"),
        time(
            "time without a reader, where others wait",
            query.unread_timeout,
            TOO_LATE,
        )
        .with_setting("gateway.query.unread_timeout"),
        statement_limit(
            OPERATORS,
            config.query_memory_limit().bytes,
            "bytes",
            SPILLS,
        )
        .with_setting(QUERY_MEMORY)
        .with_share_of_memory(query.memory),
        statement_limit(
            "value of a function",
            query.max_value.bytes(),
            "bytes",
            REFUSED,
        )
        .with_setting("gateway.query.max_value"),
        statement_limit("message", query.max_message.bytes(), "bytes", REFUSED)
            .with_setting("gateway.query.max_message"),
        statement_limit("columns", query.max_columns, "columns", INVALID)
            .with_setting("gateway.query.max_columns"),
        statement_limit("levels of a type", query.max_type_depth, "levels", INVALID)
            .with_setting("gateway.query.max_type_depth"),
    ]
}

fn connection_limits() -> Vec<GatewayLimit> {
    vec![
        GatewayLimit::new(
            "address",
            "passwords that wait to be checked",
            MAX_WAITING_PER_ADDRESS as u64,
            "passwords",
            REFUSED,
        ),
        GatewayLimit::new(
            "address",
            "incomplete messages of strangers",
            MAX_STRANGERS_BYTES as u64,
            "bytes",
            REFUSED,
        ),
        GatewayLimit::new(
            "call",
            "message of a stranger",
            MAX_UNIDENTIFIED_BYTES as u64,
            "bytes",
            "UNAUTHENTICATED",
        ),
        GatewayLimit::new(
            "call",
            "headers",
            u64::from(MAX_HEADER_LIST_BYTES),
            "bytes",
            "the call is refused",
        ),
        GatewayLimit::new(
            "connection",
            "calls of strangers that wait",
            STRANGERS_CALLS as u64,
            "calls",
            REFUSED,
        ),
        GatewayLimit::new(
            "connection",
            "calls at a time",
            u64::from(MAX_CALLS),
            "calls",
            WAITS,
        ),
        GatewayLimit::new(
            "connection",
            "time of the TLS handshake",
            milliseconds(HANDSHAKE_TIMEOUT),
            "ms",
            CLOSED,
        ),
        GatewayLimit::new(
            "connection",
            "time until the first call",
            milliseconds(FIRST_CALL_TIMEOUT),
            "ms",
            CLOSED,
        ),
    ]
}
