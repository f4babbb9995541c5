"""Tests pushdown with EXPLAIN and EXPLAIN ANALYZE: to the shards of a key, and into the files of a worker."""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import LocalCluster

import volary

pytestmark = pytest.mark.server

_names = itertools.count()


@pytest.fixture
def name(connection: volary.Connection) -> Iterator[str]:
    """A free name for a table. The tables with this name, and with `_other` added to it, are dropped."""
    name = f"pushed_{next(_names)}"
    yield name
    for table in (name, f"{name}_other"):
        connection.sql(f"DROP TABLE IF EXISTS {table}")


def rows(connection: volary.Connection, query: str, parameters: list[Any] | None = None) -> list[tuple]:
    return connection.sql(query, parameters).rows()


def plan(connection: volary.Connection, query: str, parameters: list[Any] | None = None) -> str:
    return rows(connection, f"EXPLAIN {query}", parameters)[-1][1]


# Shards of a key


@dataclass(frozen=True)
class Key:
    """A type of shard keys, by its name in SQL or in Arrow, with values in SQL and in Python.

    With eight shards, the first two values are in different shards.
    """

    type: str
    values: list[tuple[str, Any]]

    def cast(self, literal: str) -> str:
        """Returns the literal as a value of the type."""
        # Some types have no name in SQL.
        of_arrow = self.type.startswith(("Time64", "Timestamp(", "FixedSizeBinary"))
        return f"arrow_cast({literal}, '{self.type}')" if of_arrow else f"CAST({literal} AS {self.type})"


def whole(*values: int) -> list[tuple[str, Any]]:
    return [(str(value), value) for value in values]


def text(*values: str) -> list[tuple[str, Any]]:
    return [(f"'{value}'", value) for value in values]


def binary(*values: bytes) -> list[tuple[str, Any]]:
    return [(f"X'{value.hex()}'", value) for value in values]


def exact(*values: str) -> list[tuple[str, Any]]:
    return [(f"'{value}'", decimal.Decimal(value)) for value in values]


def days(*values: str) -> list[tuple[str, Any]]:
    return [(f"DATE '{value}'", datetime.date.fromisoformat(value)) for value in values]


def instants(*values: str, zone: datetime.tzinfo | None = None) -> list[tuple[str, Any]]:
    moments = (datetime.datetime.fromisoformat(value) for value in values)
    return [
        (f"TIMESTAMP '{value}'", moment.replace(tzinfo=zone)) for value, moment in zip(values, moments, strict=True)
    ]


