"""Tests which statements exist and that each does what it says: tables, loads, views, listings, plans, settings."""

from __future__ import annotations

import bz2
import datetime
import decimal
import gzip
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import protobuf as pb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import LocalCluster
from processes import IMPATIENT, Processes, until, within
from pyarrow import flight

import volary

pytestmark = pytest.mark.server

_names = itertools.count()


@pytest.fixture
def name(connection) -> Iterator[str]:
    """A free name. The table or view that gets it is dropped."""
    name = f"thing_{next(_names)}"
    yield name
    kinds = {
        kind
        for (kind,) in connection.sql(
            f"SELECT table_type FROM information_schema.tables WHERE table_name = '{name}'"
        ).rows()
    }
    for kind in kinds:
        connection.sql(f"DROP {'VIEW' if kind == 'VIEW' else 'TABLE'} {name}")


def rows(connection: volary.Connection, query: str) -> list[tuple]:
    return connection.sql(query).rows()


def plan(connection: volary.Connection, query: str) -> str:
    return rows(connection, f"EXPLAIN {query}")[-1][1]


# Tables


def test_a_sharded_table_is_as_it_was_declared(connection, name):
    declared = (
        f"CREATE TABLE {name} (k BIGINT NOT NULL, small SMALLINT, price DECIMAL(12, 2), "
        "name VARCHAR NOT NULL, day DATE, at TIMESTAMP, ok BOOLEAN, data BYTEA, ratio REAL) "
        "WITH (shard_key = 'k', shards = 16, sort_key = 'day, k')"
    )
    assert connection.sql(declared).rows_affected == 0
    described = (
        f"SELECT name, kind, shard_key, shards, sort_key, workers, rows FROM system.tables WHERE name = '{name}'"
    )
    assert rows(connection, described) == [(name, "sharded", "k", 16, "day, k", 3, 0)]
    result = connection.sql(f"SELECT * FROM {name}")
    assert result.schema.names == ["k", "small", "price", "name", "day", "at", "ok", "data", "ratio"]
    assert result.schema.types == [
        pa.int64(),
        pa.int16(),
        pa.decimal128(12, 2),
        pa.string(),
        pa.date32(),
        pa.timestamp("us"),
        pa.bool_(),
        pa.binary(),
        pa.float32(),
    ]
    assert rows(connection, f"SELECT shard, rows FROM system.shards WHERE table_name = '{name}' ORDER BY shard") == [
        (shard, 0) for shard in range(16)
    ]


def test_a_reference_table_is_whole_on_every_worker(connection, name):
    connection.sql(f"CREATE TABLE {name} (k BIGINT, name VARCHAR) WITH (reference = true)")
    assert connection.sql(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (NULL, NULL)").rows_affected == 3
    assert rows(connection, f"SELECT count(*), count(k) FROM {name}") == [(3, 2)]
    table = f"SELECT kind, shard_key, workers, rows FROM system.tables WHERE name = '{name}'"
    assert rows(connection, table) == [("reference", None, 3, 3)]
    copies = f"SELECT DISTINCT worker_id, rows FROM system.segments WHERE table_name = '{name}' ORDER BY worker_id"
    assert rows(connection, copies) == [("w1", 3), ("w2", 3), ("w3", 3)]
    assert "workers=1" in plan(connection, f"SELECT * FROM {name}")


# COPY

LOADED = [
    (1, "one", 1.5, datetime.date(2026, 1, 1)),
    (2, None, 2.5, None),
    (3, "three, or so", None, datetime.date(2026, 1, 3)),
]
CSV = b'k,name,price,day\n1,one,1.5,2026-01-01\n2,,2.5,\n3,"three, or so",,2026-01-03\n'
TSV = b"k\tname\tprice\tday\n1\tone\t1.5\t2026-01-01\n2\t\t2.5\t\n3\tthree, or so\t\t2026-01-03\n"
JSON = (
    b'{"k": 1, "name": "one", "price": 1.5, "day": "2026-01-01"}\n{"k": 2, "price": 2.5}\n'
    b'{"day": "2026-01-03", "k": 3, "name": "three, or so"}\n'
)


def parquet(**columns: list) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


PARQUET = parquet(
    name=["one", None, "three, or so"],
    K=pa.array([1, 2, 3], pa.int32()),
    price=[1.5, 2.5, None],
    day=["2026-01-01", None, "2026-01-03"],
)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("rows.csv", CSV),
        ("rows.tsv", TSV),
        ("rows.json", JSON),
        ("rows.jsonl", JSON),
        ("rows.ndjson", JSON),
        ("rows.parquet", PARQUET),
        ("rows.csv.gz", gzip.compress(CSV)),
        ("rows.tsv.gz", gzip.compress(TSV)),
        ("ROWS.JSON.GZ", gzip.compress(JSON)),
        ("rows.csv.bz2", bz2.compress(CSV)),
    ],
    # The contents are not part of the ids: compressed files contain their time, and xdist needs equal ids everywhere.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_copy_knows_a_format_by_its_name(connection, empty_table, tmp_path, file, content):
    (tmp_path / file).write_bytes(content)
    assert connection.sql(f"COPY {empty_table} FROM '{tmp_path / file}'").rows_affected == 3
    assert rows(connection, f"SELECT * FROM {empty_table} ORDER BY k") == LOADED


