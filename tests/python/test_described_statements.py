"""Tests that a statement which a driver describes before it runs it is parsed and planned once, and that it then has
the rows and the errors of the moment at which it runs. test_security.py has the tests of its rights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flight_sql import bound, described, prepared, prepared_command, rows
from pyarrow import flight

import volary


@pytest.fixture
def client(cluster) -> Iterator[flight.FlightClient]:
    with flight.connect(cluster.uri) as client:
        yield client


def between(table: str) -> str:
    """Returns a query that has no generic plan."""
    return f"SELECT k, name FROM {table} WHERE k > 1 AND k < 4 ORDER BY k"


def parsing_times(connection: volary.Connection, statement: str) -> list[int | None]:
    """Returns how long each run of a statement parsed it, in microseconds."""
    rows = connection.sql("SELECT parsing_us FROM system.query_log WHERE statement = ?", [statement])
    return [microseconds for (microseconds,) in rows.rows()]


def run(client: flight.FlightClient, handle: bytes) -> list[tuple[Any, ...]]:
    """Returns the rows of a prepared query."""
    table = rows(client, prepared_command(handle))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_prepared_query_is_parsed_once_for_all_connections_of_a_user(cluster, client, connection, birds):
    query = between(birds)
    handle = prepared(client, query)[1]
    assert run(client, handle) == [(2, "kaka"), (3, None)]
    with flight.connect(cluster.uri) as other:
        assert prepared(other, query)[1]
        assert run(other, handle) == [(2, "kaka"), (3, None)]
    assert parsing_times(connection, query) == [0, 0]
    # The rows of a statement that was not prepared show that the time is otherwise counted.
    alone = f"{query} LIMIT 7"
    assert rows(client, described(alone)).num_rows == 2
    (microseconds,) = parsing_times(connection, alone)
    assert microseconds
    assert microseconds > 0


def test_a_query_whose_schema_was_asked_for_is_parsed_once(client, connection, birds):
    query = between(birds)
    assert client.get_schema(described(query)).schema.names == ["k", "name"]
    assert rows(client, described(query)).num_rows == 2
    assert parsing_times(connection, query) == [0]


@pytest.mark.parametrize("statement", ["INSERT INTO {} (k, name) VALUES (6, 'auk')", "EXPLAIN SELECT k FROM {}"])
def test_a_prepared_statement_of_any_kind_is_parsed_once(client, connection, birds, statement):
    statement = statement.format(birds)
    handle = prepared(client, statement)[1]
    assert len(run(client, handle)) >= 1
    assert parsing_times(connection, statement) == [0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("INSERT INTO {table} (k, name) VALUES (3, 'auk')", [(2, "kaka"), (3, "auk"), (3, None)]),
        ("TRUNCATE {table}", []),
        ("CREATE OR REPLACE VIEW {view} AS SELECT k + 1 AS k, name FROM {table}", [(2, "kea"), (3, "kaka")]),
        # The column k has another type then.
        ("CREATE OR REPLACE VIEW {view} AS SELECT concat(k) AS k, k AS name FROM {table}", [("2", 2), ("3", 3)]),
        (
            "DROP VIEW {view}; DROP TABLE {table}; CREATE TABLE {table} (k INT, name BIGINT) WITH (shard_key = 'k'); "
            "INSERT INTO {table} VALUES (2, 7); CREATE VIEW {view} AS SELECT * FROM {table}",
            [(2, 7)],
        ),
    ],
)
@pytest.mark.parametrize("reads", ["table", "view"])
def test_a_described_query_sees_what_has_changed_since(client, connection, birds, reads, change, expected):
    view = f"view_of_{birds}"
    connection.sql(f"CREATE VIEW {view} AS SELECT * FROM {birds}")
    names = {"table": birds, "view": view}
    query = f"SELECT k, name FROM {names[reads]} WHERE k > 1 AND k < 4 ORDER BY k, name"
    try:
        handle = prepared(client, query)[1]
        for statement in change.format(**names).split("; "):
            connection.sql(statement)
        if "OR REPLACE" in change and reads == "table":
            expected = [(2, "kaka"), (3, None)]
        assert run(client, handle) == expected
    finally:
        connection.sql(f"DROP VIEW {view}")


def test_a_described_query_of_a_dropped_table_fails(client, connection, birds):
    handle = prepared(client, between(birds))[1]
    connection.sql(f"DROP TABLE {birds}")
    with pytest.raises(KeyError, match="does not exist"):
        run(client, handle)


def test_the_time_of_a_described_query_is_that_of_its_run(client, connection):
    handle = prepared(client, "SELECT now() AS prepared_now")[1]
    ((before,),) = connection.sql("SELECT now()").rows()
    ((first,),) = run(client, handle)
    ((second,),) = run(client, handle)
    assert before < first < second


def test_the_values_of_parameters_are_not_kept(client, birds):
    handle = prepared(client, f"SELECT k FROM {birds} WHERE k > ? AND k < ? ORDER BY k")[1]
    for values, expected in [((1, 4), [(2,), (3,)]), ((3, 9), [(4,), (5,)]), ((3, 4), []), ((0, 2), [(1,)])]:
        assert run(client, bound(client, handle, values)) == expected


def test_a_parameter_in_the_frame_of_a_window_has_its_value(client, birds):
    frame = "ROWS BETWEEN ? PRECEDING AND CURRENT ROW"
    handle = prepared(client, f"SELECT k, sum(k) OVER (ORDER BY k {frame}) FROM {birds} WHERE k < 4 ORDER BY k")[1]
    assert run(client, bound(client, handle, [1])) == [(1, 1), (2, 3), (3, 5)]
    assert run(client, bound(client, handle, [2])) == [(1, 1), (2, 3), (3, 6)]


def test_a_described_query_has_the_settings_of_when_it_runs(client, birds):
    query = f"SELECT CAST(CAST(day AS TIMESTAMP WITH TIME ZONE) AS VARCHAR) FROM {birds} WHERE k > 0 AND k < 2"
    session = flight.FlightCallOptions(headers=[client.authenticate_basic_token("kea", "")])
    handle = prepared(client, query, session)[1]
    texts = []
    for zone in ("Asia/Tokyo", "UTC"):
        rows(client, described(f"SET TIME ZONE '{zone}'"), session)
        texts.append(rows(client, prepared_command(handle), session).column(0).to_pylist())
    assert texts[0] != texts[1]


@pytest.mark.parametrize("column_type", ["BIGINT", "INT", "VARCHAR"])
def test_a_described_query_with_a_long_list_sees_a_column_of_another_type(client, connection, birds, column_type):
    keys = ", ".join(str(key) for key in range(1, 5_000))
    query = f"SELECT k FROM {birds} WHERE k IN ({keys}) AND k > 1 AND k < 4 ORDER BY k"
    handle = prepared(client, query)[1]
    assert run(client, handle) == [(2,), (3,)]
    connection.sql(f"DROP TABLE {birds}")
    connection.sql(f"CREATE TABLE {birds} (k {column_type}) WITH (shard_key = 'k')")
    connection.sql(f"INSERT INTO {birds} VALUES (3), (6000)")
    key = "3" if column_type == "VARCHAR" else 3
    assert run(client, handle) == [(key,)]
    assert connection.sql(query).rows() == [(key,)]


def test_a_described_explain_explains_the_plan_of_now(client, connection, birds):
    handle = prepared(client, f"EXPLAIN ANALYZE VERBOSE {between(birds)}")[1]
    connection.sql(f"INSERT INTO {birds} (k, name) VALUES (2, 'auk')")
    text = "\n".join(str(row) for row in run(client, handle))
    assert "output_rows=3" in text