MOMENTS = ("2026-01-01 10:00:00.123456", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2038-01-19 03:14:08")
SECONDS = ("2026-01-01 10:00:00", "1969-12-31 23:59:59", "1970-01-01 00:00:00", "2038-01-19 03:14:08")
UUIDS = tuple(str(uuid.UUID(int=n << 64 | n)) for n in (1, 4, 2, 2**63 - 1))

KEYS = [
    Key("TINYINT", whole(1, 3, 0, -1, 127, -128)),
    Key("SMALLINT", whole(1, 3, 0, -1, 32767, -32768)),
    Key("INTEGER", whole(1, 3, 0, -1, 2**31 - 1, -(2**31))),
    Key("BIGINT", whole(1, 3, 0, -1, 2**63 - 1, -(2**63))),
    Key("TINYINT UNSIGNED", whole(1, 3, 0, 255)),
    Key("SMALLINT UNSIGNED", whole(1, 3, 0, 65535)),
    Key("INTEGER UNSIGNED", whole(1, 3, 0, 2**32 - 1)),
    Key("VARCHAR", text("kea", "kaka", "", "kākāpō", "a name that is longer than a view holds")),
    Key("VARCHAR", text(*UUIDS)),
    Key("BYTEA", binary(b"\x00\xff", b"kaka", b"", b"\x00", bytes(range(40)))),
    Key("UUID", [(f"'{written}'", uuid.UUID(written)) for written in UUIDS]),
    Key("UUID", [(f"X'{uuid.UUID(written).hex}'", uuid.UUID(written)) for written in UUIDS]),
    Key("DATE", days("2026-01-01", "1969-12-31", "1970-01-01", "9999-12-31")),
    Key("DECIMAL(9, 2)", exact("1.50", "2.50", "0.00", "-0.01", "9999999.99")),
    Key("DECIMAL(12, 2)", exact("1.50", "2.50", "0.00", "-0.01", "9999999999.99")),
    Key("DECIMAL(38, 10)", exact("1.5", "2.5", "0", "-0.0000000001", "9999999999999999999999999999.9999999999")),
    Key("TIMESTAMP", instants(*MOMENTS)),
    Key("TIMESTAMP(6)", instants(*MOMENTS)),
    Key("TIMESTAMP(0)", instants(*SECONDS)),
    Key('Timestamp(Microsecond, Some("UTC"))', instants(*MOMENTS, zone=datetime.UTC)),
    Key(
        "Time64(Microsecond)",
        [(f"'{time}'", datetime.time.fromisoformat(time)) for time in ("10:00:00", "00:00:00", "23:59:59.999999")],
    ),
]


@dataclass(frozen=True)
class Scan:
    """What a scan asks: the numbers of shards and workers, out of all that the table has."""

    shards: int
    all_shards: int
    workers: int
    all_workers: int


def scans(plan: str) -> dict[str, Scan]:
    """Returns the scans of a plan by table."""
    scan = re.compile(r"ShardScanExec: table=(\w+), columns=\[[^]]*\], shards=(\d+)/(\d+) workers=(\d+)/(\d+)")
    return {table: Scan(*map(int, numbers)) for table, *numbers in scan.findall(plan)}


ONE = Scan(1, 8, 1, 3)


@dataclass(frozen=True)
class Keyed:
    """Two tables (k, n) of eight shards. They contain the numbered values of a key, and a NULL."""

    key: Key
    connection: volary.Connection
    table: str
    other: str

    def __post_init__(self) -> None:
        values = ", ".join(f"({value}, {n})" for n, value in enumerate(self.literals))
        for table in (self.table, self.other):
            self.connection.sql(
                f"CREATE TABLE {table} WITH (shard_key = 'k', shards = 8) AS "
                f"SELECT k, n FROM (VALUES {values}, (NULL, -1)) v(k, n)"
            )

    @property
    def literals(self) -> list[str]:
        """The values in SQL, with their type."""
        return [self.key.cast(literal) for literal, _ in self.key.values]

    @property
    def values(self) -> list[Any]:
        """The values in Python."""
        return [value for _, value in self.key.values]

    def scans(self, query: str, parameters: list[Any] | None = None) -> dict[str, Scan]:
        return scans(plan(self.connection, query, parameters))

    def rows(self, query: str, parameters: list[Any] | None = None) -> list[tuple]:
        return rows(self.connection, query, parameters)


@pytest.fixture(scope="module")
def keyed(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Keyed]:
    table = f"keyed_{next(_names)}"
    with cluster.connect() as connection:
        yield Keyed(request.param, connection, table, f"{table}_other")
        connection.sql(f"DROP TABLE {table}")
        connection.sql(f"DROP TABLE {table}_other")


every_key = pytest.mark.parametrize("keyed", KEYS, indirect=True, ids=lambda key: f"{key.type} {key.values[0][0]}")


@every_key
def test_a_value_of_the_shard_key_is_looked_for_in_its_shard(keyed):
    for n, (literal, value) in enumerate(zip(keyed.literals, keyed.values, strict=True)):
        for condition, parameters in [
            (f"k = {literal}", None),
            (f"{literal} = k", None),
            (f"k IN ({literal})", None),
            (f"k IS NOT DISTINCT FROM {literal}", None),
            (f"(k = {literal} AND n >= 0) OR (k = {literal} AND n < 0)", None),
            ("k = ?", [value]),
        ]:
            query = f"SELECT n FROM {keyed.table} WHERE {condition}"
            shown = plan(keyed.connection, query, parameters)
            assert scans(shown) == {keyed.table: ONE}, (condition, shown)
            assert "(pruned by shard key k)" in shown
            assert keyed.rows(query, parameters) == [(n,)], condition


@every_key
def test_a_literal_needs_no_cast_to_be_looked_for_in_its_shard(keyed):
    for n, (literal, _) in enumerate(keyed.key.values):
        query = f"SELECT n FROM {keyed.table} WHERE k = {literal}"
        assert keyed.scans(query) == {keyed.table: ONE}, literal
        assert keyed.rows(query) == [(n,)], literal


@every_key
def test_several_values_of_the_shard_key_are_looked_for_in_their_shards(keyed):
    (one, other, *_), values = keyed.literals, keyed.values
    for condition, parameters in [
        (f"k IN ({one}, {other})", None),
        (f"k = {one} OR {other} = k", None),
        ("k IN (?, ?)", values[:2]),
        ("k = ? OR k = ?", values[:2]),
    ]:
        query = f"SELECT n FROM {keyed.table} WHERE {condition} ORDER BY n"
        assert keyed.scans(query, parameters)[keyed.table].shards == 2, condition
        assert keyed.rows(query, parameters) == [(0,), (1,)], condition
    everything = f"SELECT n FROM {keyed.table} WHERE k IN ({', '.join(keyed.literals)}) OR k IS NULL ORDER BY n"
    held = f"SELECT count(DISTINCT shard) FROM system.segments WHERE table_name = '{keyed.table}'"
    assert keyed.rows(held) == [(keyed.scans(everything)[keyed.table].shards,)]
    assert keyed.rows(everything) == [(n,) for n in range(-1, len(values))]


@every_key
def test_what_the_shard_key_cannot_be_is_asked_of_nobody(keyed):
    one, other = keyed.literals[:2]
    for condition, parameters in [
        (f"k = {one} AND k = {other}", None),
        (f"k IN ({one}) AND k IN ({other})", None),
        ("k = ? AND k = ?", keyed.values[:2]),
        ("k = NULL", None),
    ]:
        query = f"SELECT n FROM {keyed.table} WHERE {condition}"
        shown = plan(keyed.connection, query, parameters)
        assert "EmptyExec" in shown or scans(shown) == {keyed.table: Scan(0, 8, 0, 3)}, (condition, shown)
        assert keyed.rows(query, parameters) == []


@every_key
def test_null_is_looked_for_in_its_shard(keyed):
    for condition in ("k IS NULL", "k IS NOT DISTINCT FROM NULL"):
        query = f"SELECT n FROM {keyed.table} WHERE {condition}"
        assert keyed.scans(query) == {keyed.table: ONE}, condition
        assert keyed.rows(query) == [(-1,)]


@every_key
def test_a_value_of_one_side_of_a_join_prunes_the_other_side(keyed):
    value, bound = keyed.literals[1], keyed.values[1]
    for joined, condition, parameters in [
        ("a JOIN {} b ON a.k = b.k", f"b.k = {value}", None),
        ("a JOIN {} b ON b.k = a.k", f"a.k = {value}", None),
        ("a JOIN {} b ON b.k = a.k", "a.k = ?", [bound]),
        (f"a JOIN {{}} b ON a.k = b.k AND b.k = {value}", "true", None),
        ("a, {} b", f"a.k = b.k AND b.k = {value}", None),
        ("a LEFT JOIN {} b ON a.k = b.k", f"a.k = {value}", None),
        ("a RIGHT JOIN {} b ON a.k = b.k", f"b.k = {value}", None),
    ]:
        query = f"SELECT a.n, b.n FROM {keyed.table} {joined.format(keyed.other)} WHERE {condition}"
        shown = plan(keyed.connection, query, parameters)
        assert scans(shown) == {keyed.table: ONE, keyed.other: ONE}, (query, shown)
        assert "GatherExec: workers=1, ends because it is the whole query" in shown
        assert keyed.rows(query, parameters) == [(1, 1)], query


def test_a_number_with_a_point_is_looked_for_in_the_shard_of_its_decimal(connection, name):
    connection.sql(f"CREATE TABLE {name} (k DECIMAL(12, 2), n BIGINT) WITH (shard_key = 'k', shards = 8)")
    connection.sql(f"INSERT INTO {name} SELECT value / 4.0, value FROM generate_series(-40, 40) t(value)")
    for literal, expected in [("2.5", [(10,)]), ("-0.25", [(-1,)]), ("7", [(28,)]), ("10.00", [(40,)])]:
        query = f"SELECT n FROM {name} WHERE k = {literal}"
        assert scans(plan(connection, query)) == {name: ONE}, literal
        assert rows(connection, query) == expected
    # This value has three decimal places, so no key is equal to it.
    assert rows(connection, f"SELECT n FROM {name} WHERE k = 2.501") == []


def test_integers_of_two_widths_are_joined_in_the_shard_of_their_value(connection, name):
    other = f"{name}_other"
    for table, declared in [(name, "INTEGER"), (other, "BIGINT")]:
        connection.sql(f"CREATE TABLE {table} (k {declared}, n BIGINT) WITH (shard_key = 'k', shards = 8)")
        connection.sql(f"INSERT INTO {table} SELECT value, value * 10 FROM generate_series(-20, 20) t(value)")
    query = f"SELECT a.n, b.n FROM {name} a JOIN {other} b ON a.k = b.k WHERE a.k = 7 AND b.k = 7"
    assert scans(plan(connection, query)) == {name: ONE, other: ONE}
    assert rows(connection, query) == [(70, 70)]
    for constant, pruned in [("a.k = 7", name), ("b.k = 7", other)]:
        query = f"SELECT a.n, b.n FROM {name} a JOIN {other} b ON a.k = b.k WHERE {constant}"
        shown = plan(connection, query)
        assert scans(shown)[pruned] == ONE
        assert shown.count("GatherExec") == 1
        assert rows(connection, query) == [(70, 70)]


def test_the_keys_of_a_list_of_values_travel_to_the_workers(connection, name):
    connection.sql(f"CREATE TABLE {name} (k BIGINT, n BIGINT) WITH (shard_key = 'k', shards = 8)")
    connection.sql(f"INSERT INTO {name} SELECT value, value * 10 FROM generate_series(1, 1000) t(value)")
    for query in (
        f"SELECT n FROM {name} WHERE k IN (SELECT v FROM (VALUES (7), (700), (7000)) x(v)) ORDER BY n",
        f"SELECT n FROM {name} JOIN (VALUES (7), (700), (7000)) x(v) ON k = v ORDER BY n",
    ):
        assert "narrowed at run time by [k@" in plan(connection, query)
        ((_, analysed),) = rows(connection, f"EXPLAIN ANALYZE {query}")
        (gather,) = measured(analysed)
        assert gather.narrowed_to is not None
        assert gather.spread["rows"].max <= 2
        assert rows(connection, query) == [(70,), (7000,)]


# Partitions


def test_a_gather_has_as_many_partitions_as_the_gateway_is_set_to(tmp_path: Path):
    settings = {"VOLARY_GATEWAY__QUERY__TARGET_PARTITIONS": "2"}
    with LocalCluster(tmp_path, workers=4, settings=settings) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 16)")
        connection.sql("INSERT INTO t SELECT value, value % 7 FROM generate_series(1, 700) x(value)")
        for query, expected in [
            ("SELECT v, count(*) FROM t GROUP BY v ORDER BY v", [(v, 100) for v in range(7)]),
            ("SELECT DISTINCT v FROM t ORDER BY v", [(v,) for v in range(7)]),
            ("SELECT count(*) FROM (SELECT a.k FROM t a JOIN t b ON a.k = b.v)", [(600,)]),
            ("SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY v ORDER BY k) AS n FROM t)", [(100,)]),
        ]:
            shown = plan(connection, query)
            assert "GatherExec: workers=4" in shown
            assert "shards=16/16 workers=4/4" in shown
            assert partition_counts(shown) == {2}, shown
            assert rows(connection, query) == expected
        # A session may set another number, but not more partitions than workers are useful.
        query = "SELECT v, count(*) FROM t GROUP BY v ORDER BY v"
        for partitions, counts in [(3, {3}), (8, {4, 8})]:
            connection.sql(f"SET target_partitions = {partitions}")
            assert partition_counts(plan(connection, query)) == counts
            assert rows(connection, query) == [(v, 100) for v in range(7)]