def test_copy_takes_the_format_and_its_details_from_options(connection, empty_table, tmp_path):
    (tmp_path / "rows.txt").write_text("1;one;\n2;'two;too';3.5\n")
    statement = (
        f"COPY {empty_table} (k, name, price) FROM '{tmp_path}/rows.txt' "
        "WITH (FORMAT csv, HEADER false, DELIMITER ';', NULL '', QUOTE '''')"
    )
    assert connection.sql(statement).rows_affected == 2
    assert rows(connection, f"SELECT k, name, price FROM {empty_table} ORDER BY k") == [
        (1, "one", None),
        (2, "two;too", 3.5),
    ]


@pytest.mark.parametrize(
    ("file", "content", "options"),
    [
        ("rows.csv", CSV.replace(b"name", b"other"), "HEADER true"),
        ("rows.json", JSON.replace(b'"name"', b'"other"'), "FORMAT json"),
        ("rows.parquet", parquet(other=["one", "two", "three"], price=[1.5, 2.5, None], K=[1, 2, 3]), "FORMAT parquet"),
    ],
)
def test_a_list_chooses_columns_by_name(connection, empty_table, tmp_path, file, content, options):
    (tmp_path / file).write_bytes(content)
    connection.sql(f"COPY {empty_table} (price, k) FROM '{tmp_path / file}' WITH ({options})")
    assert rows(connection, f"SELECT * FROM {empty_table} ORDER BY k") == [
        (1, None, 1.5, None),
        (2, None, 2.5, None),
        (3, None, None, None),
    ]


def test_copy_loads_what_only_late_records_of_json_have(connection, empty_table, tmp_path):
    early = "".join(f'{{"k": {k}}}\n' for k in range(20_000))
    (tmp_path / "rows.json").write_text(early + '{"k": 20000, "name": "late", "price": 2.5, "day": "2026-01-01"}\n')
    assert connection.sql(f"COPY {empty_table} FROM '{tmp_path}/rows.json'").rows_affected == 20_001
    late = rows(connection, f"SELECT * FROM {empty_table} WHERE name IS NOT NULL")
    assert late == [(20_000, "late", 2.5, datetime.date(2026, 1, 1))]


EXACT_CSV = "k,at,cost\n1,2026-01-01 10:00:00.123456,1.20\n2,2026-01-01,-3\n"
EXACT_JSON = '{"k": 1.0, "at": "2026-01-01T10:00:00.123456", "cost": 1.2}\n{"k": 2, "at": "2026-01-01", "cost": -3e0}\n'
EXACT_TABLE = pa.table(
    {
        "k": [1.0, 2.0],
        "at": pa.array([1_767_261_600_123_456_000, 1_767_225_600_000_000_000], pa.timestamp("ns")),
        "cost": [1.2, -3.0],
    }
)


