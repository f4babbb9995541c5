//! Rows of system.limits: what nobody gets more of, and how much of it is in use.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use volary_flight_proto::Result;
use volary_node::admission::Admission;
use volary_node::memory::ProcessMemory;
use volary_node::serving::{
    FIRST_CALL_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_CALLS, MAX_HEADER_LIST_BYTES,
};
use volary_node::undecided::MOST_WAITING as STRANGERS_CALLS;
use volary_node::unfinished::{MOST_OF_STRANGERS, Unfinished};
use volary_node::whole_messages::STRANGERS_BYTES;

use super::kind::Kind;
use super::rows::{batch, milliseconds, numbers, optional_numbers, optional_texts, texts};
use crate::config::Config;
use crate::flight_sql::poll::MOST as MOST_POLLED;
use crate::login::passwords::{MOST_WAITING, MOST_WAITING_PER_ADDRESS};
use crate::login::throttle::FREE as FREE_FAILURES;
use crate::statements::Statements;

const REFUSED: &str = "RESOURCE_EXHAUSTED";
const WAITS: &str = "waits";
const TOO_LATE: &str = "DEADLINE_EXCEEDED";
const INVALID: &str = "INVALID_ARGUMENT";
const CLOSED: &str = "the connection is closed";

/// What is asked how much of the limits is in use.
#[derive(Debug, Clone)]
pub struct Usage {
    /// The settings.
    pub(crate) config: Arc<Config>,
    /// The places of statements that run.
    pub(crate) places: Arc<Admission>,
    /// The places that are kept for administrators and lists.
    pub(crate) kept_places: Arc<Admission>,
    /// The memory of messages that are not whole yet.
    pub(crate) unfinished: Unfinished,
}

/// A limit.
struct Limit {
    /// Of what there is so much: the node, a user, a session, a statement, an address, a connection.
    scope: &'static str,
    name: &'static str,
    /// None where it is fixed.
    setting: Option<&'static str>,
    most: u64,
    unit: &'static str,
    /// None where it is not counted in one place.
    in_use: Option<u64>,
    /// What happens to whoever wants more.
    beyond: &'static str,
}

impl Limit {
    const fn new(
        scope: &'static str,
        name: &'static str,
        most: u64,
        unit: &'static str,
        beyond: &'static str,
    ) -> Self {
        Self {
            scope,
            name,
            setting: None,
            most,
            unit,
            in_use: None,
            beyond,
        }
    }

    fn set_by(self, setting: &'static str) -> Self {
        Self {
            setting: Some(setting),
            ..self
        }
    }

    fn in_use(self, in_use: usize) -> Self {
        Self {
            in_use: Some(in_use as u64),
            ..self
        }
    }
}

/// The limits of this gateway.
pub(super) fn rows(usage: &Usage, statements: &Statements) -> Result<RecordBatch> {
    let mut limits = of_node(usage, statements);
    limits.extend(of_users(usage));
    limits.extend(of_statements(&usage.config));
    limits.extend(of_connections());
    batch(
        Kind::Limits,
        vec![
            texts(limits.iter().map(|limit| limit.scope)),
            texts(limits.iter().map(|limit| limit.name)),
            optional_texts(limits.iter().map(|limit| limit.setting.map(str::to_owned))),
            numbers(limits.iter().map(|limit| limit.most)),
            texts(limits.iter().map(|limit| limit.unit)),
            optional_numbers(limits.iter().map(|limit| limit.in_use)),
            texts(limits.iter().map(|limit| limit.beyond)),
        ],
    )
}

fn of_node(usage: &Usage, statements: &Statements) -> Vec<Limit> {
    let query = &usage.config.query;
    let count =
        |name, most: usize, beyond| Limit::new("node", name, most as u64, "statements", beyond);
    let bytes = |name, most: usize, beyond| Limit::new("node", name, most as u64, "bytes", beyond);
    let process = ProcessMemory::this();
    vec![
        count("running statements", query.max_running, WAITS)
            .set_by("gateway.query.max_running")
            .in_use(usage.places.running()),
        count("waiting statements", query.max_waiting, REFUSED)
            .set_by("gateway.query.max_waiting")
            .in_use(usage.places.waiting()),
        count("statements in kept places", query.kept_places, WAITS)
            .set_by("gateway.query.kept_places")
            .in_use(usage.kept_places.running()),
        bytes(
            "memory of operators",
            usage.config.memory.limit.bytes(),
            "spills, or RESOURCE_EXHAUSTED",
        )
        .set_by("gateway.memory.limit")
        .in_use(statements.memory_bytes()),
        bytes(
            "memory of the process",
            process.allowed(),
            "the largest statement ends with RESOURCE_EXHAUSTED",
        )
        .set_by("gateway.memory.limit")
        .in_use(process.in_use()),
        bytes(
            "messages that are not whole",
            query.max_unfinished.bytes(),
            REFUSED,
        )
        .set_by("gateway.query.max_unfinished")
        .in_use(usage.unfinished.bytes()),
        Limit::new(
            "node",
            "sessions",
            query.max_sessions,
            "sessions",
            "the one that was not used for longest is forgotten",
        )
        .set_by("gateway.query.max_sessions"),
        bytes(
            "plans that are kept for their tickets",
            query.kept_plans.bytes(),
            "the oldest is planned again",
        )
        .set_by("gateway.query.kept_plans"),
        bytes(
            "plans that are used again",
            query.generic_plans.bytes(),
            "the one that was not used for longest is forgotten",
        )
        .set_by("gateway.query.generic_plans"),
        count(
            "polled statements",
            MOST_POLLED,
            "run when their rows are asked for",
        ),
        Limit::new(
            "node",
            "passwords that wait to be checked",
            MOST_WAITING as u64,
            "passwords",
            REFUSED,
        ),
    ]
}

