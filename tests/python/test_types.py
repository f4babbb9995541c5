"""Tests UUIDs, intervals and durations with clients: ingestion, files, parameters, results and listings."""

from __future__ import annotations

import datetime
import json
import uuid
from pathlib import Path
from typing import Any

import protobuf as pb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_flightsql import dbapi as adbc
from flight_sql import rows
from pyarrow import flight

import volary
from volary import dbapi

pytestmark = pytest.mark.server

ONE, TWO = uuid.UUID(int=1), uuid.UUID("f0000000-0000-0000-0000-000000000002")
BYTES = pa.array([ONE.bytes, TWO.bytes, None], pa.binary(16))
WITH_EXTENSION = pa.ExtensionArray.from_storage(pa.uuid(), BYTES)
TYPE_NAME = b"ARROW:FLIGHT:SQL:TYPE_NAME"
MONTHS = pa.array([pa.MonthDayNano([14, -3, 5]), None], pa.month_day_nano_interval())


def types(connection: volary.Connection, table: str) -> list[tuple[str, str]]:
    return connection.sql(
        "SELECT column_name, data_type FROM information_schema.columns"
        f" WHERE table_name = '{table}' ORDER BY ordinal_position"
    ).rows()


def make(connection: volary.Connection, name: str, columns: str, options: str = "shard_key = 'k', shards = 8") -> None:
    connection.sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")


def test_clients_get_uuids_as_texts_with_the_name_of_their_type(connection):
    table = connection.sql("SELECT UUID '00000000-0000-0000-0000-000000000001' AS id, 'x' AS t").to_arrow()
    assert table.schema.types == [pa.string(), pa.string()]
    assert table.schema.field("id").metadata == {TYPE_NAME: b"UUID"}
    assert table.to_pylist() == [{"id": str(ONE), "t": "x"}]


def test_clients_that_ask_for_native_types_get_the_extension(cluster):
    options = flight.FlightCallOptions(headers=[(b"volary-types", b"native")])
    query = "SELECT max(id) AS id FROM (VALUES (UUID '00000000-0000-0000-0000-000000000001')) t(id)"
    with flight.connect(cluster.uri) as client:
        (read,) = [rows(client, pb.command("CommandStatementQuery", pb.field(1, query)), options)]
    assert read.schema.field("id").type == pa.uuid()
    assert read.to_pylist() == [{"id": ONE}]


def test_python_values_are_uuids(connection, cluster, name):
    make(connection, name, "k UUID, n INT")
    with dbapi.connect(cluster.uri) as driver, driver.cursor() as cursor:
        cursor.execute(f"INSERT INTO {name} VALUES (?, ?)", (ONE, 1))
        cursor.executemany(f"INSERT INTO {name} VALUES (?, ?)", [(TWO, 2), (None, 3), (ONE, 4)])
        cursor.execute(f"SELECT k, n FROM {name} WHERE k = ? ORDER BY n", (ONE,))
        assert cursor.fetchall() == [(ONE, 1), (ONE, 4)]
        cursor.execute(f"SELECT k FROM {name} WHERE k IN (?, ?) AND n > 1 ORDER BY k", (TWO, ONE.bytes))
        assert cursor.fetchall() == [(ONE,), (TWO,)]
        cursor.execute(f"SELECT k FROM {name} WHERE k IS NULL")
        assert cursor.fetchone() == (None,)
        with pytest.raises(dbapi.DataError) as caught:
            cursor.execute(f"SELECT k FROM {name} WHERE k = ?", ("kea",))
        assert caught.value.sqlstate == "22P02"
    assert connection.sql(f"SELECT min(k), max(k) FROM {name}").rows() == [(ONE, TWO)]


def test_uuids_of_arrow_are_bound(connection, name):
    make(connection, name, "k UUID, t VARCHAR")
    both = pa.table({"k": WITH_EXTENSION, "t": WITH_EXTENSION})
    connection.sql(f"INSERT INTO {name} VALUES (?, ?)", both)
    assert connection.sql(f"SELECT k, t FROM {name} WHERE k IS NOT NULL ORDER BY k").rows() == [
        (ONE, str(ONE)),
        (TWO, str(TWO)),
    ]


@pytest.mark.parametrize("column", [WITH_EXTENSION, BYTES, pa.array([str(ONE), str(TWO), None])])
def test_rows_are_added_to_a_column_of_uuids(connection, driver, name, column):
    make(connection, name, "k UUID, n BIGINT")
    table = pa.table({"k": column, "n": [1, 2, 3]})
    with driver.cursor() as cursor:
        assert cursor.adbc_ingest(name, table, mode="append") == 3
    assert connection.sql(f"SELECT k, n FROM {name} ORDER BY n").rows() == [(ONE, 1), (TWO, 2), (None, 3)]
    assert connection.sql(f"SELECT n FROM {name} WHERE k = '{TWO}'").rows() == [(2,)]