def test_copy_loads_values_as_they_are_and_none_that_it_would_change(connection, name, tmp_path):
    connection.sql(f"CREATE TABLE {name} (k BIGINT, at TIMESTAMP(6), cost DECIMAL(15, 2)) WITH (shard_key = 'k')")
    pq.write_table(EXACT_TABLE, tmp_path / "exact.parquet")
    (tmp_path / "exact.csv").write_text(EXACT_CSV)
    (tmp_path / "exact.json").write_text(EXACT_JSON)
    for file in ("exact.parquet", "exact.csv", "exact.json"):
        connection.sql(f"COPY {name} FROM '{tmp_path / file}'")
    assert rows(connection, f"SELECT k, at, cost, count(*) FROM {name} GROUP BY k, at, cost ORDER BY k") == [
        (1, datetime.datetime(2026, 1, 1, 10, 0, 0, 123456), decimal.Decimal("1.20"), 3),
        (2, datetime.datetime(2026, 1, 1), decimal.Decimal("-3.00"), 3),
    ]
    finer = {"k": pa.array([1, 1], pa.int64()), "at": pa.array([0, 1], pa.timestamp("ns")), "cost": [1.23, 1.239]}
    for column, text in [("at", "2026-01-01T10:00:00.1234567"), ("cost", "1.239")]:
        pq.write_table(pa.table({column: finer[column]}), tmp_path / "finer.parquet")
        (tmp_path / "finer.csv").write_text(f"k,{column}\n1,{text}\n")
        (tmp_path / "finer.json").write_text(f'{{"k": 1, "{column}": "{text}"}}\n')
        for file in ("finer.parquet", "finer.csv", "finer.json"):
            with pytest.raises(volary.InvalidArgumentError, match=f"column {column}: .* without loss"):
                connection.sql(f"COPY {name} FROM '{tmp_path / file}'")
    connection.sql(
        f"INSERT INTO {name} SELECT 3, NULL, avg(x) FROM (SELECT 1.0 AS x UNION ALL SELECT 1.0 UNION ALL SELECT 2.0)"
    )
    assert rows(connection, f"SELECT cost FROM {name} WHERE k = 3") == [(decimal.Decimal("1.33"),)]


def test_copy_takes_folders_globs_and_file_urls(connection, empty_table, tmp_path):
    for number in range(4):
        (tmp_path / f"part-{number}.parquet").write_bytes(parquet(k=[number]))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "part-4.csv").write_text("k\n4\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.csv").write_text("no table at all")
    for location, count in [
        (f"{tmp_path}/part-*.parquet", 4),
        (f"{tmp_path}/part-[12].parquet", 2),
        (f"{tmp_path}/part-?.parquet", 4),
        (f"{tmp_path}/more/", 1),
        (f"{tmp_path}/more", 1),
        (f"file://{tmp_path}/part-0.parquet", 1),
    ]:
        assert connection.sql(f"COPY {empty_table} FROM '{location}'").rows_affected == count, location
    assert rows(connection, f"SELECT count(*), sum(k) FROM {empty_table}") == [(13, 6 + 3 + 6 + 4 + 4 + 0)]


def test_a_folder_and_a_glob_are_looked_through_by_each_copy(connection, empty_table, tmp_path):
    def loaded(location: str) -> list[tuple]:
        connection.sql(f"COPY {empty_table} FROM '{tmp_path}/{location}'")
        return rows(connection, f"SELECT k, count(*) FROM {empty_table} GROUP BY k ORDER BY k")

    (tmp_path / "a.csv").write_text("k\n1\n")
    assert loaded("") == [(1, 1)]
    (tmp_path / "b.csv").write_text("k\n2\n")
    assert loaded("") == [(1, 2), (2, 1)]
    assert loaded("*.csv") == [(1, 3), (2, 2)]
    (tmp_path / "a.csv").unlink()
    (tmp_path / "c.csv").write_text("k\n3\n4\n")
    assert loaded("*.csv") == [(1, 3), (2, 3), (3, 1), (4, 1)]
    (tmp_path / "c.csv").write_text("k\n3\n4\n5\n6\n")
    assert loaded("") == [(1, 3), (2, 4), (3, 2), (4, 2), (5, 1), (6, 1)]


def test_copy_of_many_rows_loads_all_of_them(connection, empty_table, tmp_path):
    count = 200_000
    pq.write_table(
        pa.table({"k": range(count), "price": [n / 2 for n in range(count)]}),
        tmp_path / "a.parquet",
        row_group_size=10_000,
    )
    assert connection.sql(f"COPY {empty_table} FROM '{tmp_path}'").rows_affected == count
    total = count * (count - 1) // 2
    assert rows(connection, f"SELECT count(*), sum(k), sum(price), count(DISTINCT k) FROM {empty_table}") == [
        (count, total, total / 2, count)
    ]
    spread = rows(connection, f"SELECT shard, rows FROM system.shards WHERE table_name = '{empty_table}'")
    assert sum(held for _, held in spread) == count
    assert min(held for _, held in spread) > count / 8 * 0.9
    assert rows(connection, f"SELECT sum(rows) FROM system.segments WHERE table_name = '{empty_table}'") == [(count,)]
    assert rows(connection, "SELECT * FROM system.loads") == []


# Views


