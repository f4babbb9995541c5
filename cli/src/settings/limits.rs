//! Generates `docs/limits.md`: the limits of a gateway, as `system.limits` lists them, and the
//! limits of a worker.

use std::fmt::Write;
use std::time::Duration;

use volary_gateway::system_tables::{Limit, limits_of};
use volary_node::memory;
use volary_node::size::MemorySize;
use volary_node::unfinished::Unfinished;
use volary_worker::config::{CLIENT_TIMEOUT, CLIENTS_UNFINISHED, Execution, TICKET_BYTES};

use super::Settings;

const INTRODUCTION: &str = "\
# Limits

<!-- Made by `volary config --limits` from the limits and the defaults of the settings. A test compares. -->

Every queue, cache, message and statement of a node has a limit. This page lists them with their defaults, what sets
them, and what happens beyond them. [configuration.md](configuration.md) explains each setting.
[security.md](security.md) says why the limits are what they are. Whom a limit protects depends on its scope:

- Limits of a connection, a call and an address protect a node from clients that have not logged in.
- Limits of a user and a session protect users from each other.
- Limits of a statement, a fragment and a part protect all others from this one.
- Limits of a node protect its machine.

An operator usually changes three settings first: `gateway.memory.limit`, the memory of all statements;
`gateway.query.memory`, the memory of one statement; and `gateway.query.max_running`, the statements that run at a time.
`ALTER USER kea MAX_QUERIES 8 QUERY_MEMORY '1GiB'` sets the limits of one user. `DEFAULT` in place of a value removes a
limit of the user.

Three queries show who uses what: how near the limits are, whose statements run, and which users have limits of their
own.

```sql
SELECT * FROM system.limits WHERE in_use IS NOT NULL ORDER BY in_use * 1.0 / allowed DESC;
SELECT query_id, user_name, state, memory_bytes, statement FROM system.queries ORDER BY memory_bytes DESC;
SELECT name, max_queries, query_memory_bytes FROM system.users WHERE kind = 'user';
```

They have places of their own, so they are answered when all others are taken. `KILL 'query id'` ends a statement and
needs no place.

What is refused with `RESOURCE_EXHAUSTED` may have room later, or with a higher limit. What is ended with
`DEADLINE_EXCEEDED` needs more time, or less work. What is refused with `INVALID_ARGUMENT` has to be written in another
way.
";

const GATEWAY: &str = "
## A gateway

`system.limits` lists these rows with the values that are set, and with what is in use where that is counted.

";

const AFTER_GATEWAY: &str = "
A stranger is a client that has not shown who it is. The headers of its calls count as messages. All joins of
a statement may have 128 times the columns of a table together, and all operators of its plan 256 times. All of its
SELECTs together may look at as many columns as eight `SELECT *` of the widest table. A type within a statement may have
as many fields as a table has columns. Statements also have limits of depth; the error says what is too deep.

`system.limits` also has two rows for each user with running statements or limits of its own: how many of the user's
statements run, and how much memory the largest of them has. `user_name` says whose they are. `setting` is `MAX_QUERIES`
or `QUERY_MEMORY` where the user's own limit is the lower one. Users always see their own rows, and administrators see
all. As long as there are no users, each session counts as a user, and there are no such rows.
";

const WORKER: &str = "
## A worker

A worker runs fragments of three kinds: those that read shards, those that merge the rows of other workers, and parts of
results that clients fetch themselves. Each kind has places of its own.

";

const AFTER_WORKER: &str = "
The limits of addresses, calls of strangers and connections are those of a gateway. `system.limits` does not list the
limits of workers. The error of a statement names the worker whose limit was reached. `system.nodes` lists what runs
there:

```sql
SELECT id, running_fragments, memory_reserved_bytes FROM system.nodes WHERE role = 'worker';
```
";

const HEAD: &str = "\
| scope | limit | default | setting | beyond it |
|---|---|---|---|---|
";

const WAITS: &str = "waits";
const REFUSED: &str = "RESOURCE_EXHAUSTED";

/// Returns the page.
pub fn markdown() -> String {
    let settings = Settings::default();
    let of_gateway: Vec<_> = limits_of(&settings.gateway).iter().map(Row::of).collect();
    let of_worker = of_worker(&settings.worker);
    [
        INTRODUCTION,
        GATEWAY,
        &table(&of_gateway),
        AFTER_GATEWAY,
        WORKER,
        &table(&of_worker),
        AFTER_WORKER,
    ]
    .concat()
}

/// A row of the page.
#[derive(Debug)]
struct Row {
    scope: &'static str,
    name: &'static str,
    most: String,
    setting: Option<&'static str>,
    beyond: &'static str,
}

impl Row {
    fn of(limit: &Limit) -> Self {
        let in_words = limit.in_words.clone();
        Self {
            scope: limit.scope,
            name: limit.name,
            most: in_words.unwrap_or_else(|| amount(limit.most, limit.unit)),
            setting: limit.setting,
            beyond: limit.beyond,
        }
    }

    fn fixed(
        scope: &'static str,
        name: &'static str,
        most: impl Into<String>,
        beyond: &'static str,
    ) -> Self {
        Self {
            scope,
            name,
            most: most.into(),
            setting: None,
            beyond,
        }
    }

    fn set_by(self, setting: &'static str) -> Self {
        Self {
            setting: Some(setting),
            ..self
        }
    }
}