def partition_counts(plan: str) -> set[int]:
    """Returns all partition counts in a plan, of both inputs and outputs."""
    found = re.findall(r"partitioning=\w+\(\[[^]]*\], (\d+)\), input_partitions=(\d+)", plan)
    found += re.findall(r"BucketMergeExec: readers=(\d+), partitions=(\d+)", plan)
    assert found, plan
    return {int(count) for counts in found for count in counts}


# Files


@dataclass(frozen=True)
class Spread:
    """The minimum, median and maximum of a measured value over the workers."""

    min: int
    median: int
    max: int


@dataclass(frozen=True)
class Gather:
    """What EXPLAIN ANALYZE shows about the workers of a gather."""

    narrowed_to: str | None
    spread: dict[str, Spread]


def measured(analysed: str) -> list[Gather]:
    """Returns the values of each gather, in the order of the text."""
    found = re.findall(r"(?:\| narrowed to (.*)\n)?\s*\| workers=\d+ plan_bytes=.*? min/median/max: (.*)", analysed)
    assert len(found) == analysed.count("GatherExec")
    return [
        Gather(
            narrowed_to or None,
            {
                counted: Spread(*map(int, numbers))
                for counted, *numbers in re.findall(r"(rows|scanned_rows)=(\d+)/(\d+)/(\d+)", spread)
            },
        )
        for narrowed_to, spread in found
    ]