def test_views_read_views_and_follow_what_they_read(connection, birds):
    low, high = f"{birds}_low", f"{birds}_high"
    connection.sql(f"CREATE VIEW {low} AS SELECT k, price FROM {birds} WHERE price IS NOT NULL")
    connection.sql(f"CREATE VIEW {high} (n, total) AS SELECT count(*), sum(price) FROM {low} WHERE k > 1")
    try:
        assert rows(connection, f"SELECT * FROM {high}") == [(3, 11.5)]
        connection.sql(f"INSERT INTO {birds} VALUES (6, 'ruru', 8.5, NULL)")
        assert rows(connection, f"SELECT * FROM {high}") == [(4, 20.0)]
        connection.sql(f"CREATE OR REPLACE VIEW {low} AS SELECT k, 1.0 AS price FROM {birds}")
        assert rows(connection, f"SELECT total FROM {high}") == [(5.0,)]
        assert "shards=1/8 workers=1/3" in plan(connection, f"SELECT * FROM {low} WHERE k = 3")
        with pytest.raises(volary.AlreadyExistsError, match="exists already"):
            connection.sql(f"CREATE VIEW {low} AS SELECT 1")
        with pytest.raises(volary.InvalidArgumentError, match=f"{low} is a view; use DROP VIEW {low}"):
            connection.sql(f"DROP TABLE {low}")
        with pytest.raises(volary.InvalidArgumentError, match="rows cannot be inserted into"):
            connection.sql(f"INSERT INTO {low} VALUES (1, 2)")
    finally:
        connection.sql(f"DROP VIEW {low}")
    with pytest.raises(volary.NotFoundError, match=f'view {high}: table "{low}" does not exist'):
        connection.sql(f"SELECT * FROM {high}")
    connection.sql(f"DROP VIEW {high}")


# Listings


def test_system_tables_say_where_rows_are(cluster, connection, birds):
    gateway, *nodes = rows(
        connection, "SELECT id, role, state, version, address, last_heartbeat_ms FROM system.nodes ORDER BY id"
    )
    address = cluster.uri.removeprefix("grpc://")
    # A gateway sends no heartbeats.
    assert gateway == ("gateway", "gateway", "alive", nodes[0][3], address, None)
    assert [node[:3] for node in nodes] == [(f"w{n}", "worker", "alive") for n in (1, 2, 3)]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) and beat < 10_000 for *_, address, beat in nodes)
    assert {version for *_, version, _, _ in nodes} == {connection.server_version.split()[-1].removeprefix("v")}
    shards = rows(
        connection,
        f"SELECT shard, worker_id, rows, bytes FROM system.shards WHERE table_name = '{birds}' ORDER BY shard",
    )
    assert [shard for shard, *_ in shards] == list(range(8))
    assert {worker for _, worker, *_ in shards} == {"w1", "w2", "w3"}
    held = {shard: (worker, count) for shard, worker, count, _ in shards if count}
    assert sum(count for _, count in held.values()) == 5
    segments = rows(
        connection,
        f"SELECT shard, worker_id, rows, file, bytes, visible FROM system.segments WHERE table_name = '{birds}'",
    )
    assert {shard: (worker, count) for shard, worker, count, *_ in segments} == held
    assert all(file.endswith((".parquet", ".log")) and size > 0 and visible for *_, file, size, visible in segments)
    assert rows(connection, f"SELECT rows, bytes > 0 FROM system.tables WHERE name = '{birds}'") == [(5, True)]


def test_segments_of_a_worker_that_is_down_are_an_error_that_names_it(tmp_path: Path):
    with Processes(tmp_path, IMPATIENT) as processes:
        processes.add_worker()
        down = processes.add_worker()
        processes.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 8)")
        processes.sql("INSERT INTO t VALUES (1), (2), (3)")
        listed = processes.sql("SELECT worker_id, file, visible FROM system.segments ORDER BY file")
        down.kill()
        until(lambda: processes.nodes("state")[down.id] == "lost", "the killed worker is shown as lost")
        with pytest.raises(volary.UnavailableError, match=f"worker {down.id} at 127.0.0.1:") as caught:
            processes.sql("SELECT * FROM system.segments")
        assert "system.nodes shows which workers are alive" in caught.value.message
        down.start()
        assert processes.sql("SELECT worker_id, file, visible FROM system.segments ORDER BY file") == listed


# Plans


def test_explain_says_how_many_shards_and_workers_are_asked(connection, birds):
    for condition, asked in [
        ("k = 3", "shards=1/8 workers=1/3 (pruned by shard key k)"),
        ("k = 1 + 2", "shards=1/8 workers=1/3"),
        ("k = CAST('3' AS INT)", "shards=1/8 workers=1/3"),
        ("k IN (3)", "shards=1/8 workers=1/3"),
        ("k = 3 AND price > 1", "shards=1/8 workers=1/3"),
        ("k > 3", "shards=8/8 workers=3/3 (no filter on shard key k)"),
        ("k = 3 OR price > 1", "shards=8/8 workers=3/3 (no filter on shard key k)"),
    ]:
        assert asked in plan(connection, f"SELECT * FROM {birds} WHERE {condition}"), condition
    for value, asked in [(3, "shards=1/8 workers=1/3"), (3.0, "shards=1/8 workers=1/3"), (1.5, "shards=8/8")]:
        prepared = connection.sql(f"EXPLAIN SELECT * FROM {birds} WHERE k = ?", [value]).rows()[-1][1]
        assert asked in prepared