fn of_users(usage: &Usage) -> Vec<Limit> {
    let query = &usage.config.query;
    vec![
        Limit::new(
            "user",
            "running statements",
            query.max_running_per_user() as u64,
            "statements",
            WAITS,
        )
        .set_by("gateway.query.max_running_per_user"),
        Limit::new(
            "user",
            "messages that are not whole",
            usage.unfinished.most_of_user() as u64,
            "bytes",
            REFUSED,
        )
        .set_by("gateway.query.max_unfinished"),
        Limit::new(
            "user",
            "sessions",
            query.max_sessions.div_ceil(4),
            "sessions",
            "the one that was not used for longest is forgotten",
        )
        .set_by("gateway.query.max_sessions"),
        Limit::new(
            "user and address",
            "failed log-ins without a wait",
            u64::from(FREE_FAILURES),
            "log-ins",
            "each further one doubles the wait, up to a minute",
        ),
        Limit::new(
            "session",
            "waiting statements",
            query.max_waiting_per_session() as u64,
            "statements",
            REFUSED,
        )
        .set_by("gateway.query.max_waiting_per_session"),
    ]
}

fn of_statements(config: &Config) -> Vec<Limit> {
    let query = &config.query;
    let of_one =
        |name, most: usize, unit, beyond| Limit::new("statement", name, most as u64, unit, beyond);
    let time = |name, most: Duration, beyond| {
        Limit::new("statement", name, milliseconds(most), "ms", beyond)
    };
    vec![
        time("running time", query.timeout, TOO_LATE).set_by("gateway.query.timeout"),
        time(
            "time without a reader, where others wait",
            query.unread_timeout,
            TOO_LATE,
        )
        .set_by("gateway.query.unread_timeout"),
        of_one(
            "memory of operators",
            config.query_memory_limit().bytes,
            "bytes",
            "spills, or RESOURCE_EXHAUSTED",
        )
        .set_by("gateway.query.memory"),
        of_one(
            "value of a function",
            query.max_value.bytes(),
            "bytes",
            REFUSED,
        )
        .set_by("gateway.query.max_value"),
        of_one("message", query.max_message.bytes(), "bytes", REFUSED)
            .set_by("gateway.query.max_message"),
        of_one("columns", query.max_columns, "columns", INVALID)
            .set_by("gateway.query.max_columns"),
        of_one("levels of a type", query.max_type_depth, "levels", INVALID)
            .set_by("gateway.query.max_type_depth"),
    ]
}

fn of_connections() -> Vec<Limit> {
    vec![
        Limit::new(
            "address",
            "passwords that wait to be checked",
            MOST_WAITING_PER_ADDRESS as u64,
            "passwords",
            REFUSED,
        ),
        Limit::new(
            "address",
            "messages of strangers that are not whole",
            MOST_OF_STRANGERS as u64,
            "bytes",
            REFUSED,
        ),
        Limit::new(
            "call",
            "message of a stranger",
            STRANGERS_BYTES as u64,
            "bytes",
            "UNAUTHENTICATED",
        ),
        Limit::new(
            "call",
            "headers",
            u64::from(MAX_HEADER_LIST_BYTES),
            "bytes",
            "the call is refused",
        ),
        Limit::new(
            "connection",
            "calls of strangers that wait",
            STRANGERS_CALLS as u64,
            "calls",
            REFUSED,
        ),
        Limit::new(
            "connection",
            "calls at a time",
            u64::from(MAX_CALLS),
            "calls",
            WAITS,
        ),
        Limit::new(
            "connection",
            "time of the TLS handshake",
            milliseconds(HANDSHAKE_TIMEOUT),
            "ms",
            CLOSED,
        ),
        Limit::new(
            "connection",
            "time until the first call",
            milliseconds(FIRST_CALL_TIMEOUT),
            "ms",
            CLOSED,
        ),
    ]
}