@dataclass(frozen=True)
class Reading:
    """What one worker read from its only file, as EXPLAIN ANALYZE VERBOSE shows it."""

    plan: str
    fragment: str
    rows: int
    scanned_rows: int

    def left_of(self, what: str) -> tuple[int, int]:
        """Returns how many items there were, and how many had to be read, such as row groups after statistics."""
        ((total, matched),) = re.findall(rf"\b{what}=(\d+) total → (\d+) matched", self.fragment)
        return int(total), int(matched)

    def count(self, what: str) -> str:
        """Returns a count in the form that is shown to people."""
        (count,) = re.findall(rf"\b{what}=([^,\]]+)", self.fragment)
        return count

    @property
    def filters_while_reading(self) -> bool:
        return self.count("pushdown_rows_pruned") != "0" and "FilterExec" not in self.fragment


STATISTICS = "row_groups_pruned_statistics"
BLOOM_FILTERS = "row_groups_pruned_bloom_filter"
PAGES = "page_index_pages_pruned"


def reading(connection: volary.Connection, query: str) -> Reading:
    (_, text), (title, fragment) = rows(connection, f"EXPLAIN ANALYZE VERBOSE {query}")
    assert title == "fragment of worker w1 (the slowest)"
    (gather,) = measured(text)
    return Reading(text, fragment, gather.spread["rows"].max, gather.spread["scanned_rows"].max)