def test_a_contradiction_asks_nobody_or_the_one_worker_that_could_know(connection, birds):
    def shares_a_shard_with_1(k: int) -> bool:
        return "shards=1/8" in plan(connection, f"SELECT k FROM {birds} WHERE k IN (1, {k})")

    near = next(k for k in itertools.count(2) if shares_a_shard_with_1(k))
    distant = [k for k in range(2, 12) if not shares_a_shard_with_1(k)]
    for condition, asked in [
        ("false", "EmptyExec"),
        ("k IS NULL", "EmptyExec"),
        ("k = 1 AND k = 2", "EmptyExec"),
        ("k = 3 AND k > 4", "shards=1/8 workers=1/3"),
        (f"k = 1 AND k IN ({', '.join(map(str, [near, *distant]))})", "shards=1/8 workers=1/3"),
        (f"k = 1 AND k IN ({', '.join(map(str, distant))})", "shards=0/8 workers=0/3"),
    ]:
        query = f"SELECT k, name FROM {birds} WHERE {condition}"
        assert asked in plan(connection, query), condition
        assert rows(connection, query) == []
        assert rows(connection, f"SELECT count(*), sum(k) FROM {birds} WHERE {condition}") == [(0, None)]


def test_explain_shows_fragments_and_why_they_end(connection, birds):
    local = plan(connection, f"SELECT k, sum(price) FROM {birds} GROUP BY k")
    assert "GatherExec: workers=3" in local
    assert "mode=SinglePartitioned" in local.split("fragment 1:")[1]
    split = plan(connection, f"SELECT name, sum(price) FROM {birds} GROUP BY name")
    above, below = split.split("fragment 1:")
    assert "mode=Partial" in below
    assert "mode=Final" in above
    assert "ends because rows of several shards meet by another key than the shard key" in above


MEASURED = [
    *("rows", "bytes", "scanned_rows", "worker_time", "worker_compute"),
    *("open", "network_wait", "wire", "decode", "total"),
]
UNITS = {"": 1, "ms": 1, " B": 1, " KiB": 2**10, " MiB": 2**20}


def measured(text: str) -> tuple[dict[str, list[float]], dict[str, float | str]]:
    """Returns the values of the only gather in EXPLAIN ANALYZE: minimum, median and maximum, and the slowest worker's
    values.
    """

    def number(value: str) -> float:
        digits, unit = re.fullmatch(r"([\d.]+)(.*)", value).groups()
        return float(digits) * UNITS[unit]

    workers = r"\| workers=3 plan_bytes=[\d.]+ \w+ min/median/max: (.*)"
    ((spreads, slowest),) = re.findall(rf"{workers}\n *\| slowest: (.*)", text)
    value = r"[\d.]+(?:ms| [KM]?i?B)?"
    assert re.fullmatch(rf"(?:\w+={value}/{value}/{value} ?)+", spreads), spreads
    spread = {
        name: [number(part) for part in values.split("/")]
        for name, values in re.findall(rf"(\w+)=({value}/{value}/{value})", spreads)
    }
    worker, _, rest = re.fullmatch(r"(\w+) because of (\w[\w ,]*), (total=.*)", slowest).groups()
    assert re.fullmatch(rf"(?:\w+={value} ?)+", rest), rest
    return spread, {"worker": worker, **{name: number(part) for name, part in re.findall(rf"(\w+)=({value})", rest)}}


