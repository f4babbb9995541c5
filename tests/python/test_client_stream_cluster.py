"""Tests streams of the client with a cluster: what is acknowledged is visible and durable, once, and errors say why."""

from __future__ import annotations

import asyncio
import threading
import uuid
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import PATIENCE_SECONDS, Processes, until
from proxy import Proxy

import volary
import volary.aio

pytestmark = pytest.mark.server

IDLE = {"VOLARY_GATEWAY__INGEST__STREAM_IDLE_TIMEOUT": "1s"}


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, pa.int64()), "name": pa.array([f"bird {k}" for k in values])})


def stored(connection: volary.Connection, table: str) -> list[int]:
    return [k for (k,) in connection.sql(f"SELECT k FROM {table} ORDER BY k").rows()]


# What is written


def test_what_is_acknowledged_is_visible(connection, empty_table):
    with connection.stream(empty_table) as stream:
        for number in range(1, 20):
            acknowledgement = stream.write(rows(number, -number)).result(timeout=PATIENCE_SECONDS)
            assert acknowledgement == volary.Acknowledgement(number, 2, is_duplicate=False)
            assert len(stored(connection, empty_table)) == 2 * number
    assert connection.batch_status(empty_table, stream.producer) == volary.BatchStatus(19, 19, "committed", 2)
    assert connection.batch_status(empty_table, stream.producer, 20).outcome == "unknown"


def test_dictionaries_become_rows(connection, name):
    connection.sql(
        f"CREATE TABLE {name} (k BIGINT NOT NULL, name VARCHAR DEFAULT 'kea', price DOUBLE, day DATE, "
        "cost DECIMAL(10, 2), id UUID, sizes DOUBLE[])"
    )
    key = uuid.UUID(int=7)
    with connection.stream(name) as stream:
        stream.write([{"k": 1, "price": 1, "day": date(2026, 1, 2), "cost": Decimal("1.5"), "id": key, "sizes": [1]}])
        stream.write([{"k": 2, "price": 2.5, "day": None, "cost": None, "id": None, "sizes": []}])
        stream.write([{"k": 3, "price": None, "day": None, "cost": Decimal("20.25"), "id": key, "sizes": [1.5, None]}])
        stream.write([{"k": 4, "name": None}])
    assert connection.sql(f"SELECT * FROM {name} ORDER BY k").rows() == [
        (1, "kea", 1.0, date(2026, 1, 2), Decimal("1.50"), key, [1.0]),
        (2, "kea", 2.5, None, None, None, []),
        (3, "kea", None, None, Decimal("20.25"), key, [1.5, None]),
        (4, None, None, None, None, None, None),
    ]


def test_a_batch_of_many_messages_is_one_batch(connection, name):
    connection.sql(f"CREATE TABLE {name} (k BIGINT, name VARCHAR)")
    parts = [rows(*range(start, start + 10)) for start in range(0, 1000, 10)]
    with connection.stream(name) as stream:
        assert stream.write(pa.Table.from_batches(parts)).result(timeout=PATIENCE_SECONDS).rows == 1000
        assert stream.write(rows()).result(timeout=PATIENCE_SECONDS).rows == 0
    assert stored(connection, name) == list(range(1000))


def test_many_threads_share_a_stream(connection, empty_table):
    def write(first: int) -> None:
        for number in range(first, first + 50):
            stream.write(rows(number))

    with connection.stream(empty_table) as stream:
        threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 400, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert stored(connection, empty_table) == list(range(400))


def test_a_table_is_found_where_the_session_finds_it(connection, cluster):
    connection.sql("CREATE SCHEMA IF NOT EXISTS aviary")
    connection.sql("CREATE OR REPLACE TABLE aviary.perches (k BIGINT, name VARCHAR)")
    connection.sql("CREATE OR REPLACE TABLE perches (k BIGINT, name VARCHAR)")
    with connection.stream("perches", schema="aviary") as stream:
        stream.write(rows(1))
    connection.sql("USE aviary")
    with connection.stream("perches") as stream:
        stream.write(rows(2))
    assert connection.batch_status("perches", stream.producer).outcome == "committed"
    assert stored(connection, "aviary.perches") == [1, 2]
    assert stored(connection, "public.perches") == []
    for table in ("aviary.perches", "public.perches"):
        connection.sql(f"DROP TABLE {table}")
    connection.sql("USE public")
    connection.sql("DROP SCHEMA aviary")


def test_a_temporary_table_takes_a_stream(cluster):
    with volary.connect(cluster.uri, username="ada", password="") as connection:
        connection.sql("CREATE TEMPORARY TABLE passing (k BIGINT, name VARCHAR)")
        with connection.stream("passing") as stream:
            stream.write(rows(1))
        assert stored(connection, "passing") == [1]


