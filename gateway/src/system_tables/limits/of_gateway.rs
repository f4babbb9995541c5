//! Lists the limits of a gateway that apply to all users.

use std::time::Duration;

use volary_node::memory::ProcessMemory;
use volary_node::serving::{
    FIRST_CALL_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_CALLS, MAX_HEADER_LIST_BYTES,
};
use volary_node::undecided::MOST_WAITING as STRANGERS_CALLS;
use volary_node::unfinished::MOST_OF_STRANGERS;
use volary_node::whole_messages::STRANGERS_BYTES;

use super::limit::{Counted, Limit};
use crate::config::Config;
use crate::login::passwords::{MOST_WAITING, MOST_WAITING_PER_ADDRESS};
use crate::login::throttle::{FREE as FREE_FAILURES, REMEMBERED as FAILURES_REMEMBERED};
use crate::statements::MOST_POLLED;
use crate::system_tables::column::milliseconds;

const REFUSED: &str = "RESOURCE_EXHAUSTED";
pub(super) const WAITS: &str = "waits";
const TOO_LATE: &str = "DEADLINE_EXCEEDED";
const INVALID: &str = "INVALID_ARGUMENT";
const CLOSED: &str = "the connection is closed";
pub(super) const SPILLS: &str = "spills, or RESOURCE_EXHAUSTED";
const FORGOTTEN: &str = "the one that was not used for longest is forgotten";

pub(super) const RUNNING: &str = "running statements";
pub(super) const OPERATORS: &str = "memory of operators";
pub(super) const MAX_RUNNING_PER_USER: &str = "gateway.query.max_running_per_user";
pub(super) const QUERY_MEMORY: &str = "gateway.query.memory";

/// Returns the limits of a gateway with these settings, in the order in which they are listed.
pub fn limits_of(config: &Config) -> Vec<Limit> {
    let mut limits = of_node(config);
    limits.extend(of_users(config));
    limits.extend(of_statements(config));
    limits.extend(of_connections());
    limits
}

fn of_node(config: &Config) -> Vec<Limit> {
    let query = &config.query;
    let count =
        |name, most: usize, beyond| Limit::new("node", name, most as u64, "statements", beyond);
    let bytes = |name, most: usize, beyond| Limit::new("node", name, most as u64, "bytes", beyond);
    vec![
        count(RUNNING, query.max_running, WAITS)
            .set_by("gateway.query.max_running")
            .counted(Counted::Running),
        count("waiting statements", query.max_waiting, REFUSED)
            .set_by("gateway.query.max_waiting")
            .counted(Counted::Waiting),
        count("statements in kept places", query.kept_places, WAITS)
            .set_by("gateway.query.kept_places")
            .counted(Counted::InKeptPlaces),
        bytes(OPERATORS, config.memory.limit.bytes(), SPILLS)
            .set_by("gateway.memory.limit")
            .of_machine(config.memory.limit)
            .counted(Counted::OfOperators),
        bytes(
            "memory of the process",
            ProcessMemory::this().allowed(),
            "the largest statement ends with RESOURCE_EXHAUSTED",
        )
        .set_by("gateway.memory.limit")
        .in_words("a fifth more, and 512 MiB more at least")
        .counted(Counted::OfProcess),
        bytes("spilled data", config.memory.spill_limit.bytes(), REFUSED)
            .set_by("gateway.memory.spill_limit"),
        bytes("incomplete messages", query.max_unfinished.bytes(), REFUSED)
            .set_by("gateway.query.max_unfinished")
            .counted(Counted::Unfinished),
        Limit::new(
            "node",
            "sessions",
            query.max_sessions,
            "sessions",
            FORGOTTEN,
        )
        .set_by("gateway.query.max_sessions"),
        bytes(
            "plans that are kept for their tickets",
            query.kept_plans.bytes(),
            "one of them is planned again",
        )
        .set_by("gateway.query.kept_plans"),
        bytes(
            "plans that are used again",
            query.generic_plans.bytes(),
            "one of them is planned again",
        )
        .set_by("gateway.query.generic_plans"),
        count(
            "polled statements",
            MOST_POLLED,
            "run when their rows are asked for",
        ),
        count(
            "statements that have ended and are listed",
            query.history,
            "the oldest is forgotten",
        )
        .set_by("gateway.query.history"),
        Limit::new(
            "node",
            "passwords that wait to be checked",
            MOST_WAITING as u64,
            "passwords",
            REFUSED,
        ),
        Limit::new(
            "node",
            "users and addresses whose log-ins have failed",
            FAILURES_REMEMBERED,
            "users and addresses",
            FORGOTTEN,
        ),
    ]
}

fn of_users(config: &Config) -> Vec<Limit> {
    let query = &config.query;
    vec![
        Limit::new(
            "user",
            RUNNING,
            query.max_running_per_user() as u64,
            "statements",
            WAITS,
        )
        .set_by(MAX_RUNNING_PER_USER),
        Limit::new(
            "user",
            "incomplete messages",
            query.unfinished().most_of_user() as u64,
            "bytes",
            REFUSED,
        )
        .set_by("gateway.query.max_unfinished"),
        Limit::new(
            "user",
            "sessions",
            query.max_sessions_per_user(),
            "sessions",
            FORGOTTEN,
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
            OPERATORS,
            config.query_memory_limit().bytes,
            "bytes",
            SPILLS,
        )
        .set_by(QUERY_MEMORY)
        .of_machine(query.memory),
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
            "incomplete messages of strangers",
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