def test_explain_analyze_says_what_each_worker_did(connection, empty_table):
    # A write of this many rows is too large for the log, so its rows go straight to segments.
    count = 150_000
    connection.sql(
        f"INSERT INTO {empty_table} (k, name, price) "
        f"SELECT value, CAST(value % 7 AS VARCHAR), value / 2.0 FROM generate_series(1, {count}) t(value)"
    )
    segments = rows(
        connection,
        f"SELECT worker_id, sum(rows), count(*), sum(bytes) FROM system.segments WHERE table_name = '{empty_table}' "
        "GROUP BY worker_id",
    )
    held = {worker: counted for worker, *counted in segments}
    in_order = sorted(stored for stored, _, _ in held.values())
    assert sum(in_order) == count
    for query, sent, result in [
        (f"SELECT k, price FROM {empty_table}", in_order, count),
        (f"SELECT name, sum(price) FROM {empty_table} GROUP BY name", [7, 7, 7], 7),
    ]:
        ((kind, text),) = rows(connection, f"EXPLAIN ANALYZE {query}")
        assert kind == "Plan with Metrics"
        spread, slowest = measured(text)
        assert list(spread) == MEASURED
        assert all(values == sorted(values) for values in spread.values()), spread
        assert spread["rows"] == sent
        assert spread["scanned_rows"] == in_order
        # A value has eight bytes. In addition, there is data about the columns and the number of values.
        for size, arrived in zip(spread["bytes"], sent, strict=True):
            assert 16 * arrived <= size <= 17 * arrived + 2_000, (spread, arrived)
        # The parts of the gateway's work for a worker add up to no more than the worker's time, except for rounding.
        for part in ("open", "network_wait", "wire", "decode"):
            assert all(part <= whole + 0.02 for part, whole in zip(spread[part], spread["total"], strict=True)), part
        assert all(spread[part][0] > 0 for part in ("open", "worker_time", "total"))
        scanned, files, size = held[slowest["worker"]]
        assert (slowest["scanned_rows"], slowest["segments"], slowest["retries"]) == (scanned, files, 0)
        assert slowest["rows"] == (scanned if sent is in_order else 7)
        assert 0 < slowest["scanned"] <= size
        assert abs(slowest["total"] - spread["total"][2]) <= 0.02
        assert slowest["queued"] <= slowest["first_row"] <= slowest["worker_time"]
        ended = re.search(r"^query: [0-9a-f-]{36} rows=(\d+) planning=[\d.]+ms running=([\d.]+)ms$", text, re.MULTILINE)
        assert int(ended[1]) == result
        assert float(ended[2]) + 0.02 >= slowest["total"]


def test_explain_analyze_tells_of_workers_that_were_not_read_to_the_end(connection, birds):
    ((_, text),) = rows(connection, f"EXPLAIN ANALYZE SELECT name FROM {birds} LIMIT 1")
    # It varies how far the other workers have come when the first row arrives.
    assert re.search(r"\| workers=[1-3] plan_bytes=[\d.]+ \w+( stopped=[1-3])? min/median/max: rows=", text)
    assert re.search(r"\| slowest: w[123] because of [\w ,]+, total=[\d.]+ms ", text)


def test_explain_verbose_and_analyze_verbose_show_more(connection, birds):
    kinds = [kind for kind, _ in rows(connection, f"EXPLAIN VERBOSE SELECT * FROM {birds} WHERE k = 1")]
    assert kinds == ["initial_logical_plan", "logical_plan", "generic_plan", "physical_plan"]
    shown = rows(connection, f"EXPLAIN ANALYZE VERBOSE SELECT name, sum(price) FROM {birds} GROUP BY name")
    assert shown[0][0] == "Plan with Metrics"
    assert re.fullmatch(r"fragment of worker w[123] \(the slowest\)", shown[1][0])
    assert "DataSourceExec" in shown[1][1]
    assert "bytes_scanned=" in shown[1][1]


def test_an_analysis_that_is_read_again_is_of_the_same_query_and_the_same_rows(cluster, connection, birds):
    explain = f"EXPLAIN ANALYZE SELECT k, price FROM {birds} WHERE price IS NOT NULL OR k > 0"
    command = pb.command("CommandStatementQuery", pb.field(1, explain))
    with flight.connect(cluster.uri) as client:
        ticket = client.get_flight_info(flight.FlightDescriptor.for_command(command)).endpoints[0].ticket
        first = client.do_get(ticket).read_all()["plan"][0].as_py()
        connection.sql(f"INSERT INTO {birds} (k) VALUES (6)")
        again = client.do_get(ticket).read_all()["plan"][0].as_py()
    found = [re.findall(r"^query: (\S+) rows=(\d+)", text, re.MULTILINE) for text in (first, again)]
    assert found[0] == found[1]
    assert [count for _, count in found[0]] == ["5"]
    # Each text has the measurements of one run only.
    assert all(text.count("| workers=3 ") == 1 for text in (first, again))