def test_a_table_of_ingested_rows_has_uuids_only_if_the_client_says_so(connection, driver, name):
    table = pa.table({"k": [1, 2, 3], "id": WITH_EXTENSION, "hash": BYTES})
    with driver.cursor() as cursor:
        cursor.adbc_ingest(name, table, mode="create")
    assert types(connection, name) == [("k", "BIGINT"), ("id", "UUID"), ("hash", "BYTEA")]
    assert connection.sql(f"SELECT id, hash FROM {name} ORDER BY k").rows() == [
        (ONE, ONE.bytes),
        (TWO, TWO.bytes),
        (None, None),
    ]


def test_wrong_values_are_refused_with_their_column(connection, driver, name):
    make(connection, name, "k UUID, n BIGINT")
    for wrong in (pa.array(["kea"]), pa.array([b"kea"])):
        with driver.cursor() as cursor, pytest.raises(adbc.ProgrammingError, match="column k"):
            cursor.adbc_ingest(name, pa.table({"k": wrong, "n": [1]}), mode="append")


def write(folder: Path, kind: str) -> Path:
    """Writes a file with the two UUIDs and a NULL, and returns its path."""
    texts: list[Any] = [str(ONE), str(TWO).upper(), None]
    path = folder / f"uuids.{kind.split('-')[0]}"
    match kind:
        case "csv":
            path.write_text("k,n\n" + "".join(f"{text or ''},{n}\n" for n, text in enumerate(texts, 1)))
        case "json":
            lines = (json.dumps({"k": text, "n": n}) for n, text in enumerate(texts, 1))
            path.write_text("\n".join(lines))
        case "parquet-uuid":
            pq.write_table(pa.table({"k": WITH_EXTENSION, "n": [1, 2, 3]}), path)
        case "parquet-bytes":
            pq.write_table(pa.table({"k": BYTES, "n": [1, 2, 3]}), path, store_schema=False)
        case "parquet-text":
            pq.write_table(pa.table({"k": texts, "n": [1, 2, 3]}), path)
        case "parquet-binary":
            pq.write_table(pa.table({"k": BYTES.cast(pa.binary()), "n": [1, 2, 3]}), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "json", "parquet-uuid", "parquet-bytes", "parquet-text", "parquet-binary"])
def test_uuids_are_copied_from_files(connection, name, tmp_path, kind):
    make(connection, name, "k UUID, n BIGINT")
    connection.sql(f"COPY {name} FROM '{write(tmp_path, kind)}'")
    assert connection.sql(f"SELECT k, n FROM {name} ORDER BY n").rows() == [(ONE, 1), (TWO, 2), (None, 3)]


def test_a_line_without_a_uuid_is_named(connection, name, tmp_path):
    make(connection, name, "k UUID, n BIGINT")
    path = tmp_path / "wrong.csv"
    path.write_text(f"k,n\n{ONE},1\nkea,2\n")
    with pytest.raises(volary.InvalidArgumentError, match="line 3, column k: 'kea' is not a valid UUID"):
        connection.sql(f"COPY {name} FROM '{path}'")


def test_a_lookup_by_a_uuid_asks_one_shard_and_reads_few_row_groups(connection, name):
    make(connection, name, "k UUID, n BIGINT", "shard_key = 'k', shards = 8, sort_key = 'k'")
    connection.sql(f"INSERT INTO {name} SELECT uuid(), value FROM generate_series(1, 1000) t(value)")
    connection.sql(f"INSERT INTO {name} VALUES ('{ONE}', 0)")
    for written in (f"'{ONE}'", f"UUID '{ONE}'", f"X'{ONE.hex}'"):
        query = f"SELECT n FROM {name} WHERE k = {written}"
        assert connection.sql(query).rows() == [(0,)]
        assert "shards=1/8" in str(connection.sql(f"EXPLAIN {query}").rows())
    query = f"SELECT n FROM {name} WHERE k < '00000000-0000-0000-0000-0000000000ff'"
    assert connection.sql(query).rows() == [(0,)]


def test_a_prepared_statement_says_what_it_takes(connection, driver, name):
    make(connection, name, "k UUID, i INTERVAL, d DURATION")
    with driver.cursor() as cursor:
        schema = cursor.adbc_prepare(f"SELECT * FROM {name} WHERE k = ? AND i > ? AND d > ?")
    # JDBC's driver binds texts, but neither intervals nor durations.
    assert schema.types == [pa.string(), pa.string(), pa.string()]


