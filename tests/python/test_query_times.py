"""Tests where a statement's time went: the times of its stages in system.query_log, and in a result's statistics."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest
from processes import until
from pyarrow import flight

import volary

STAGES_OF_WORKERS = (
    "worker_queued_us",
    "worker_bind_us",
    "worker_index_us",
    "worker_read_us",
    "worker_compute_us",
    "worker_encode_us",
    "wire_us",
)
STAGES_OF_ROWS = ("encode_us", "client_wait_us")
COLUMNS = (
    "parsing_us",
    "planning_us",
    "plan_found",
    "queued_us",
    "running_us",
    *STAGES_OF_WORKERS,
    *STAGES_OF_ROWS,
    "workers",
)


def logged(connection: volary.Connection, statement: str) -> list[dict[str, Any]]:
    """Returns the times of all runs of a statement, in the order in which they ended."""
    rows = connection.sql(f"SELECT {', '.join(COLUMNS)} FROM system.query_log WHERE statement = ?", [statement])
    return rows.to_arrow().to_pylist()


def only_log(connection: volary.Connection, statement: str) -> dict[str, Any]:
    (only,) = logged(connection, statement)
    return only


def check_sums(times: dict[str, Any]) -> None:
    """Checks the sums that docs/operations.md promises."""
    assert all(times[stage] >= 0 for stage in (*STAGES_OF_WORKERS, *STAGES_OF_ROWS)), times
    # On each worker these come one after another, while the statement runs.
    one_by_one = times["worker_queued_us"] + times["worker_bind_us"] + times["wire_us"]
    assert one_by_one <= times["workers"] * times["running_us"], times
    assert times["encode_us"] + times["client_wait_us"] <= times["running_us"], times


@pytest.fixture
def many_birds(connection: volary.Connection, empty_table: str) -> str:
    """A table with so many rows that they are in segments, and that each worker sends several messages."""
    connection.sql(
        f"INSERT INTO {empty_table} (k, name, price) "
        "SELECT value, concat('bird ', value), value / 2.0 FROM generate_series(1, 300000) t(value)"
    )
    return empty_table


@pytest.mark.parametrize(
    ("query", "encoded_by_gateway"),
    [
        # The workers' messages pass the gateway as they are.
        ("SELECT k, name FROM {} WHERE price > 7", False),
        # The gateway merges rows, and encodes them again.
        ("SELECT k, name FROM {} ORDER BY name, k", True),
        # The workers send rows in the order of their buckets.
        ("SELECT name, count(*) FROM {} GROUP BY name", True),
    ],
)
def test_each_stage_of_a_query_over_several_workers_has_its_time(connection, many_birds, query, encoded_by_gateway):
    statement = query.format(many_birds)
    assert connection.sql(statement).to_arrow().num_rows > 100_000
    times = only_log(connection, statement)
    assert times["workers"] == 3
    assert times["plan_found"] is False
    for stage in ("parsing_us", "planning_us", "worker_bind_us", "worker_read_us", "worker_encode_us"):
        assert times[stage] > 0, (stage, times)
    if encoded_by_gateway:
        assert times["encode_us"] > 0
    # Without a condition on keys, no index is asked.
    assert times["worker_index_us"] == 0
    check_sums(times)


def test_workers_compute_what_is_pushed_to_them(connection, many_birds):
    statement = f"SELECT k % 1000 AS n, count(*), sum(price * k) FROM {many_birds} GROUP BY n"
    assert len(connection.sql(statement).rows()) == 1_000
    times = only_log(connection, statement)
    assert times["worker_compute_us"] > 0
    assert times["worker_read_us"] > 0
    check_sums(times)


def test_a_statement_that_is_repeated_finds_its_plan(connection, birds):
    statement = f"SELECT name FROM {birds} WHERE k = 2"
    for _ in range(4):
        assert connection.sql(statement).rows() == [("kaka",)]
    runs = logged(connection, statement)
    found = [run["plan_found"] for run in runs]
    assert (found[0], found[-1]) == (False, True)
    assert found == sorted(found)
    assert all(run["parsing_us"] is not None for run in runs)
    assert all(run["workers"] == 1 for run in runs)
    for run in runs:
        check_sums(run)


@pytest.mark.parametrize(
    "statement",
    ["SELECT id AS node FROM system.nodes", "SELECT value AS alone FROM generate_series(1, 3) t(value)"],
)
def test_a_query_that_asks_no_worker_has_no_times_of_workers(connection, statement):
    assert len(connection.sql(statement).rows()) >= 3
    times = only_log(connection, statement)
    assert {times[stage] for stage in STAGES_OF_WORKERS} == {None}
    assert times["plan_found"] is False
    assert times["parsing_us"] > 0
    assert times["encode_us"] + times["client_wait_us"] <= times["running_us"]


def test_a_statement_that_writes_has_only_the_times_that_it_took(connection, empty_table):
    statement = f"INSERT INTO {empty_table} (k) VALUES (1), (2), (3)"
    statistics = connection.sql(statement).statistics
    times = only_log(connection, statement)
    assert times["parsing_us"] > 0
    assert times["planning_us"] > 0
    unknown = {"plan_found", *STAGES_OF_WORKERS, *STAGES_OF_ROWS}
    assert {name for name, value in times.items() if value is None} == unknown
    assert {field.name for field in fields(statistics) if getattr(statistics, field.name) is None} == unknown
    definition = f"CREATE VIEW {empty_table}_view AS SELECT 1 AS n"
    connection.sql(definition)
    assert {name for name, value in only_log(connection, definition).items() if value is None} == unknown
    connection.sql(f"DROP VIEW {empty_table}_view")
    # Rows that are sent as Arrow batches have no text that could be parsed.
    connection.ingest(empty_table, pa.table({"k": [4, 5]}))
    ((parsing, found, bind),) = connection.sql(
        "SELECT parsing_us, plan_found, worker_bind_us FROM system.query_log "
        f"WHERE statement LIKE 'INGEST%{empty_table}%'"
    ).rows()
    assert (parsing, found, bind) == (None, None, None)


def test_a_statement_that_fails_has_the_times_until_then(connection, birds):
    for statement, is_parsed in [(f"SELECT nothing FROM {birds}", True), (f"SELEC k FROM {birds}", False)]:
        with pytest.raises(volary.Error):
            connection.sql(statement)
        times = only_log(connection, statement)
        assert (times["parsing_us"] is not None) == is_parsed
        assert {times[stage] for stage in (*STAGES_OF_WORKERS, *STAGES_OF_ROWS, "plan_found")} == {None}


def test_the_statistics_of_a_result_say_what_the_log_says(connection, birds):
    statement = f"SELECT k, name FROM {birds} WHERE k IN (1, 3, 5)"
    for _ in range(4):
        result = connection.sql(statement)
        assert len(result.rows()) == 3
    statistics = result.statistics
    times = logged(connection, statement)[-1]
    # The log has the time until the last row, and the statistics that until they were sent.
    assert times.pop("running_us") <= statistics.running_us
    assert {name: getattr(statistics, name) for name in times} == times
    assert statistics.plan_found is True
    # The workers take the rows of keys from their index, or read them.
    assert statistics.worker_index_us + statistics.worker_bind_us > 0


def test_with_two_calls_the_second_one_has_all_times(cluster, connection, birds):
    statement = f"SELECT k AS twice FROM {birds} WHERE price > 1"
    with flight.connect(cluster.uri) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(statement))
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 4
    times = only_log(connection, statement)
    assert times["parsing_us"] > 0
    assert times["plan_found"] is False
    check_sums(times)


def test_rows_that_a_client_does_not_read_wait_for_the_client(cluster, connection):
    statement = "SELECT value AS unread FROM generate_series(1, 5000000) t(value)"
    running = f"SELECT encode_us, client_wait_us FROM system.queries WHERE statement = '{statement}'"
    waited = 20_000

    def waits() -> bool:
        return any(wait is not None and wait > waited for _, wait in connection.sql(running).rows())

    with flight.connect(cluster.uri) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(statement))
        reader = client.do_get(info.endpoints[0].ticket)
        rows = reader.read_chunk().data.num_rows
        until(waits, "the rows wait for the client")
        rows += reader.read_all().num_rows
    assert rows == 5_000_000
    times = only_log(connection, statement)
    assert times["client_wait_us"] > waited
    assert times["encode_us"] > 0
    assert times["encode_us"] + times["client_wait_us"] <= times["running_us"]


def test_explain_analyze_shows_the_stages_of_the_slowest_worker(connection, many_birds):
    ((_, text),) = connection.sql(f"EXPLAIN ANALYZE SELECT k % 7, count(*) FROM {many_birds} GROUP BY 1").rows()
    (slowest,) = [line for line in text.splitlines() if "slowest: " in line]
    shown = [value.partition("=")[0] for value in slowest.split() if "=" in value]
    assert [stage for stage in ("bind", "index", "read", "compute", "encode", "wire") if stage not in shown] == []


def test_the_members_of_relays_are_counted(connection, many_birds):
    connection.sql("SET relays = 2")
    statement = f"SELECT k % 7 AS n, count(*) FROM {many_birds} GROUP BY n"
    assert "relays" in str(connection.sql(f"EXPLAIN {statement}").rows())
    assert len(connection.sql(statement).rows()) == 7
    times = only_log(connection, statement)
    # The relays merge, and their members read.
    for stage in ("worker_bind_us", "worker_read_us", "worker_compute_us", "worker_encode_us"):
        assert times[stage] > 0, (stage, times)