def test_loads_and_analyses_wait_for_a_place_as_queries_do(tmp_path: Path):
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_GATEWAY__QUERY__UNREAD_TIMEOUT": "10m"}
    (tmp_path / "rows.csv").write_text("k\n1\n")
    statements = [
        f"COPY t FROM '{tmp_path / 'rows.csv'}'",
        "EXPLAIN ANALYZE SELECT * FROM t",
        "INSERT INTO t VALUES (1)",
        "SELECT * FROM t",
    ]
    with (
        LocalCluster(tmp_path, workers=1, allow_roots=[tmp_path], settings=settings) as cluster,
        cluster.connect() as connection,
        cluster.connect() as other,
    ):
        connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = 2)")
        with other.sql("SELECT * FROM generate_series(1, 9000000000000000000)") as running:
            batches = running.batches()
            assert next(batches).num_rows > 0
            for statement in statements:
                with pytest.raises(volary.DeadlineExceededError):
                    connection.sql(statement, timeout=0.5).rows()
        # The place is free again. Each statement also frees its place when it ends.
        for statement in statements:
            connection.sql(statement).rows()
        assert rows(connection, "SELECT count(*) FROM t") == [(2,)]


def test_a_statement_that_takes_long_to_plan_ends_in_time_for_its_client(connection, birds):
    joins = " ".join(f"JOIN {birds} t{n} ON t{n - 1}.k = t{n}.price" for n in range(1, 120))
    with within(), pytest.raises(volary.DeadlineExceededError):
        connection.sql(f"EXPLAIN SELECT count(*) FROM {birds} t0 {joins}", timeout=0.1)


def test_explain_of_a_query_in_order_shows_the_merge(connection, birds):
    ordered = plan(connection, f"SELECT k FROM {birds} ORDER BY price DESC LIMIT 2")
    assert "SortPreservingMergeExec" in ordered
    assert "fetch=2" in ordered.split("fragment 1:")[1]
    assert rows(connection, f"SELECT k FROM {birds} ORDER BY price DESC NULLS LAST LIMIT 2") == [(5,), (3,)]


# Expressions and session settings


def test_now_is_one_moment_for_the_whole_statement(connection, birds):
    ((now, today, same),) = rows(connection, "SELECT now(), current_date, now() = current_timestamp")
    assert abs(
        now.replace(tzinfo=None) - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    ) < datetime.timedelta(hours=1)
    assert today == now.date()
    assert same
    assert rows(connection, f"SELECT count(DISTINCT now()) FROM {birds} WHERE day < now() + interval '100 years'") == [
        (1,)
    ]


def test_set_timezone_changes_how_times_are_read_until_it_is_reset(cluster, birds):
    is_berlin = "SELECT CAST('2026-01-01T00:30:00' AS TIMESTAMPTZ) = CAST('2025-12-31T23:30:00Z' AS TIMESTAMPTZ)"
    with volary.connect(cluster.uri, username="ada") as connection, cluster.connect() as other:
        assert rows(connection, is_berlin) == [(False,)]
        for zone in ("Europe/Berlin", "+01:00"):
            connection.sql(f"SET timezone = '{zone}'")
            assert rows(connection, "SHOW timezone") == [("volary.time_zone", zone)]
            assert rows(connection, is_berlin) == [(True,)]
            on_workers = (
                f"SELECT count(*) FROM {birds} WHERE CAST(CAST(day AS VARCHAR) || 'T00:00:00' AS TIMESTAMPTZ) "
                "= CAST('2025-12-31T23:00:00Z' AS TIMESTAMPTZ)"
            )
            assert rows(connection, on_workers) == [(1,)]
        assert rows(other, is_berlin) == [(False,)]
        connection.sql("RESET timezone")
        assert rows(connection, is_berlin) == [(False,)]