fn of_worker(config: &volary_worker::Config) -> Vec<Row> {
    let mut rows = of_places(&config.execution);
    rows.extend(of_memory(&config.memory));
    rows.extend(of_messages(&config.execution));
    rows
}

fn of_places(execution: &Execution) -> Vec<Row> {
    let count =
        |scope, name, most: usize, beyond| Row::fixed(scope, name, most.to_string(), beyond);
    let max_running = execution.max_running;
    vec![
        count("node", "running fragments of each kind", max_running, WAITS)
            .set_by("worker.execution.max_running"),
        count(
            "user",
            "running fragments of each kind",
            execution.max_running_per_user(),
            WAITS,
        )
        .set_by("worker.execution.max_running"),
        count(
            "node",
            "waiting fragments of each kind",
            execution.max_waiting,
            REFUSED,
        )
        .set_by("worker.execution.max_waiting"),
        count(
            "user",
            "waiting parts of results",
            execution.max_waiting_per_client(),
            REFUSED,
        )
        .set_by("worker.execution.max_waiting"),
        Row::fixed(
            "fragment",
            "time of waiting for a place",
            time(execution.max_wait),
            REFUSED,
        )
        .set_by("worker.execution.max_wait"),
        Row::fixed(
            "part",
            "time without a reader",
            time(CLIENT_TIMEOUT),
            "DEADLINE_EXCEEDED",
        ),
    ]
}

fn of_memory(config: &memory::Config) -> Vec<Row> {
    vec![
        Row::fixed(
            "node",
            "memory of operators",
            format!("{} of the machine's memory", config.limit),
            "spills, or RESOURCE_EXHAUSTED",
        )
        .set_by("worker.memory.limit"),
        Row::fixed(
            "node",
            "memory of the process",
            "a fifth more, and 512 MiB more at least",
            "the largest fragment ends with RESOURCE_EXHAUSTED",
        )
        .set_by("worker.memory.limit"),
        Row::fixed("node", "spilled data", size(config.spill_limit), REFUSED)
            .set_by("worker.memory.spill_limit"),
    ]
}

fn of_messages(execution: &Execution) -> Vec<Row> {
    vec![
        Row::fixed(
            "node",
            "plans of fragments that are kept",
            size(execution.kept_fragments),
            "the gateway sends a fragment again",
        )
        .set_by("worker.execution.kept_fragments"),
        Row::fixed(
            "node",
            "messages of clients that are not whole",
            bytes(CLIENTS_UNFINISHED as u64),
            REFUSED,
        ),
        Row::fixed(
            "user",
            "messages of clients that are not whole",
            bytes(Unfinished::new(CLIENTS_UNFINISHED, "").most_of_user() as u64),
            REFUSED,
        ),
        Row::fixed(
            "fragment",
            "value of a function",
            size(execution.max_value),
            REFUSED,
        )
        .set_by("worker.execution.max_value"),
        Row::fixed(
            "call",
            "message of a node",
            size(execution.max_message),
            REFUSED,
        )
        .set_by("worker.execution.max_message"),
        Row::fixed(
            "call",
            "message at `worker.clients.listen`",
            bytes(TICKET_BYTES as u64),
            REFUSED,
        ),
    ]
}

fn table(rows: &[Row]) -> String {
    let mut table = HEAD.to_owned();
    for row in rows {
        let Row {
            scope,
            name,
            most,
            beyond,
            ..
        } = row;
        let setting = row.setting.map(|setting| format!("`{setting}`"));
        let setting = setting.as_deref().unwrap_or("fixed");
        // Writing to a String does not fail.
        let _ = writeln!(
            table,
            "| {scope} | {name} | {most} | {setting} | {beyond} |"
        );
    }
    table
}

fn size(size: MemorySize) -> String {
    bytes(size.bytes() as u64)
}

fn bytes(bytes: u64) -> String {
    amount(bytes, "bytes")
}

fn time(time: Duration) -> String {
    amount(time.as_secs() * 1000, "ms")
}

/// Formats an amount in the largest unit that divides it.
fn amount(most: u64, unit: &str) -> String {
    let larger: &[(u64, &str)] = match unit {
        "bytes" => &[(1 << 20, "MiB"), (1 << 10, "KiB")],
        "ms" => &[(3_600_000, "h"), (60_000, "min"), (1000, "s")],
        _ => &[],
    };
    let multiple = larger.iter().find(|(size, _)| most.is_multiple_of(*size));
    multiple.map_or_else(
        || most.to_string(),
        |(size, name)| format!("{} {name}", most / size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::to_json;

    #[test]
    fn the_page_in_docs_is_the_one_of_this_release() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/limits.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            page,
            markdown(),
            "make it again: volary config --limits > docs/limits.md"
        );
    }

    #[test]
    fn every_setting_of_a_limit_is_one() {
        let settings = Settings::default();
        let known = to_json(&settings).unwrap();
        let of_gateway = limits_of(&settings.gateway);
        let of_gateway = of_gateway.iter().filter_map(|limit| limit.setting);
        let of_worker = of_worker(&settings.worker);
        let of_worker = of_worker.iter().filter_map(|row| row.setting);
        for setting in of_gateway.chain(of_worker) {
            let path = format!("/{}", setting.replace('.', "/"));
            assert!(known.pointer(&path).is_some(), "{setting}");
        }
    }
}
