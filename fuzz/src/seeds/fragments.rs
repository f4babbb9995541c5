//! A gateway runs statements, and a stub collects the tickets that the gateway sends its workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use arrow_flight::{FlightData, Ticket};
use bytes::Bytes;
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_flight_proto::frame::{EndOfStream, Frame};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::ticket::{FragmentTicket, QueryTicket};

use super::Seed;
use crate::gateway::GatewayWithStub;
use crate::seal::{VALID_FOR, sealer};

/// At least one statement for each operator and each form of answer that workers know, and for the
/// expressions that occur in fragments.
const STATEMENTS: [(&str, &str); 22] = [
    ("scan", "SELECT * FROM t"),
    (
        "projection",
        "SELECT k + 1, s || 'x', -d, amount * 2, CAST(d AS INT), day + INTERVAL '1 day' FROM t",
    ),
    ("one_key", "SELECT s, d FROM t WHERE k = 7"),
    (
        "filter",
        "SELECT k FROM t WHERE (s LIKE 'a%' OR s IS NULL) AND d > 1.5 AND NOT flag AND k IN (1, 2, 3)",
    ),
    (
        "case",
        "SELECT CASE WHEN flag THEN s ELSE lower(s) END, coalesce(d, 0), TRY_CAST(s AS BIGINT) FROM t",
    ),
    (
        "functions",
        "SELECT substr(s, 2, 3), round(d, 2), date_trunc('month', at), regexp_like(s, '^a'), to_char(at, '%Y') FROM t",
    ),
    ("top", "SELECT k, at FROM t ORDER BY at DESC, k LIMIT 10"),
    ("limit", "SELECT k FROM t LIMIT 3"),
    (
        "groups",
        "SELECT s, count(*), sum(d), min(at), max(amount), avg(amount) FROM t GROUP BY s",
    ),
    (
        "no_groups",
        "SELECT count(*), count(DISTINCT s), stddev(d), approx_distinct(k) FROM t WHERE flag",
    ),
    (
        "by_key",
        "SELECT k, array_agg(s ORDER BY at), first_value(d ORDER BY at) FROM t GROUP BY k",
    ),
    ("distinct", "SELECT DISTINCT s, flag FROM t"),
    (
        "having",
        "SELECT k, sum(d) AS d FROM t GROUP BY k HAVING sum(d) > 10",
    ),
    (
        "co_located",
        "SELECT t.k, t.s, u.name FROM t JOIN u ON t.k = u.k WHERE u.small > 3 AND t.d < u.small",
    ),
    (
        "reference",
        "SELECT t.k, r.label FROM t JOIN r ON t.s = r.label WHERE r.k > 1",
    ),
    (
        "outer",
        "SELECT t.k, u.bytes FROM t LEFT JOIN u ON t.k = u.k AND t.d > u.small",
    ),
    (
        "semi",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    ),
    (
        "anti",
        "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.small = 1)",
    ),
    (
        "union",
        "SELECT k, s FROM t UNION ALL SELECT k, name FROM u",
    ),
    (
        "window",
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY at), sum(d) OVER (PARTITION BY k) FROM t",
    ),
    (
        "lists",
        "SELECT items[1], pair['a'], array_length(items), unnest(items) FROM l",
    ),
    ("view", "SELECT * FROM v WHERE amount > 5"),
];

/// The statements that are also run with a relay: one worker merges the rows of the others.
const RELAYED: [&str; 3] = ["groups", "no_groups", "top"];

/// Returns the fragments of all statements, named after their statements.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, sql) in STATEMENTS {
        let fragments = capture_tickets(sql, "off");
        assert!(!fragments.is_empty(), "nothing is asked for {sql}");
        seeds.extend(name_seeds(name, fragments));
        if RELAYED.contains(&name) {
            seeds.extend(name_seeds(
                &format!("{name}_relayed"),
                capture_tickets(sql, "1"),
            ));
        }
    }
    seeds
}

/// Returns one fragment, as a ticket.
pub(super) fn sample_ticket() -> FragmentTicket {
    let fragments = capture_tickets("SELECT k, s FROM t WHERE d > 1.5", "off");
    let first = fragments.into_iter().next();
    first.expect("workers are asked for rows")
}

fn name_seeds(name: &str, fragments: Vec<FragmentTicket>) -> Vec<Seed> {
    let tickets = fragments.iter().enumerate();
    tickets
        .map(|(number, ticket)| (format!("{name}_{number}"), ticket.encode_to_vec()))
        .collect()
}

/// Returns the tickets of a statement, one for each of its fragments. Values that differ from run
/// to run are removed from them.
fn capture_tickets(sql: &str, relays: &str) -> Vec<FragmentTicket> {
    let GatewayWithStub { gateway, stub, .. } = GatewayWithStub::get();
    // The workers answer that they have no rows, so the gateway asks all of them.
    let end = Frame::end(EndOfStream::default());
    stub.answer(vec![FlightData::new().with_app_metadata(end.to_bytes())]);
    let id = QueryId::new();
    let query = QueryTicket {
        query_id: id.to_string(),
        sql: sql.to_owned(),
        settings: HashMap::from([("volary.relays".to_owned(), relays.to_owned())]),
        ..QueryTicket::default()
    };
    let sealed = sealer().seal(Purpose::Query, &query, VALID_FOR);
    let answer = gateway.call(
        "DoGet",
        HeaderMap::new(),
        [Ticket::new(sealed).encode_to_vec()],
    );
    assert!(answer.is_ok(), "{sql}: {answer:?}");
    let tickets = stub.take_tickets().into_iter().map(|sealed| {
        let opened = sealer().open::<FragmentTicket>(Purpose::Fragment, &sealed);
        opened.expect("it was sealed by the gateway")
    });
    let mut by_fragment = BTreeMap::new();
    for mut ticket in tickets.filter(|ticket| ticket.query_id().is_ok_and(|of| of == id)) {
        ticket.cluster = 0;
        ticket.as_of_us = 0;
        ticket.query_id = Bytes::from_static(&[1; 16]);
        for member in &mut ticket.members {
            member.address.clear();
        }
        // The ticket of the worker with the most shards is kept. Among equals, the lowest worker id
        // wins.
        let rank = |ticket: &FragmentTicket| {
            let shards = ticket.scans.iter().map(|scan| scan.shards.len());
            (shards.sum::<usize>(), Reverse(ticket.worker_id))
        };
        let largest = by_fragment
            .entry(ticket.fragment_id.clone())
            .or_insert_with(|| ticket.clone());
        if rank(&ticket) > rank(largest) {
            *largest = ticket;
        }
    }
    by_fragment.into_values().collect()
}
