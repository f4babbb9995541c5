"""Tests that rows are found by key in columns that stay decoded, and that they are the same rows as those of a scan.
Tests scans of segments that stay decoded, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import LocalCluster
from scrape import Operations

import volary

pytestmark = pytest.mark.server

SETTINGS = {
    "VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0",
    # Only OPTIMIZE merges segments.
    "VOLARY_WORKER__STORAGE__COMPACTION": "false",
}
ROWS = 40_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("lookups"), workers=2, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connection(cluster: LocalCluster) -> Iterator[volary.Connection]:
    with cluster.connect() as connection:
        connection.sql(
            "CREATE TABLE birds (k BIGINT, name VARCHAR, price DECIMAL(12, 2), at TIMESTAMP) "
            "WITH (shard_key = 'k', shards = 4)"
        )
        connection.sql(
            "INSERT INTO birds SELECT value, 'the name of bird ' || value, CAST(value % 977 AS DECIMAL(12, 2)), "
            f"TIMESTAMP '2020-01-01 00:00:00' + value * INTERVAL '1 second' FROM generate_series(1, {ROWS})"
        )
        # These rows go to the log. One of their keys is there already, and one is NULL.
        connection.sql("INSERT INTO birds VALUES (7, 'again', 1.5, NULL), (NULL, 'without a key', 2.5, NULL)")
        yield connection


def total(cluster: LocalCluster, name: str, outcome: str | None = None) -> float:
    """Returns the sum of a metric over all workers."""
    values = Operations(cluster.output()).values()
    suffix = "}" if outcome is None else f'outcome="{outcome}"}}'
    return sum(value for series, value in values.items() if series.startswith(name + "{") and series.endswith(suffix))


def answered(cluster: LocalCluster) -> float:
    return total(cluster, "volary_keyed_fragments_total", "answered")


STATEMENTS = [
    ("SELECT * FROM birds WHERE k = 7", "SELECT * FROM birds WHERE k + 0 = 7"),
    ("SELECT name, k FROM birds WHERE k = 39999", "SELECT name, k FROM birds WHERE k + 0 = 39999"),
    ("SELECT * FROM birds WHERE k = -1", "SELECT * FROM birds WHERE k + 0 = -1"),
    (
        "SELECT price FROM birds WHERE k IN (7, 8, 8, 12000, 99999999, NULL)",
        "SELECT price FROM birds WHERE k + 0 IN (7, 8, 12000)",
    ),
    (
        "SELECT k, name FROM birds WHERE k IN (1, 7) AND price < 2",
        "SELECT k, name FROM birds WHERE k + 0 IN (1, 7) AND price < 2",
    ),
    (
        "SELECT k, price + price AS twice FROM birds WHERE k = 31",
        "SELECT k, price + price AS twice FROM birds WHERE k + 0 = 31",
    ),
    (
        f"SELECT k, at FROM birds WHERE k IN ({', '.join(str(key) for key in range(5, 3000, 3))})",
        "SELECT k, at FROM birds WHERE k >= 5 AND k < 3000 AND k % 3 = 2",
    ),
]


@pytest.mark.parametrize(("by_key", "by_scan"), STATEMENTS)
def test_rows_by_key_are_those_of_a_scan(
    cluster: LocalCluster, connection: volary.Connection, by_key: str, by_scan: str
) -> None:
    expected = sorted(connection.sql(by_scan).rows(), key=repr)
    # The first runs are ordinary: they load what is known of the segments.
    for _ in range(3):
        assert sorted(connection.sql(by_key).rows(), key=repr) == expected
    before = answered(cluster)
    again = connection.sql(by_key)
    assert sorted(again.rows(), key=repr) == expected
    assert answered(cluster) > before
    assert total(cluster, "volary_lookup_columns_total", "hit") > 0
    assert 0 < total(cluster, "volary_lookup_held_bytes") < total(cluster, "volary_lookup_limit_bytes")


def test_parameters_and_joins_are_answered_by_key(cluster: LocalCluster, connection: volary.Connection) -> None:
    connection.sql("CREATE TABLE wanted (n BIGINT, k BIGINT) WITH (shard_key = 'n', shards = 2)")
    connection.sql("INSERT INTO wanted VALUES (1, 7), (2, 20000), (3, -5), (4, NULL)")
    joined = "SELECT w.n, b.price FROM wanted w JOIN birds b ON w.k = b.k ORDER BY w.n, b.price"
    price = 20000 % 977
    for _ in range(3):
        for key in (1, 20, 20000):
            rows = connection.sql("SELECT name FROM birds WHERE k = ?", [key]).rows()
            assert rows == [(f"the name of bird {key}",)]
        rows = [(n, float(it)) for n, it in connection.sql(joined).rows()]
        assert rows == [(1, 1.5), (1, 7.0), (2, float(price))]
    before = answered(cluster)
    connection.sql("SELECT name FROM birds WHERE k = ?", [300]).rows()
    assert answered(cluster) == before + 1
    connection.sql(joined).rows()
    assert answered(cluster) > before + 1


def test_explain_analyze_says_that_rows_were_found_by_key(connection: volary.Connection) -> None:
    statement = "EXPLAIN ANALYZE VERBOSE SELECT name FROM birds WHERE k = 77"
    for _ in range(3):
        plan = str(connection.sql(statement).rows())
    assert "RowsByKey: from decoded columns, metrics=[keys=1, found_rows=1, output_rows=1" in plan


def test_lookups_see_what_is_written_merged_and_deleted(cluster: LocalCluster, connection: volary.Connection) -> None:
    connection.sql("CREATE TABLE seen (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 1)")
    expected: list[tuple[int]] = []
    for value in range(12):
        connection.sql(f"INSERT INTO seen VALUES (1, {value}), (2, -1)")
        expected.append((value,))
        if value % 5 == 4:
            connection.sql("OPTIMIZE seen")
        for _ in range(2):
            assert sorted(connection.sql("SELECT v FROM seen WHERE k = 1").rows()) == expected
    assert answered(cluster) > 0
    connection.sql("TRUNCATE seen")
    assert connection.sql("SELECT v FROM seen WHERE k = 1").rows() == []


def test_tiny_segments_stay_decoded_and_scans_see_what_changes(tmp_path: Path) -> None:
    settings = {**SETTINGS, "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B"}
    with LocalCluster(tmp_path, workers=2, settings=settings) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE small (k BIGINT, name VARCHAR, v DOUBLE) WITH (shard_key = 'k', shards = 16)")
        expected: list[tuple[int, str, float]] = []
        for value in range(0, 120, 20):
            rows = [(key, f"bird {key}", key / 2) for key in range(value, value + 20)]
            texts = ", ".join(f"({key}, '{name}', {number})" for key, name, number in rows)
            connection.sql(f"INSERT INTO small VALUES {texts}")
            expected += rows
            if value == 60:
                connection.sql("OPTIMIZE small")
            # Each query but the last wants other columns, so some of them are decoded and some are not.
            names = connection.sql("SELECT name FROM small WHERE v >= 5 ORDER BY k").rows()
            assert names == [(name,) for _, name, number in expected if number >= 5]
            assert connection.sql("SELECT count(*), sum(k) FROM small").rows() == [
                (len(expected), sum(key for key, _, _ in expected))
            ]
            for _ in range(2):
                assert sorted(connection.sql("SELECT * FROM small").rows()) == expected
        held = total(cluster, "volary_decoded_segment_bytes")
        assert held > len(expected) * (8 + 16 + 8)
        # Segments of more rows are decoded each time.
        connection.sql("CREATE TABLE large (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 2)")
        connection.sql("INSERT INTO large SELECT value, -value FROM generate_series(1, 20000) AS t(value)")
        for _ in range(2):
            assert connection.sql("SELECT sum(v) FROM large").rows() == [(-sum(range(20_001)),)]
        assert total(cluster, "volary_decoded_segment_bytes") == held
        connection.sql("TRUNCATE small")
        assert connection.sql("SELECT * FROM small").rows() == []


def test_without_memory_keys_are_looked_up_in_segments(tmp_path: Path) -> None:
    settings = {**SETTINGS, "VOLARY_WORKER__LOOKUP__MEMORY": "1KiB", "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE birds (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 1)")
        connection.sql("INSERT INTO birds SELECT value, -value FROM generate_series(1, 1000) AS t(value)")
        for key in range(1, 10):
            assert connection.sql("SELECT v FROM birds WHERE k = ?", [key]).rows() == [(-key,)]
        assert answered(cluster) == 0
        assert total(cluster, "volary_keyed_fragments_total", "cold") > 0
        assert connection.sql("SELECT count(v) FROM birds").rows() == [(1_000,)]
        assert total(cluster, "volary_lookup_held_bytes") == 0
        assert total(cluster, "volary_decoded_segment_bytes") == 0