COUNT = 100_000
GROUP_ROWS = 30_000


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[volary.Connection]:
    """A connection to a cluster with one worker, which has small row groups.

    Table `birds` is one file, sorted by v from 1 to COUNT. Its shard key k has all even numbers up to 2 * COUNT, in no
    order.
    """
    settings = {"VOLARY_WORKER__STORAGE__ROW_GROUP_ROWS": str(GROUP_ROWS)}
    with (
        LocalCluster(tmp_path_factory.mktemp("files"), workers=1, settings=settings) as cluster,
        cluster.connect() as connection,
    ):
        connection.sql(
            "CREATE TABLE birds (k BIGINT, v BIGINT, ratio DOUBLE, name VARCHAR) "
            "WITH (shard_key = 'k', shards = 1, sort_key = 'v')"
        )
        connection.sql(
            f"INSERT INTO birds SELECT {key_of('value')}, value, value / 7.0, 'bird ' || value "
            f"FROM generate_series(1, {COUNT}) t(value)"
        )
        assert rows(connection, "SELECT count(*), sum(rows) FROM system.segments") == [(1, COUNT)]
        assert rows(connection, "SELECT min(k), max(k), count(DISTINCT k) FROM birds") == [(2, 2 * COUNT, COUNT)]
        yield connection


def key_of(value: object) -> str:
    """Returns SQL that maps each number up to COUNT to a different even number, because 7919 and COUNT have no common
    divisor.
    """
    return f"2 * (({value} * 7919) % {COUNT} + 1)"


def test_a_range_of_the_sort_key_skips_row_groups_and_pages(one_worker):
    for low, high in [(35_000, 39_999), (1, 5_000), (95_001, 99_999)]:
        query = f"SELECT k, name FROM birds WHERE v BETWEEN {low} AND {high}"
        read = reading(one_worker, query)
        assert read.left_of(STATISTICS) == (4, 1)
        pages, left = read.left_of(PAGES)
        # The last row group is too small for a second page.
        assert left == 1 < pages or low > 90_000, read.fragment
        assert read.rows == high - low + 1
        assert read.rows < read.scanned_rows < GROUP_ROWS
        counted = rows(one_worker, f"SELECT count(*), min(v), max(v) FROM ({query.replace('k, name', 'v')})")
        assert counted == [(high - low + 1, low, high)]


def test_a_range_of_another_column_skips_nothing(one_worker):
    read = reading(one_worker, f"SELECT v FROM birds WHERE k BETWEEN 1000 AND {COUNT}")
    assert read.left_of(STATISTICS) == (4, 4)
    assert read.scanned_rows == COUNT
    assert read.rows == COUNT // 2 - 499


