"""Tests direct results, plans, statistics and asyncio of the Python client."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from cluster import LocalCluster
from processes import PATIENCE_SECONDS, until

import volary
import volary.aio

pytestmark = pytest.mark.server

ROWS = 100_000


@pytest.fixture(scope="module")
def eggs(cluster: LocalCluster) -> Iterator[str]:
    """The name of a table with the keys from 1 to ROWS, which is on all workers."""
    with cluster.connect() as connection:
        connection.sql("CREATE TABLE client_eggs (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 16)")
        connection.sql(f"INSERT INTO client_eggs SELECT value, 'egg ' || value FROM generate_series(1, {ROWS})")
        yield "client_eggs"
        connection.sql("DROP TABLE client_eggs")


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("volary-part-")]


def test_a_table_is_read_whole_from_its_workers(connection, eggs):
    table = connection.read_table(eggs)
    assert table.schema == pa.schema([("k", pa.int64()), ("name", pa.string())])
    assert sorted(table["k"].to_pylist()) == list(range(1, ROWS + 1))
    one = connection.read_table(eggs, columns=["name"], threads=1)
    assert one.schema.names == ["name"]
    assert one.num_rows == ROWS
    assert reading_threads() == []


def test_any_query_may_ask_for_direct_results(connection, eggs):
    for query, parameters in (
        (f"SELECT k FROM {eggs} WHERE k > ?", [ROWS - 5]),
        (f"SELECT count(*) FROM {eggs}", None),
    ):
        direct = connection.sql(query, parameters, direct=True)
        assert sorted(direct.rows()) == sorted(connection.sql(query, parameters).rows())
    ordered = connection.sql(f"SELECT k FROM {eggs} ORDER BY k LIMIT 3", direct=True)
    assert ordered.rows() == [(1,), (2,), (3,)]
    assert connection.sql(f"SELECT * FROM {eggs} WHERE k < 0", direct=True).to_arrow().num_rows == 0


def test_direct_results_are_read_batch_by_batch_and_closed_early(connection, eggs):
    batches = connection.sql(f"SELECT * FROM {eggs}", direct=True).batches()
    assert next(batches).num_rows > 0
    batches.close()
    until(lambda: not reading_threads(), "the threads have ended")
    with connection.sql(f"SELECT * FROM {eggs}", direct=True) as result:
        assert result.schema.names == ["k", "name"]
    with pytest.raises(RuntimeError, match="closed before it was read"):
        result.rows()
    forgotten = connection.sql(f"SELECT * FROM {eggs}", direct=True)
    del forgotten
    gc.collect()
    until(lambda: not reading_threads(), "the threads of a forgotten result have ended")
    assert connection.sql("SELECT 1").rows() == [(1,)]


def test_a_timeout_holds_for_the_parts_too(connection, endless_part):
    with pytest.raises(volary.DeadlineExceededError):
        connection.sql(endless_part, direct=True, timeout=0.5).to_arrow()
    until(lambda: not reading_threads(), "the threads have ended")


def test_a_reader_is_told_that_somebody_has_closed_the_result(connection, endless_part, background):
    result = connection.sql(endless_part, direct=True)
    reading = background(result.to_arrow)
    until(reading_threads, "the parts are read")
    result.close()
    with pytest.raises(RuntimeError, match="closed"):
        reading.result(timeout=PATIENCE_SECONDS)


def test_an_error_of_a_worker_ends_a_direct_result(connection, eggs):
    with pytest.raises(volary.InvalidArgumentError, match="Divide by zero"):
        connection.sql(f"SELECT 1 / (k - 5) FROM {eggs}", direct=True).rows()
    until(lambda: not reading_threads(), "the threads have ended")


def test_a_result_says_its_query_and_what_it_took(connection, eggs):
    result = connection.sql(f"SELECT * FROM {eggs} WHERE k > 7")
    assert result.query_id is not None
    assert result.to_arrow().num_rows == ROWS - 7
    statistics = result.statistics
    assert statistics.rows == ROWS - 7
    assert statistics.workers == 3
    assert statistics.shards == 16
    assert statistics.scanned_rows >= ROWS - 7
    assert statistics.running_us > 0
    logged = f"SELECT rows, scanned_rows FROM system.query_log WHERE query_id = '{result.query_id}'"
    assert connection.sql(logged).rows() == [(ROWS - 7, statistics.scanned_rows)]
    written = connection.sql("CREATE TABLE client_counted AS SELECT 1 AS k UNION ALL SELECT 2")
    connection.sql("DROP TABLE client_counted")
    assert written.statistics.rows == 2
    assert written.query_id != result.query_id
    direct = connection.sql(f"SELECT * FROM {eggs}", direct=True)
    assert direct.statistics.planning_us > 0
    assert direct.to_arrow().num_rows == ROWS


def test_a_plan_is_text_and_a_tree(connection, eggs):
    plan = connection.explain(f"SELECT name, count(*) FROM {eggs} WHERE k > 5 GROUP BY name ORDER BY 2")
    assert str(plan) == plan.text
    (gather,) = plan.root.find("GatherExec")
    assert "workers=3" in gather.details
    (scan,) = gather.find("ShardScanExec")
    assert "table=client_eggs" in scan.details
    assert plan.root.find("ShardScanExec") == [scan]
    assert plan.summary == {}
    assert "logical_plan" in plan.texts


def test_an_analyzed_plan_says_what_was_done(connection, eggs):
    plan = connection.explain(f"SELECT count(*) FROM {eggs} WHERE k > ?", [5], analyze=True)
    assert plan.summary["rows"] == "1"
    assert {"query_id", "planning", "running"} <= plan.summary.keys()
    assert any(node.metrics.get("output_rows") == "1" for node in plan.root.walk())
    (gather,) = plan.root.find("GatherExec")
    assert any("slowest: w" in note for note in gather.notes)
    shown = plan._repr_html_()
    assert "GatherExec" in shown
    assert "<details" in shown


def test_a_bar_shows_how_far_a_query_is(connection, eggs, capfd):
    result = connection.sql(f"SELECT k % 10, sum(length(repeat(name, 100))) FROM {eggs} GROUP BY 1", progress=True)
    assert len(result.rows()) == 10
    assert "query:" in capfd.readouterr().err
    assert connection.read_table(eggs, columns=["k"], progress=True).num_rows == ROWS
    assert "parts:" in capfd.readouterr().err
    with pytest.raises(volary.NotFoundError):
        connection.sql("SELECT * FROM no_such_table", progress=True)
    assert connection.sql("SET timezone = 'UTC'", progress=True).rows_affected == 0


# asyncio


def run(work):
    return asyncio.run(asyncio.wait_for(work, 5 * PATIENCE_SECONDS))


def test_asyncio_statements_wait_without_holding_up_the_loop(cluster, eggs):
    async def work():
        async with await volary.aio.connect(cluster.uri) as connection:
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            queries = [connection.sql(f"SELECT sum(k + {n}) FROM {eggs}") for n in range(8)]
            results = await asyncio.gather(*queries)
            sums = [(await result.rows())[0][0] for result in results]
            ticking.cancel()
            return ticks, sums

    ticks, sums = run(work())
    assert sums == [ROWS * (ROWS + 1) // 2 + n * ROWS for n in range(8)]
    assert ticks > 0


def test_asyncio_reads_batches_tables_and_plans(cluster, eggs):
    async def work():
        async with await volary.aio.connect(cluster.uri) as connection:
            result = await connection.sql(f"SELECT * FROM {eggs} WHERE k <= ?", [1000])
            rows = 0
            async for batch in result:
                rows += batch.num_rows
            assert rows == 1000
            assert (await connection.read_table(eggs, columns=["k"])).num_rows == ROWS
            assert "GatherExec" in (await connection.explain(f"SELECT * FROM {eggs}")).text
            direct = await connection.sql(f"SELECT k FROM {eggs} WHERE k = 7", direct=True)
            assert (await direct.to_pandas())["k"].tolist() == [7]
            assert "client_eggs" in await connection.tables()
            written = await connection.ingest("client_aio", pa.table({"k": [1, 2]}), mode="replace")
            assert written == 2
            await connection.sql("DROP TABLE client_aio")
            with pytest.raises(volary.NotFoundError):
                await connection.sql("SELECT * FROM no_such_table")

    run(work())


def test_a_task_that_is_cancelled_ends_a_direct_read(cluster, endless_part):
    async def work():
        async with await volary.aio.connect(cluster.uri) as connection:

            async def ask():
                return await (await connection.sql(endless_part, direct=True)).to_arrow()

            task = asyncio.create_task(ask())
            await asyncio.to_thread(until, reading_threads, "the parts are read")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await (await connection.sql("SELECT 1")).rows() == [(1,)]

    run(work())
    until(lambda: not reading_threads(), "the threads have ended")


def test_a_task_that_is_cancelled_cancels_its_statement(cluster, eggs):
    slow = f"SELECT count(*) FROM {eggs} a JOIN {eggs} b ON a.k % 10 = b.k % 10 JOIN {eggs} c ON c.k % 10 = b.k % 10"

    async def work():
        async with await volary.aio.connect(cluster.uri) as connection:

            async def ask():
                return await (await connection.sql(slow)).rows()

            def running() -> int:
                count = "SELECT count(*) FROM system.queries WHERE statement LIKE '%c.k % 10%'"
                with cluster.connect() as other:
                    return other.sql(count + " AND statement NOT LIKE '%system.queries%'").rows()[0][0]

            task = asyncio.create_task(ask())
            await asyncio.to_thread(until, running, "the query runs")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(until, lambda: running() == 0, "the query has ended")
            assert await (await connection.sql("SELECT 1")).rows() == [(1,)]

    run(work())