def test_tasks_write_without_blocking_the_event_loop(cluster, connection, empty_table):
    async def work() -> None:
        async with await volary.aio.connect(cluster.uri) as asynchronous, asynchronous.stream(empty_table) as stream:
            futures = [await stream.write(rows(number)) for number in range(10)]
            acknowledged = await asyncio.gather(*futures)
            assert [acknowledgement.sequence for acknowledgement in acknowledged] == list(range(1, 11))
            status = await asynchronous.batch_status(empty_table, stream.stream.producer)
            assert status.last_sequence == 10

    asyncio.run(work())
    assert stored(connection, empty_table) == list(range(10))


# What goes wrong


def test_a_table_that_does_not_exist_takes_no_stream(connection):
    with pytest.raises(volary.NotFoundError, match="no_birds"):
        connection.stream("no_birds")


def test_wrong_rows_are_refused(connection, empty_table):
    wrong = pa.record_batch({"k": pa.array([None], pa.int64())})
    with connection.stream(empty_table) as stream:
        futures = [stream.write(batch) for batch in (rows(1), wrong, rows(3))]
        with pytest.raises(volary.InvalidArgumentError, match="NULL") as caught:
            futures[1].result(timeout=PATIENCE_SECONDS)
        assert caught.value.sqlstate == "23502"
        with pytest.raises(volary.InvalidArgumentError, match="batch 2 was refused"):
            futures[2].result(timeout=PATIENCE_SECONDS)
    assert stored(connection, empty_table) == [1]
    assert stream.last_sequence == 1


@pytest.mark.parametrize(
    "wrong",
    [
        pa.record_batch({"k": pa.array([None], pa.int64())}),
        [{"k": 7, "colour": "red"}],
        [{"k": "kea"}],
        pa.record_batch({"k": [7], "name": ["x" * (17 << 20)]}),
    ],
    ids=["NULL", "another column", "another type", "too large"],
)
def test_a_stream_may_go_on_after_wrong_rows(connection, empty_table, wrong):
    with connection.stream(empty_table, continue_on_error=True) as stream:
        futures = [stream.write(batch) for batch in (rows(1), wrong, rows(3), wrong)]
        for future in (futures[1], futures[3]):
            assert isinstance(future.exception(timeout=PATIENCE_SECONDS), volary.InvalidArgumentError)
        assert [futures[place].result(timeout=PATIENCE_SECONDS).sequence for place in (0, 2)] == [1, 3]
    assert stored(connection, empty_table) == [1, 3]
    # The last refusal is not recorded, but the next stream finds its own numbers.
    with connection.stream(empty_table, producer=stream.producer) as stream:
        stream.write(rows(5))
    assert stored(connection, empty_table) == [1, 3, 5]


def test_a_stream_can_be_killed(cluster, connection, empty_table):
    with connection.stream(empty_table) as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        with cluster.connect() as other:
            other.sql(f"KILL '{stream.query_id}'")
        with pytest.raises(volary.CancelledError, match=r"(?i)kill"):
            until(lambda: stream.write(rows(2)).result(timeout=PATIENCE_SECONDS) and None, "the stream has ended")


def test_a_stream_ends_with_its_table(connection, empty_table):
    with connection.stream(empty_table) as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        connection.sql(f"DROP TABLE {empty_table}")
        with pytest.raises(volary.NotFoundError, match=empty_table):
            stream.write(rows(2)).result(timeout=PATIENCE_SECONDS)


@pytest.fixture
def kea(tmp_path):
    """Connections of an administrator, and of a user who may do nothing."""
    with (
        LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}'")
        admin.sql("CREATE TABLE birds (k BIGINT, name VARCHAR)")
        with volary.connect(cluster.uri, username="kea", password=PASSWORD) as connection:
            yield admin, connection


def test_a_stream_needs_the_right_to_insert_as_long_as_it_writes(kea):
    admin, connection = kea
    # A table for which a user has no right at all does not exist for the user.
    denied = (volary.NotFoundError, volary.PermissionDeniedError)
    with pytest.raises(denied, match="birds"):
        connection.stream("birds")
    admin.sql("GRANT INSERT ON birds TO kea")
    with connection.stream("birds") as stream:
        # The user may not read the table.
        stream.write([{"k": 1, "name": None}]).result(timeout=PATIENCE_SECONDS)
        assert connection.batch_status("birds", stream.producer).outcome == "committed"
        admin.sql("REVOKE INSERT ON birds FROM kea")
        with pytest.raises(denied, match="birds"):
            stream.write(rows(2)).result(timeout=PATIENCE_SECONDS)
    assert stored(admin, "birds") == [1]