@pytest.mark.parametrize("beyond", [0, 2 * COUNT + 2])
def test_a_value_beyond_the_bounds_of_a_file_is_not_looked_for_in_it(one_worker, beyond):
    query = f"SELECT v FROM birds WHERE k = {beyond}"
    read = reading(one_worker, query)
    assert read.left_of(STATISTICS) == (4, 0)
    assert read.scanned_rows == 0
    assert rows(one_worker, query) == []


# The types for which DataFusion uses bloom filters. Smaller integers, dates and times are not among them.
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("INTEGER", "CAST({} AS INTEGER)"),
        ("INTEGER UNSIGNED", "CAST({} AS INTEGER UNSIGNED)"),
        ("BIGINT", "{}"),
        ("VARCHAR", "lpad(CAST({} AS VARCHAR), 8, '0')"),
        ("BYTEA", "CAST(lpad(CAST({} AS VARCHAR), 8, '0') AS BYTEA)"),
        ("DECIMAL(9, 2)", "CAST({} AS DECIMAL(9, 2))"),
        ("DECIMAL(12, 2)", "CAST({} AS DECIMAL(12, 2))"),
        ("DECIMAL(38, 2)", "CAST({} AS DECIMAL(38, 2))"),
    ],
)
def test_a_shard_key_within_the_bounds_of_a_file_is_looked_for_only_where_it_may_be(one_worker, declared, value):
    table = f"bloom_{next(_names)}"
    one_worker.sql(f"CREATE TABLE {table} (k {declared}, v BIGINT) WITH (shard_key = 'k', shards = 1, sort_key = 'v')")
    one_worker.sql(
        f"INSERT INTO {table} SELECT {value.format(key_of('value'))}, value FROM generate_series(1, {COUNT}) t(value)"
    )
    absent = f"SELECT v FROM {table} WHERE k = {value.format(COUNT + 1)}"
    read = reading(one_worker, absent)
    assert read.left_of(STATISTICS) == (4, 4)
    assert read.left_of(BLOOM_FILTERS) == (4, 0)
    assert read.scanned_rows == 0
    assert rows(one_worker, absent) == []
    present = f"SELECT v FROM {table} WHERE k = {value.format(key_of(70_001))}"
    read = reading(one_worker, present)
    assert read.left_of(STATISTICS) == (4, 4)
    assert read.left_of(BLOOM_FILTERS) == (4, 1)
    assert rows(one_worker, present) == [(70_001,)]
    one_worker.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize(
    ("query", "passing", "expected"),
    [
        (f"SELECT name FROM birds WHERE k = {key_of(50_000)}", 1, [("bird 50000",)]),
        ("SELECT k, name FROM birds WHERE v = 1", 1, [(2 * 7920, "bird 1")]),
        ("SELECT name FROM birds WHERE v BETWEEN 50000 AND 50001 ORDER BY v", 2, [("bird 50000",), ("bird 50001",)]),
        ("SELECT count(name) FROM birds WHERE v <= 100", 100, [(100,)]),
    ],
)
def test_columns_are_read_late_where_next_to_no_row_passes(one_worker, query, passing, expected):
    read = reading(one_worker, query)
    assert ", late materialisation" in read.plan
    assert read.filters_while_reading, read.fragment
    # Rows that do not pass the filter do not leave the scan.
    assert read.scanned_rows == passing
    assert read.count("pushdown_rows_matched") == str(passing)
    assert rows(one_worker, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # One in twenty rows passes.
        ("SELECT count(name) FROM birds WHERE v <= 5000", [(5000,)]),
        # The number of passing rows is unknown, because floats and remainders have no bounds.
        ("SELECT count(name) FROM birds WHERE ratio <= 1", [(7,)]),
        (f"SELECT count(name) FROM birds WHERE v % {COUNT} = 5", [(1,)]),
        ("SELECT count(k) FROM birds WHERE name = 'bird 5'", [(1,)]),
        # The query reads only the columns of the filter.
        ("SELECT v FROM birds WHERE v = 5", [(5,)]),
        # The query has no filter.
        ("SELECT count(name) FROM birds", [(COUNT,)]),
    ],
)
def test_columns_are_read_at_once_where_more_rows_may_pass(one_worker, query, expected):
    read = reading(one_worker, query)
    assert "late materialisation" not in read.plan
    assert not read.filters_while_reading, read.fragment
    assert (read.count("pushdown_rows_matched"), read.count("pushdown_rows_pruned")) == ("0", "0")
    assert read.scanned_rows >= 5_000
    assert rows(one_worker, query) == expected
