"""Tests groups of many workers that are merged bucket by bucket. The results must be right, and need little memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cluster import LocalCluster
from processes import Processes

import volary

pytestmark = pytest.mark.server

WORKERS = 3
GROUPS = 300_000
# Each group has rows on almost all workers, because the groups are by another column than the shard key.
ROWS = 3 * GROUPS
LITTLE_MEMORY = "24MiB"


def rows() -> pa.Table:
    numbers = pa.array(range(ROWS))
    groups = pa.array([number * 7919 % GROUPS for number in range(ROWS)])
    return pa.table(
        {
            "k": numbers,
            "g": groups,
            # Every 1024th group has no name. All these groups have the same key, NULL.
            "name": pc.if_else(
                pc.equal(pc.bit_wise_and(groups, 1023), 0),
                None,
                pc.binary_join_element_wise("name of", groups.cast(pa.string()), " "),
            ),
            "x": pc.divide(groups.cast(pa.float64()), 8.0),
        }
    )


@pytest.fixture(scope="module")
def groups_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("merge")
    with LocalCluster(directory, workers=WORKERS, allow_roots=[directory]) as cluster:
        pq.write_table(rows(), directory / "facts.parquet")
        with cluster.connect() as connection:
            connection.sql(
                "CREATE TABLE facts (k BIGINT NOT NULL, g BIGINT, name VARCHAR, x DOUBLE) "
                "WITH (shard_key = 'k', shards = 16)"
            )
            connection.sql(f"COPY facts FROM '{directory / 'facts.parquet'}'")
        yield cluster


@pytest.fixture
def connection(groups_cluster: LocalCluster) -> Iterator[volary.Connection]:
    with groups_cluster.connect() as connection:
        yield connection


def steps(connection: volary.Connection, sql: str) -> int:
    """Returns the number of steps of the merge, over all partitions."""
    plan = "\n".join(str(row) for row in connection.sql(f"EXPLAIN ANALYZE {sql}").rows())
    merge = re.search(r"BucketMergeExec: .*\bsteps=(\d+)", plan)
    assert merge is not None, plan
    return int(merge[1])


def test_many_groups_are_merged_in_steps_with_little_memory(connection: volary.Connection) -> None:
    sql = "SELECT g, count(*) AS n, sum(k) AS total, min(k) AS low FROM facts GROUP BY g"
    partitions = steps(connection, sql.replace("facts", "facts WHERE k < 100"))
    connection.sql(f"SET query_memory = '{LITTLE_MEMORY}'")
    assert steps(connection, sql) > 2 * partitions
    found = connection.sql(sql).to_arrow().sort_by("g")
    expected = rows().group_by("g").aggregate([([], "count_all"), ("k", "sum"), ("k", "min")]).sort_by("g")
    assert found.num_rows == GROUPS
    for column, name in [("n", "count_all"), ("total", "k_sum"), ("low", "k_min")]:
        assert found[column].combine_chunks().equals(expected[name].combine_chunks()), column


@pytest.mark.parametrize("key", ["name", "x", "g, name", "name, x, g % 3"])
def test_keys_of_all_kinds_are_merged_alike(connection: volary.Connection, key: str) -> None:
    grouped = f"SELECT {key}, count(*) AS n, sum(k) AS total FROM facts GROUP BY {key}"
    sql = f"SELECT count(*) AS groups, sum(n) AS n, sum(total) AS total FROM ({grouped})"
    connection.sql(f"SET query_memory = '{LITTLE_MEMORY}'")
    few = connection.sql(sql).rows()
    connection.sql("RESET query_memory")
    assert few == connection.sql(sql).rows()
    assert few[0][1:] == (ROWS, ROWS * (ROWS - 1) // 2)


def test_distinct_rows_are_merged_in_steps_too(connection: volary.Connection) -> None:
    connection.sql(f"SET query_memory = '{LITTLE_MEMORY}'")
    assert steps(connection, "SELECT DISTINCT g FROM facts") > 2
    assert connection.sql("SELECT count(DISTINCT g) FROM facts").rows() == [(GROUPS,)]
    names = pc.count_distinct(rows()["name"], mode="only_valid").as_py()
    assert connection.sql("SELECT count(DISTINCT name) FROM facts").rows() == [(names,)]


def test_workers_with_few_groups_meet_others_with_many(
    connection: volary.Connection,
) -> None:
    """A worker with few rows sends them in one round, and the gateway divides them."""
    connection.sql(f"SET query_memory = '{LITTLE_MEMORY}'")
    # One value of the shard key has nearly all rows.
    connection.sql("CREATE TABLE skewed (k BIGINT NOT NULL, g BIGINT) WITH (shard_key = 'k', shards = 16)")
    try:
        connection.sql("INSERT INTO skewed SELECT 1, g FROM facts UNION ALL SELECT k, g FROM facts WHERE k < 2000")
        sql = "SELECT g, count(*) AS n FROM skewed GROUP BY g"
        assert steps(connection, sql) > 2
        again = "SELECT count(*), sum(n), max(n) FROM (" + sql + ")"
        assert connection.sql(again).rows() == [(GROUPS, ROWS + 2000, ROWS // GROUPS + 1)]
    finally:
        connection.sql("DROP TABLE skewed")


def test_a_merge_that_nobody_reads_to_its_end_ends(connection: volary.Connection) -> None:
    connection.sql(f"SET query_memory = '{LITTLE_MEMORY}'")
    sql = "SELECT g, count(*) AS n FROM facts GROUP BY g"
    for _ in range(3):
        assert len(connection.sql(f"{sql} LIMIT 10").rows()) == 10
        reader = connection.sql(sql).reader()
        assert reader.read_next_batch().num_rows > 0
        del reader
    # A join reads one side first, and may not read the other side at all.
    empty = f"SELECT a.g FROM ({sql}) a JOIN (SELECT g, count(*) AS n FROM facts WHERE k < 0 GROUP BY g) b ON a.g = b.g"
    assert connection.sql(empty).rows() == []
    both = f"SELECT count(*), sum(a.n + b.n) FROM ({sql}) a JOIN ({sql}) b ON a.g = b.g"
    assert connection.sql(both).rows() == [(GROUPS, 2 * ROWS)]


def test_workers_spill_groups_that_they_may_not_hold(tmp_path: Path) -> None:
    settings = {"VOLARY_WORKER__MEMORY__LIMIT": "24MiB", "VOLARY_WORKER__EXECUTION__TARGET_PARTITIONS": "2"}
    with Processes(tmp_path, settings) as processes:
        for _ in range(2):
            processes.add_worker()
        processes.sql(
            "CREATE TABLE facts (k BIGINT NOT NULL, g BIGINT, name VARCHAR, x DOUBLE) "
            "WITH (shard_key = 'k', shards = 8)"
        )
        # Workers with so little memory can only write a few rows at a time.
        for number, batch in enumerate(rows().to_batches(max_chunksize=ROWS // 9)):
            file = tmp_path / f"facts-{number}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), file)
            processes.sql(f"COPY facts FROM '{file}'")
        counted = "SELECT count(*), sum(n) FROM (SELECT name, g, count(*) AS n FROM facts GROUP BY name, g)"
        assert processes.sql(counted) == [(GROUPS, ROWS)]


def test_few_rows_of_many_small_columns_meet_others_with_many(connection: volary.Connection) -> None:
    """There are more rows than a message usually has, but they have so few bytes that they come in one round."""
    connection.sql("SET query_memory = '24MiB'")
    connection.sql("CREATE TABLE narrow (k BIGINT NOT NULL, a SMALLINT, b TINYINT) WITH (shard_key = 'k', shards = 16)")
    try:
        pairs = "CAST(k % 30000 AS SMALLINT) AS a, CAST(k % 11 AS TINYINT) AS b"
        connection.sql(f"INSERT INTO narrow SELECT k, {pairs} FROM facts")
        assert connection.sql("SELECT count(*) FROM (SELECT DISTINCT a, b FROM narrow)").rows() == [(330_000,)]
    finally:
        connection.sql("DROP TABLE narrow")


def test_lists_of_texts_are_gathered_whole(connection: volary.Connection) -> None:
    sql = (
        "SELECT count(*), sum(cardinality(names)), sum(length(array_to_string(names, ''))) FROM "
        "(SELECT g % 20000 AS g, array_agg(lpad(CAST(k AS VARCHAR), 100, '.')) AS names FROM facts "
        "WHERE k < 200000 GROUP BY 1)"
    )
    assert connection.sql(sql).rows() == [(20_000, 200_000, 20_000_000)]