def test_intervals_and_durations_are_ingested_and_come_back(connection, driver, name):
    durations = {unit: pa.array([90_000, None], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")}
    table = pa.table({"k": [1, 2], "i": MONTHS} | durations)
    with driver.cursor() as cursor:
        cursor.adbc_ingest(name, table, mode="create")
        cursor.execute(f"SELECT * FROM {name} ORDER BY k")
        assert cursor.fetch_arrow_table().equals(table)
        cursor.adbc_ingest(name, table, mode="append")
    assert types(connection, name) == [
        ("k", "BIGINT"),
        ("i", "INTERVAL"),
        ("s", "DURATION(0)"),
        ("ms", "DURATION(3)"),
        ("us", "DURATION"),
        ("ns", "DURATION(9)"),
    ]
    assert connection.sql(f"SELECT count(*) FROM {name} WHERE i > INTERVAL '1 year' AND s = '25:00:00'").rows() == [
        (2,)
    ]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_intervals_and_durations_are_copied_from_files(connection, name, tmp_path, kind):
    make(connection, name, "k BIGINT, i INTERVAL, d DURATION")
    path = tmp_path / f"waits.{kind}"
    values = [(1, "1 day 02:00:00", "26:00:00"), (2, "P1M", "PT1H"), (3, None, None)]
    match kind:
        case "csv":
            path.write_text("k,i,d\n" + "".join(f"{k},{i or ''},{d or ''}\n" for k, i, d in values))
        case "json":
            path.write_text("\n".join(json.dumps({"k": k, "i": i, "d": d}) for k, i, d in values))
        case "parquet":
            hours = pa.array([datetime.timedelta(hours=26), datetime.timedelta(hours=1), None])
            pq.write_table(pa.table({"k": [1, 2, 3], "i": [i for _, i, _ in values], "d": hours}), path)
    connection.sql(f"COPY {name} FROM '{path}'")
    assert connection.sql(f"SELECT k, i, d FROM {name} ORDER BY k").rows() == [
        (1, pa.MonthDayNano([0, 1, 7_200_000_000_000]), datetime.timedelta(hours=26)),
        (2, pa.MonthDayNano([1, 0, 0]), datetime.timedelta(hours=1)),
        (3, None, None),
    ]


def test_intervals_and_durations_are_bound(connection, name):
    make(connection, name, "k BIGINT, i INTERVAL, d DURATION, t TIMESTAMP")
    values = (pa.MonthDayNano([1, 2, 3]), datetime.timedelta(hours=26), datetime.datetime(2026, 1, 1))
    connection.sql(f"INSERT INTO {name} VALUES (1, ?, ?, ?)", values)
    assert connection.sql(f"SELECT i, d, t FROM {name}").rows() == [values]
    found = connection.sql(f"SELECT k FROM {name} WHERE d > ? AND i < ?", [datetime.timedelta(days=1), "33 days"])
    assert found.rows() == [(1,)]
    later = connection.sql(f"SELECT t + CAST(? AS DURATION) FROM {name}", [datetime.timedelta(hours=1)])
    assert later.rows() == [(datetime.datetime(2026, 1, 1, 1),)]


@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("VARCHAR", (12, 2**31 - 1, "'", "'", ["length"], None)),
        ("NVARCHAR", (-9, 2**31 - 1, "'", "'", ["length"], None)),
        ("CLOB", (-1, 2**31 - 1, "'", "'", None, None)),
        ("JSON", (-1, 2**31 - 1, "'", "'", None, None)),
        ("VARBINARY", (-3, 2**31 - 1, "X'", "'", None, None)),
        ("BLOB", (-4, 2**31 - 1, "X'", "'", None, None)),
        ("BINARY", (-2, 2**31 - 1, "X'", "'", ["length"], None)),
        ("UUID", (1, 36, "'", "'", None, None)),
        ("BOOLEAN", (-7, 1, None, None, None, None)),
        ("DECIMAL", (3, 76, None, None, ["precision", "scale"], (-76, 76))),
        ("TIME", (92, 18, "'", "'", ["precision"], (0, 9))),
        ("TIMESTAMP", (93, 29, "'", "'", ["precision"], (0, 9))),
        ("TIMESTAMP WITH TIME ZONE", (93, 35, "'", "'", ["precision"], (0, 9))),
        ("INTERVAL", (10, 75, "INTERVAL '", "'", None, None)),
        ("DURATION", (10, 75, "'", "'", ["precision"], (0, 9))),
    ],
)
def test_types_are_described(cluster, name, described):
    with flight.connect(cluster.uri) as client:
        listed = rows(client, pb.command("CommandGetXdbcTypeInfo", b"")).to_pylist()
    (row,) = [row for row in listed if row["type_name"] == name]
    scales = (row["minimum_scale"], row["maximum_scale"])
    found = (row["data_type"], row["column_size"], row["literal_prefix"], row["literal_suffix"], row["create_params"])
    assert (*found, None if scales == (None, None) else scales) == described


def test_names_of_types_are_those_of_the_listing(cluster, connection, name):
    """A table can be created with each name that is listed, and the listing of columns says the same."""
    with flight.connect(cluster.uri) as client:
        listed = rows(client, pb.command("CommandGetXdbcTypeInfo", b""))["type_name"].to_pylist()
    other = {"NVARCHAR": "VARCHAR", "CHAR": "VARCHAR", "CLOB": "VARCHAR", "JSON": "VARCHAR"}
    other |= {"VARBINARY": "BYTEA", "BINARY": "BYTEA", "BLOB": "BYTEA", "DECIMAL": "DECIMAL(38, 10)"}
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(listed))
    make(connection, name, f"k BIGINT, {columns}")
    assert [kind for _, kind in types(connection, name)[1:]] == [other.get(kind, kind) for kind in listed]
