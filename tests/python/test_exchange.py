"""Tests statements that run in one DoExchange, as pyarrow sends it: with parameters, and notes and rows as answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import protobuf as pb
import pyarrow as pa
import pytest
from processes import PATIENCE_SECONDS, until
from pyarrow import flight

ENDLESS = "SELECT count(*) FROM generate_series(1, 10000000) a CROSS JOIN generate_series(1, 10000000) b"
QUERIES = [
    "SELECT * FROM {t}",
    "SELECT name, count(*) AS n, max(day) AS day FROM {t} GROUP BY name",
    "SELECT k, arrow_cast(k, 'UInt64') AS u, arrow_cast(name, 'Utf8View') AS v FROM {t} WHERE k > 2",
    "SELECT * FROM {t} WHERE k < 0",
    "SHOW timezone",
    "EXPLAIN SELECT * FROM {t}",
    "SELECT * FROM system.tables WHERE name = '{t}'",
]


@dataclass
class Answer:
    """All notes and batches of an exchange."""

    notes: list[dict[str, Any]] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)

    def rows(self) -> list[dict[str, Any]]:
        return self.table.to_pylist()


@pytest.fixture
def client(cluster):
    with flight.connect(cluster.uri) as client:
        yield client


def headers(**named: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(
        headers=[(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    )


def exchange(
    client: flight.FlightClient,
    asked: str | bytes | flight.FlightDescriptor,
    batches: Iterable[pa.RecordBatch] = (),
    options: flight.FlightCallOptions | None = None,
) -> Answer:
    batches = list(batches)
    if not isinstance(asked, flight.FlightDescriptor):
        asked = flight.FlightDescriptor.for_command(asked)
    writer, reader = client.do_exchange(asked, options)
    answer = Answer()
    try:
        writer.begin(batches[0].schema if batches else pa.schema([]))
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        while True:
            chunk = reader.read_chunk()
            if chunk.data is None:
                answer.notes.append(json.loads(chunk.app_metadata.to_pybytes()))
            else:
                answer.batches.append(chunk.data)
    except StopIteration:
        return answer
    finally:
        reader.cancel()


def row(*values: Any) -> pa.RecordBatch:
    return pa.record_batch({str(index): [value] for index, value in enumerate(values)})


@pytest.mark.parametrize("types", ["classic", "native"])
@pytest.mark.parametrize("query", QUERIES)
def test_it_answers_what_getflightinfo_and_doget_do(client, birds, query, types):
    query, options = query.format(t=birds), headers(volary_types=types)
    info = client.get_flight_info(flight.FlightDescriptor.for_command(query), options)
    expected = client.do_get(info.endpoints[0].ticket, options).read_all()
    answer = exchange(client, query, options=options)
    rows = pa.Table.from_batches(answer.batches, expected.schema)
    assert rows.schema.equals(expected.schema, check_metadata=True)
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, expected.to_pylist()))
    first, *_, last = answer.notes
    assert first.keys() == {"query_id"}
    assert last.keys() == {"statistics"}
    assert last["statistics"]["rows"] == expected.num_rows


def test_parameters_come_with_the_statement(client, birds):
    query = f"SELECT k FROM {birds} WHERE k = ? AND price > ?"
    assert exchange(client, query, [row(2, 1)]).rows() == [{"k": 2}]
    assert exchange(client, query, [row(2, None)]).batches == []
    for batches in ([], [row(1)], [row(1, 2, 3)]):
        with pytest.raises(pa.ArrowInvalid, match="parameter"):
            exchange(client, query, batches)
    for batches in ([row(1, 2), row(3, 4)], [pa.record_batch({"a": [1, 2], "b": [3, 4]})]):
        with pytest.raises(pa.ArrowInvalid, match="a query takes one row of parameters"):
            exchange(client, query, batches)


def test_a_statement_that_writes_has_run_and_says_how_many_rows(client, empty_table):
    insert = f"INSERT INTO {empty_table} VALUES (?, ?, ?, ?)"
    (begin, end) = exchange(client, insert, [row(1, "kea", None, None)]).notes
    assert begin["rows_affected"] == 1
    assert end["statistics"]["rows"] == 1
    two = pa.record_batch({"0": [3, 4], "1": ["a", "b"], "2": [1.0, 2.0], "3": pa.nulls(2)})
    many = [row(2, "kaka", 1.0, None), two]
    assert exchange(client, insert, many).notes[0]["rows_affected"] == 3
    assert exchange(client, f"SELECT count(*) AS n FROM {empty_table}").rows() == [{"n": 4}]
    (begin, _) = exchange(client, f"CREATE VIEW {empty_table}_view AS SELECT 1 AS n").notes
    assert begin["rows_affected"] == 0
    exchange(client, f"DROP VIEW {empty_table}_view")


def test_a_statement_that_runs_for_each_row_is_one_in_the_log_and_says_how_far_it_came(client, birds):
    each = f"INSERT INTO {birds} SELECT k + 100 / ?, name, price, day FROM {birds} WHERE k = ?"
    (begin, end) = exchange(client, each, [row(10, 1), row(20, 1)]).notes
    assert begin["rows_affected"] == end["statistics"]["rows"] == 2
    logged = "SELECT outcome, rows FROM system.query_log WHERE query_id = ?"
    assert exchange(client, logged, [row(begin["query_id"])]).rows() == [{"outcome": "finished", "rows": 2}]
    with pytest.raises(pa.ArrowInvalid, match=r"row 2 of the parameters \(1 rows before it were applied\).*zero"):
        exchange(client, each, [row(50, 1), row(0, 1), row(100, 1)])
    assert exchange(client, f"SELECT count(*) AS n FROM {birds}").rows() == [{"n": 8}]


def test_the_notes_name_the_query_that_the_log_has(client, birds):
    answer = exchange(client, f"SELECT * FROM {birds}", options=headers(volary_query_tag="tagged-exchange"))
    logged = "SELECT query_tag, rows, workers, shards, planning_us FROM system.query_log WHERE query_id = ?"
    statistics = answer.notes[-1]["statistics"]
    (found,) = exchange(client, logged, [row(answer.notes[0]["query_id"])]).rows()
    assert found.pop("query_tag") == "tagged-exchange"
    assert found == {name: statistics[name] for name in ("rows", "workers", "shards", "planning_us")}
    assert statistics["workers"] == 3
    assert statistics["shards"] == 8


def test_listings_are_answered_too(client, birds):
    named = pb.command("CommandGetTables", pb.field(3, birds) + pb.field(5, 1))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(named))
    assert exchange(client, named).table == client.do_get(info.endpoints[0].ticket).read_all()
    version = exchange(client, pb.command("CommandGetSqlInfo", pb.field(1, 1))).rows()
    assert version[0]["value"][0].isdigit()
    assert exchange(client, flight.FlightDescriptor.for_path(birds)).table.num_rows == 5
    assert exchange(client, pb.command("CommandStatementQuery", pb.field(1, "SELECT 7 AS n"))).rows() == [{"n": 7}]


def test_rows_are_ingested_and_those_of_a_call_that_breaks_off_are_not(client, name):
    # TableDefinitionOptions: create, append.
    definition = pb.field(1, pb.field(1, 1) + pb.field(2, 2))
    option = pb.field(1000, pb.field(1, "shards") + pb.field(2, "8"))
    ingest = pb.command("CommandStatementIngest", definition + pb.field(2, name) + option)
    rows = pa.record_batch({"k": [1, 2, 3]})
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(ingest))
    writer.begin(rows.schema)
    writer.write_batch(rows)
    reader.cancel()
    with pytest.raises(flight.FlightCancelledError):
        writer.close()

    def ingested() -> Answer | None:
        try:
            return exchange(client, ingest, [rows, rows])
        except pa.ArrowException as error:
            # The gateway may not have noticed yet that the other call was aborted.
            if "is being created by another statement" in str(error):
                return None
            raise

    begin, end = until(ingested, "the call that was broken off has ended").notes
    assert begin["rows_affected"] == 6
    assert end["statistics"]["rows"] == 6
    assert exchange(client, f"SELECT count(*) AS n FROM {name}").rows() == [{"n": 6}]
    assert exchange(client, f"SELECT shards FROM system.tables WHERE name = '{name}'").rows() == [{"shards": 8}]


def test_what_is_wrong_is_said_before_and_between_rows(client, birds):
    with pytest.raises(pa.ArrowKeyError, match=r"NOT_FOUND: query .*brids"):
        exchange(client, "SELECT * FROM brids")
    with pytest.raises(pa.ArrowInvalid, match="Divide by zero"):
        exchange(client, f"SELECT 1 / (k - 3) AS n FROM {birds}")
    prepared = pb.command("CommandPreparedStatementQuery", pb.field(1, b"handle"))
    with pytest.raises(pa.ArrowNotImplementedError, match="takes no prepared statement"):
        exchange(client, prepared)
    with pytest.raises(pa.ArrowInvalid, match="neither a message of Flight SQL nor SQL"):
        exchange(client, "")
    with pytest.raises(pa.ArrowInvalid, match='volary-progress is "maybe"; write on or off'):
        exchange(client, "SELECT 1", options=headers(volary_progress="maybe"))
    with pytest.raises(pa.ArrowInvalid, match="there are no transactions"):
        exchange(client, pb.command("CommandStatementQuery", pb.field(1, "SELECT 1") + pb.field(2, b"t")))


def test_a_timeout_ends_it(client):
    with pytest.raises(flight.FlightTimedOutError):
        exchange(client, ENDLESS, options=flight.FlightCallOptions(timeout=0.3))


def test_cancelling_it_ends_the_query(client, connection, background):
    tagged = "SELECT count(*) FROM system.queries WHERE query_tag = 'cancelled-exchange'"
    asked = flight.FlightDescriptor.for_command(ENDLESS)
    writer, reader = client.do_exchange(asked, headers(volary_query_tag="cancelled-exchange"))
    writer.begin(pa.schema([]))
    writer.done_writing()
    waits = background(lambda: [reader.read_chunk() for _ in range(2)])
    until(lambda: connection.sql(tagged).rows() == [(1,)], "the query runs")
    reader.cancel()
    assert isinstance(waits.exception(timeout=PATIENCE_SECONDS), flight.FlightCancelledError)
    until(lambda: connection.sql(tagged).rows() == [(0,)], "the query has ended")
    with pytest.raises(flight.FlightCancelledError):
        writer.close()


def test_a_client_that_asks_is_told_how_far_the_query_is(client, connection, name):
    connection.sql(f"CREATE TABLE {name} (k BIGINT) WITH (shard_key = 'k', shards = 8)")
    connection.sql(f"INSERT INTO {name} SELECT value FROM generate_series(1, 300000)")
    # The workers send all their rows, and the gateway never comes to an end.
    endless = f"SELECT count(*) FROM {name} CROSS JOIN generate_series(1, 9000000000000000000) t(n) WHERE n + k < 0"
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(endless), headers(volary_progress="on"))
    writer.begin(pa.schema([]))
    writer.done_writing()
    progress: list[float] = []
    while not progress or progress[-1] < 0.99:
        note = json.loads(reader.read_chunk().app_metadata.to_pybytes())
        progress += [note["progress"]] if "progress" in note else []
    reader.cancel()
    with pytest.raises(flight.FlightCancelledError):
        writer.close()
    assert progress == sorted(progress)
    assert all(0 <= done < 1 for done in progress)
    slow = f"SELECT sum(length(repeat(CAST(k AS VARCHAR), 500))) AS n FROM {name}"
    assert not any("progress" in note for note in exchange(client, slow).notes)


def test_a_client_that_asks_is_told_where_the_workers_have_the_rows(client, birds):
    direct = headers(volary_direct_results="on")
    begin, end = exchange(client, f"SELECT * FROM {birds} WHERE k > ?", [row(0)], direct).notes
    info = flight.FlightInfo.deserialize(base64.b64decode(begin["flight_info"]))
    assert len(info.endpoints) > 1
    tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert sorted(pa.concat_tables(tables)["k"].to_pylist()) == [1, 2, 3, 4, 5]
    assert end["statistics"]["planning_us"] > 0
    merged = exchange(client, f"SELECT count(*) AS n FROM {birds}", options=direct)
    assert "flight_info" not in merged.notes[0]
    assert merged.rows() == [{"n": 5}]