IN_ANOTHER_ZONE = """
import sys
import pandas, polars, volary
from adbc_driver_flightsql import dbapi

sql = "SELECT TIMESTAMPTZ '2026-07-01T12:00:00Z' AS at, now() AS n"
for zone in ("UTC", "Asia/Tokyo"):
    with volary.connect(sys.argv[1]) as connection, dbapi.connect(sys.argv[1], autocommit=True) as driver:
        connection.sql(f"SET timezone = '{zone}'")
        cursor = driver.cursor()
        cursor.execute(f"SET timezone = '{zone}'")
        cursor.execute(sql)
        instants = [
            connection.sql(sql).rows()[0][0],
            connection.sql(sql).to_pandas()["at"][0],
            connection.sql(sql).to_polars()["at"][0],
            cursor.fetchall()[0][0],
        ]
        for instant in instants:
            assert instant.timestamp() == 1782907200, (zone, type(instant), instant)
            assert instant.tzinfo is not None
"""


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_clients_in_any_time_zone_get_the_same_instants(cluster, zone):
    ended = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_ZONE, cluster.uri],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_rows_without_a_time_zone_are_read_in_that_of_the_session(cluster, tmp_path_factory, name):
    file = tmp_path_factory.mktemp("zones") / "instants.csv"
    file.write_text("k,at\n1,2026-07-01 14:00:00\n2,2026-07-01T12:00:00Z\n")
    noon = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
    local = datetime.datetime(2026, 7, 1, 14)
    with cluster.connect() as connection:
        connection.sql("SET timezone = 'Europe/Berlin'")
        connection.sql(f"CREATE TABLE {name} (k BIGINT, at TIMESTAMPTZ) WITH (shard_key = 'k', shards = 4)")
        connection.sql(f"COPY {name} FROM '{file}'")
        connection.sql(f"INSERT INTO {name} VALUES (3, ?)", [local])
        connection.sql(f"INSERT INTO {name} VALUES (4, ?)", [noon])
        connection.sql(f"INSERT INTO {name} VALUES (5, ?)", ["2026-07-01 14:00:00"])
        connection.ingest(name, pa.table({"k": [6, 7], "at": [local, None]}), mode="append")
        connection.ingest(name, pa.table({"k": [8], "at": [noon]}), mode="append")
        connection.ingest(name, pa.table({"k": [9], "at": ["2026-07-01T14:00:00"]}), mode="append")
        found = connection.sql(f"SELECT k FROM {name} WHERE at = ? ORDER BY k", [local]).rows()
        assert found == [(k,) for k in (1, 2, 3, 4, 5, 6, 8, 9)]
    with cluster.connect() as other:
        assert other.sql(f"SELECT DISTINCT at FROM {name} WHERE k <> 7").rows() == [(noon,)]


def test_set_works_on_a_connection_without_a_user(connection):
    connection.sql("SET timezone = '+02:00'")
    assert rows(connection, "SHOW timezone") == [("volary.time_zone", "+02:00")]


def test_errors_name_settings_as_the_configuration_lists_them(tmp_path: Path):
    settings = {"VOLARY_GATEWAY__CLUSTER__MIN_WORKERS": "2", "VOLARY_GATEWAY__QUERY__TIMEOUT": "2s"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, cluster.connect() as connection:
        with pytest.raises(volary.UnavailableError, match=r"gateway\.cluster\.min_workers"):
            connection.sql("CREATE TABLE t (k BIGINT) WITH (shard_key = 'k')")
        with pytest.raises(volary.DeadlineExceededError, match=r"gateway\.query\.timeout"):
            connection.sql("SELECT count(*) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b").rows()


# Restart


def test_a_restart_keeps_everything(tmp_path: Path):
    with LocalCluster(tmp_path, workers=3) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT, v VARCHAR) WITH (shard_key = 'k', shards = 8, sort_key = 'v, k')")
        connection.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL), (NULL, 'c')")
        connection.sql("INSERT INTO t SELECT k + 10, v FROM t")
        connection.sql("CREATE TABLE r (k BIGINT, label VARCHAR) WITH (reference = true)")
        connection.sql("INSERT INTO r VALUES (1, 'one'), (2, 'two')")
        connection.sql("CREATE VIEW v AS SELECT r.label, count(*) AS n FROM t JOIN r ON t.k = r.k GROUP BY r.label")
        connection.sql("CREATE TABLE gone (k BIGINT) WITH (shard_key = 'k')")
        connection.sql("DROP TABLE gone")
        before = snapshot(connection)
    with LocalCluster(tmp_path, workers=3) as cluster, cluster.connect() as connection:
        assert snapshot(connection) == before
        assert before[0] == [(1, "a"), (2, None), (11, "a"), (12, None), (None, "c"), (None, "c")]
        assert before[1] == [("one", 1), ("two", 1)]
        connection.sql("INSERT INTO t VALUES (3, 'd')")
        assert rows(connection, "SELECT count(*) FROM t") == [(7,)]
        connection.sql("CREATE TABLE gone (other VARCHAR) WITH (shard_key = 'other')")


def snapshot(connection: volary.Connection) -> list[list[tuple]]:
    return [
        rows(connection, query)
        for query in (
            "SELECT * FROM t ORDER BY k, v",
            "SELECT * FROM v ORDER BY label",
            "SELECT * FROM r ORDER BY k",
            "SELECT * FROM system.tables ORDER BY name",
            "SELECT * FROM system.shards ORDER BY table_name, shard, worker_id",
            "SELECT * FROM system.segments ORDER BY table_name, shard, worker_id, file",
            "SELECT * FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, column_name",
            "SELECT id, role, state FROM system.nodes ORDER BY id",
        )
    ]