def test_a_producer_has_one_stream(connection, empty_table):
    first = connection.stream(empty_table, producer="kea")
    first.write(rows(1)).result(timeout=PATIENCE_SECONDS)
    with connection.stream(empty_table, producer="kea") as second:
        assert second.last_sequence == 1
        second.write(rows(2)).result(timeout=PATIENCE_SECONDS)
        with pytest.raises(volary.AlreadyExistsError, match="another stream"):
            first.write(rows(3)).result(timeout=PATIENCE_SECONDS)
        second.write(rows(4))
    assert stored(connection, empty_table) == [1, 2, 4]


# What gets lost


def test_a_stream_that_was_idle_begins_again(tmp_path):
    with LocalCluster(tmp_path, workers=1, settings=IDLE) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE birds (k BIGINT, name VARCHAR)")
        with connection.stream("birds") as stream:
            stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
            first = stream.query_id
            until(lambda: stream._sender.is_idle, "the gateway has ended the stream")
            assert stream.write(rows(2)).result(timeout=PATIENCE_SECONDS).sequence == 2
            assert stream.query_id != first
        assert stored(connection, "birds") == [1, 2]


def test_no_batch_is_lost_or_doubled_when_connections_are_cut(cluster, connection, empty_table):
    proxy = Proxy()
    proxy.target = int(cluster.uri.rsplit(":", 1)[1])
    try:
        with volary.connect(f"grpc://{proxy.address}") as far, far.stream(empty_table, window=1 << 14) as stream:
            futures = []
            for number in range(600):
                futures.append(stream.write(rows(number)))
                if number % 97 == 96:
                    proxy.cut()
            stream.flush()
            assert [future.result().sequence for future in futures] == list(range(1, 601))
    finally:
        proxy.close()
    assert stored(connection, empty_table) == list(range(600))


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_no_batch_is_lost_or_doubled_when_the_gateway_restarts(tmp_path, ends):
    with Processes(tmp_path) as processes:
        for _ in range(2):
            processes.add_worker()
        processes.sql("CREATE TABLE birds (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        with processes.connect() as connection, connection.stream("birds", window=1 << 14) as stream:
            written = threading.Event()
            futures = []

            def write() -> None:
                for number in range(400):
                    futures.append(stream.write(rows(number)))
                    if number == 200:
                        written.set()

            writer = threading.Thread(target=write)
            writer.start()
            assert written.wait(timeout=PATIENCE_SECONDS)
            if ends == "killed":
                processes.gateway.kill()
            else:
                processes.gateway.running().stop()
            processes.gateway.start()
            writer.join()
            stream.flush()
            assert [future.result().sequence for future in futures] == list(range(1, 401))
        assert sorted(k for (k,) in processes.sql("SELECT k FROM birds")) == list(range(400))


# Statements with an id


def test_a_statement_with_an_id_is_run_once(connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)"
    for _ in range(2):
        assert connection.sql(insert, [1, "kea"], batch_id="first").rows_affected == 1
        assert connection.ingest(empty_table, rows(2, 3), batch_id="second") == 2
    assert stored(connection, empty_table) == [1, 2, 3]
    assert connection.batch_status(empty_table, "second") == volary.BatchStatus(1, 1, "committed", 2)
    with pytest.raises(volary.AlreadyExistsError, match="first"):
        connection.sql(insert, [4, "kea"], batch_id="first")
    with pytest.raises(volary.AlreadyExistsError, match="second"):
        connection.ingest(empty_table, rows(2, 4), batch_id="second")
    with pytest.raises(volary.InvalidArgumentError, match="volary-batch-id"):
        connection.sql(f"SELECT * FROM {empty_table}", batch_id="third")
    for wrong in ("", "x" * 65, "kea\n", "tūī"):
        with pytest.raises(volary.InvalidArgumentError, match="batch_id must be"):
            connection.sql(insert, [4, "kea"], batch_id=wrong)
    assert stored(connection, empty_table) == [1, 2, 3]


def test_a_task_runs_a_statement_with_an_id_once(cluster, connection, empty_table):
    async def work() -> None:
        async with await volary.aio.connect(cluster.uri) as asynchronous:
            for _ in range(2):
                inserted = await asynchronous.sql(f"INSERT INTO {empty_table} (k) VALUES (?)", [1], batch_id="first")
                assert inserted.rows_affected == 1
                assert await asynchronous.ingest(empty_table, rows(2, 3), batch_id="second") == 2
            assert (await asynchronous.batch_status(empty_table, "second")).outcome == "committed"

    asyncio.run(work())
    assert stored(connection, empty_table) == [1, 2, 3]


def test_the_status_of_a_batch_in_a_table_that_does_not_exist_is_an_error(connection):
    with pytest.raises(volary.NotFoundError, match="no_birds"):
        connection.batch_status("no_birds", "kea")
