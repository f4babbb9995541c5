"""Tests lookups of the client with a cluster: the same rows as with SQL, all types, threads, lost connections."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import PATIENCE_SECONDS, Processes, until
from proxy import Proxy

import volary
import volary.aio

pytestmark = pytest.mark.server


@pytest.fixture
def flock(connection: volary.Connection, empty_table: str) -> str:
    """A table with the keys 1 to 100. The key 7 has two rows."""
    connection.sql(f"INSERT INTO {empty_table} (k, name) SELECT value, 'bird ' || value FROM generate_series(1, 100)")
    connection.sql(f"INSERT INTO {empty_table} (k, name) VALUES (7, 'twin')")
    return empty_table


# Rows


def test_rows_come_in_the_order_of_the_keys(connection, flock):
    table = connection.lookup(flock, [5, 3, 1000, 5], columns=["name"])
    assert table.to_pydict() == {"name": ["bird 5", "bird 3", "bird 5"]}
    table = connection.lookup(flock, [5, 1000, 7], columns=["k"], positions="at")
    assert table.to_pydict() == {"at": [0, 2, 2], "k": [5, 7, 7]}
    assert connection.lookup(flock, [3]).to_pylist() == [{"k": 3, "name": "bird 3", "price": None, "day": None}]
    for nothing in ([], [1000], range(0), pa.array([], pa.int64())):
        table = connection.lookup(flock, nothing)
        assert (table.num_rows, table.column_names) == (0, ["k", "name", "price", "day"])


def test_any_number_of_keys_is_looked_up_in_one_state(connection, flock):
    keys = [number % 150 + 1 for number in range(300_000)]
    table = connection.lookup(flock, keys, columns=["k"], positions="at")
    expected = [(at, key) for at, key in enumerate(keys) if key <= 100 for _ in range(2 if key == 7 else 1)]
    assert table.column("at").to_pylist() == [at for at, _ in expected]
    assert table.column("k").to_pylist() == [key for _, key in expected]


def test_a_bound_lookup_answers_in_all_forms(connection, flock):
    with connection.lookups(flock, columns=["name", "price"]) as lookup:
        assert lookup.get([2, 1]).column("name").to_pylist() == ["bird 2", "bird 1"]
        assert lookup.get([1000, 2], positions="at").to_pydict() == {"at": [1], "name": ["bird 2"], "price": [None]}
        assert lookup.contains([2, 1000, 7, 2]).to_pylist() == [True, False, True, True]
        assert lookup.contains([1, 2]).to_pylist() == [True, True]
        assert lookup.contains([-1]).to_pylist() == [False]
        assert lookup.one(3) == {"name": "bird 3", "price": None}
        assert lookup.one(1000) is None
        with pytest.raises(volary.InvalidArgumentError, match="key 7 has 2 rows"):
            lookup.one(7)
        pending = [lookup.submit([number]) for number in range(1, 50)]
        names = [answer.get().column("name").to_pylist()[0] for answer in pending]
        assert names == [f"bird {number}" for number in range(1, 50)]
        (query_id,) = lookup.query_ids
        listed = connection.sql("SELECT statement FROM system.queries WHERE query_id = ?", [query_id]).rows()
        assert listed == [(f"LOOKUP STREAM FROM public.{flock}",)]
    with pytest.raises(RuntimeError, match="closed"):
        lookup.get([1])


@pytest.mark.parametrize(
    "keys",
    [
        (2, 1),
        np.array([2, 1], np.int16),
        pd.Series([2, 1]),
        pl.Series([2, 1]),
        pa.chunked_array([[2], [1]]),
        pa.array(["2", "1"]).dictionary_encode(),
        (key for key in (2, 1)),
        ["2", "1"],
        [2.0, 1.0],
        [Decimal(2), Decimal("1.0")],
        {2: "x", 1: "y"},
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_may_have_any_form(connection, flock, keys):
    assert connection.lookup(flock, keys, columns=["k"]).column(0).to_pylist() == [2, 1]


@pytest.mark.parametrize(
    ("sql_type", "values", "absent"),
    [
        ("SMALLINT", [-1, 0, 32767], [99_999, 2.5]),
        ("INTEGER", [-1, 0, 2**31 - 1], [2**40]),
        ("BIGINT", [-1, 0, 2**63 - 1], [5]),
        ("VARCHAR", ["", "kea", "ä" * 50], ["Kea"]),
        ("BYTEA", [b"", b"\x00\xff", b"x" * 50], [b"y"]),
        ("DATE", [date(1969, 12, 31), date(2026, 1, 2)], [datetime(2026, 1, 2, 3)]),
        ("TIMESTAMP", [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 1, 2)], [datetime(2026, 1, 3)]),
        ("DECIMAL(10, 2)", [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99")], [Decimal("1.501")]),
        ("UUID", [uuid.UUID(int=0), uuid.UUID(int=7)], [uuid.UUID(int=8)]),
        ("TIME", [time(0, 0), time(23, 59, 59, 999_999)], [time(1, 1)]),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_all_types_of_keys_find_what_sql_finds(connection, name, sql_type, values, absent):
    connection.sql(f"CREATE TABLE {name} (k {sql_type}, n BIGINT) WITH (shard_key = 'k', shards = 5)")
    for number, value in enumerate(values):
        connection.sql(f"INSERT INTO {name} VALUES (?, ?)", [value, number])
    connection.sql(f"INSERT INTO {name} VALUES (NULL, -1)")
    with connection.lookups(name, columns=["n", "k"]) as lookup:
        for number, value in enumerate(values):
            assert lookup.one(value) == {"n": number, "k": value}
        backwards = lookup.get(values[::-1])
        assert backwards.column("n").to_pylist() == list(range(len(values)))[::-1]
        for value in absent:
            assert lookup.one(value) is None
            assert connection.sql(f"SELECT n FROM {name} WHERE k = ?", [value]).rows() == []


def test_keys_with_a_zone_are_instants(connection, name):
    connection.sql(f"CREATE TABLE {name} (k TIMESTAMP WITH TIME ZONE, n BIGINT) WITH (shard_key = 'k', shards = 3)")
    connection.sql(f"INSERT INTO {name} VALUES ('2026-01-02 12:00:00Z', 1)")
    connection.sql("SET TIME ZONE 'Asia/Tokyo'")
    try:
        local = datetime(2026, 1, 2, 21)
        instants = pa.array([local], pa.timestamp("us")), pa.array(["2026-01-02 21:00:00"])
        for keys in (*instants, pa.array([datetime(2026, 1, 2, 12)], pa.timestamp("ms", "UTC"))):
            assert connection.lookup(name, keys, columns=["n"]).column(0).to_pylist() == [1]
    finally:
        connection.sql("RESET TIME ZONE")


# The same as SQL


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_lookups_find_what_sql_finds(tmp_path: Path, workers: int) -> None:
    """Compares lookups with SQL, after every kind of change of a table, with any number of workers."""
    chance = random.Random(workers)
    with LocalCluster(tmp_path, workers) as cluster, cluster.connect() as connection:
        connection.sql("CREATE TABLE t (k BIGINT, name VARCHAR, v DOUBLE) WITH (shard_key = 'k', shards = 11)")
        lookup = connection.lookups("t", columns=["name", "v"])

        def compare() -> None:
            for count in (1, 2, 17, 400):
                keys = [chance.randrange(-50, 3_000) for _ in range(count)]
                wanted = pa.table({"at": pa.array(range(count)), "k": keys})
                found = lookup.get(keys, positions="at")
                connection.ingest("wanted", wanted, mode="replace", reference=True)
                expected = connection.sql("SELECT at, name, v FROM wanted JOIN t ON t.k = wanted.k").rows()
                rows = list(zip(*found.to_pydict().values(), strict=True))
                assert sorted(rows) == sorted(expected)
                assert found.column("at").to_pylist() == sorted(found.column("at").to_pylist())

        compare()
        numbers = pa.array(range(2_000))
        rows = {"k": numbers, "name": numbers.cast(pa.string()), "v": numbers.cast(pa.float64())}
        connection.ingest("t", pa.table(rows))
        compare()
        # Rows of small writes are in the log first.
        for number in range(20):
            connection.sql("INSERT INTO t VALUES (?, 'in the log', 0.5)", [number * 100])
        compare()
        connection.sql("OPTIMIZE t")
        compare()
        connection.sql("INSERT INTO t SELECT k + 1000, name || '+', v FROM t WHERE k > 1500")
        compare()
        connection.sql("TRUNCATE TABLE t")
        compare()
        connection.sql("INSERT INTO t VALUES (5, 'again', 1.5)")
        assert lookup.one(5) == {"name": "again", "v": 1.5}
        compare()


def test_expired_rows_are_not_found(connection, name):
    connection.sql(
        f"CREATE TABLE {name} (k BIGINT, at TIMESTAMP) WITH (shard_key = 'k', shards = 3, "
        "retention = '1 day', time_column = 'at')"
    )
    connection.sql(f"INSERT INTO {name} VALUES (1, now() - INTERVAL '2 days'), (2, now())")
    with connection.lookups(name, columns=["k"]) as lookup:
        assert lookup.get([1, 2]).column(0).to_pylist() == [2]


def test_what_was_written_before_is_found(connection, empty_table):
    with connection.lookups(empty_table, columns=["name"]) as lookup:
        for number in range(30):
            connection.sql(f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)", [number, str(number)])
            assert lookup.one(number) == {"name": str(number)}


# Threads and tasks


@pytest.mark.parametrize("join_window", [None, 0.001])
def test_many_threads_share_a_lookup(connection, flock, join_window):
    def ask(thread: int) -> None:
        for number in range(1, 60):
            key = (thread * 31 + number * 7) % 120 + 1
            expected = {"name": f"bird {key}"} if key <= 100 else None
            if key != 7:
                assert lookup.one(key) == expected
            keys = [key, 50, key]
            names = [f"bird {known}" for known in keys if known <= 100]
            if key != 7:
                assert lookup.get(keys).column(0).to_pylist() == names

    lookup = connection.lookups(flock, columns=["name"], join_window=join_window)
    with lookup, ThreadPoolExecutor(8) as threads:
        for asked in [threads.submit(ask, thread) for thread in range(8)]:
            asked.result()


def test_keys_that_are_joined_are_one_batch_and_fail_alone(connection, flock):
    barrier = threading.Barrier(10)

    def ask(key: Any) -> Any:
        barrier.wait()
        try:
            return lookup.one(key)
        except volary.InvalidArgumentError as error:
            return str(error)

    with connection.lookups(flock, columns=["name"], join_window=1.0) as lookup, ThreadPoolExecutor(10) as threads:
        keys = [1, 2, 3, 4, 7, 1000, 3, "5", "kea", "6"]
        answers = list(threads.map(ask, keys))
        assert "key 7 has 2 rows" in answers.pop(4)
        assert "shard key k" in answers.pop(7)
        assert answers == [None if key == 1000 else {"name": f"bird {key}"} for key in keys if key not in (7, "kea")]
        assert len(lookup.query_ids) == 2


def test_tasks_look_up_without_blocking_the_event_loop(cluster, flock):
    async def work(join_window: float | None) -> None:
        async with await volary.aio.connect(cluster.uri) as connection:
            assert (await connection.lookup(flock, [3, 2], columns=["k"])).column(0).to_pylist() == [3, 2]
            async with connection.lookups(flock, columns=["name"], join_window=join_window) as lookup:
                rows = await asyncio.gather(*(lookup.one(key) for key in range(20, 40)))
                assert rows == [{"name": f"bird {key}"} for key in range(20, 40)]
                answers = await asyncio.gather(lookup.one(7), lookup.one(8), lookup.one(1000), return_exceptions=True)
                assert isinstance(answers[0], volary.InvalidArgumentError)
                assert answers[1:] == [{"name": "bird 8"}, None]
                assert (await lookup.get([9])).column(0).to_pylist() == ["bird 9"]
                assert (await lookup.contains([9, 1000])).to_pylist() == [True, False]

    for join_window in (None, 0.01):
        asyncio.run(work(join_window))


# What goes wrong


def test_wrong_keys_are_refused_and_the_lookup_goes_on(connection, flock):
    with connection.lookups(flock, columns=["name"]) as lookup:
        for wrong, message in [
            ([1, None], "the key at position 1 is None"),
            (["kea"], "shard key k of table .* is BIGINT"),
            ([1, "kea"], "no common Arrow type"),
            ([[1]], "shard key k of table .* is BIGINT"),
            (pa.nulls(3), "the key at position 0 is None"),
        ]:
            with pytest.raises(volary.InvalidArgumentError, match=message):
                lookup.get(wrong)
            with pytest.raises(volary.InvalidArgumentError, match=message):
                connection.lookup(flock, wrong)
        with pytest.raises(volary.InvalidArgumentError, match=r"gateway\.lookup\.max_keys"):
            lookup.get(pa.array(np.ones(10_000_000, np.int8)))
        for wrong in (7, "kea", b"kea", None):
            with pytest.raises(TypeError, match="keys must be a list"):
                lookup.get(wrong)
        with pytest.raises(volary.InvalidArgumentError, match="None"):
            lookup.one(None)
        assert lookup.one(1) == {"name": "bird 1"}


def test_wrong_arguments_are_refused(connection, flock):
    with pytest.raises(volary.InvalidArgumentError, match="columns must be a list"):
        connection.lookup(flock, [1], columns=[])
    with pytest.raises(volary.InvalidArgumentError, match="columns must be a list"):
        connection.lookups(flock, columns="name")
    with pytest.raises(volary.InvalidArgumentError, match="join_window"):
        connection.lookups(flock, join_window=-1)
    with pytest.raises(volary.NotFoundError, match="no_birds"):
        connection.lookup("no_birds", [1])
    with pytest.raises(volary.NotFoundError, match='no column "colour"') as caught:
        connection.lookup(flock, [1], columns=["colour"])
    assert caught.value.sqlstate == "42703"


def test_kill_fails_what_waits_and_the_next_lookup_begins_anew(connection, flock):
    with connection.lookups(flock, columns=["name"]) as lookup:
        assert lookup.one(1) == {"name": "bird 1"}
        (query_id,) = lookup.query_ids
        connection.sql(f"KILL '{query_id}'")
        # A batch that is sent at this moment is ended with the call.
        until(lambda: _asks(lookup) == {"name": "bird 1"}, "the lookup has another call")
        assert lookup.query_ids != [query_id]


def _asks(lookup: volary.Lookup) -> Any:
    try:
        return lookup.one(1)
    except volary.CancelledError:
        return None


def test_a_dropped_table_fails_until_it_is_created_again(connection, flock):
    with connection.lookups(flock, columns=["name"]) as lookup:
        assert lookup.one(1) == {"name": "bird 1"}
        connection.sql(f"DROP TABLE {flock}")
        with pytest.raises(volary.NotFoundError, match=flock):
            lookup.one(1)
        connection.sql(f"CREATE TABLE {flock} (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        connection.sql(f"INSERT INTO {flock} VALUES (1, 'kea')")
        assert lookup.one(1) == {"name": "kea"}


def test_a_closed_connection_ends_its_lookups(cluster, flock):
    connection = volary.connect(cluster.uri)
    lookup = connection.lookups(flock)
    assert lookup.contains([1]).to_pylist() == [True]
    connection.close()
    with pytest.raises(RuntimeError, match="closed"):
        lookup.get([1])


def test_a_lookup_that_nobody_refers_to_ends(connection, flock):
    lookup = connection.lookups(flock)
    assert lookup.contains([1]).to_pylist() == [True]
    (query_id,) = lookup.query_ids
    del lookup
    running = "SELECT count(*) FROM system.queries WHERE query_id = ?"
    until(lambda: connection.sql(running, [query_id]).rows() == [(0,)], "the call has ended")


def test_a_forked_process_does_not_end_the_lookup_of_its_parent(connection, flock):
    with connection.lookups(flock, columns=["name"]) as lookup:
        assert lookup.one(1) == {"name": "bird 1"}
        child = os.fork()
        if child == 0:
            # Dropping the copy must not end the call of the parent.
            del lookup
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert lookup.one(2) == {"name": "bird 2"}


def test_a_lookup_has_a_deadline(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO nests VALUES (1, 'kea')")
        with processes.connect() as connection, connection.lookups("nests", columns=["name"]) as lookup:
            assert lookup.one(1) == {"name": "kea"}
            worker.running().signal(signal.SIGSTOP)
            try:
                for ask in (lookup.one, lambda key, timeout: connection.lookup("nests", [key], timeout=timeout)):
                    with pytest.raises(volary.DeadlineExceededError, match="timeout"):
                        ask(1, timeout=0.5)
            finally:
                worker.running().signal(signal.SIGCONT)
            assert lookup.one(1) == {"name": "kea"}


# Lost connections


def test_a_gateway_that_starts_again_is_found(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
        processes.sql("INSERT INTO nests VALUES (1, 'kea')")
        with processes.connect() as connection, connection.lookups("nests", columns=["name"]) as lookup:
            assert lookup.one(1) == {"name": "kea"}
            processes.gateway.kill()
            with ThreadPoolExecutor(3) as threads:
                asked = [threads.submit(lookup.get, [1, 2], timeout=PATIENCE_SECONDS) for _ in range(3)]
                processes.gateway.start()
                for answer in asked:
                    assert answer.result().column(0).to_pylist() == ["kea"]


def test_what_was_not_answered_is_asked_again(cluster, flock):
    proxy = Proxy()
    proxy.target = int(cluster.uri.rsplit(":", 1)[1])
    try:
        with (
            volary.connect(f"grpc://{proxy.address}") as connection,
            connection.lookups(flock, columns=["name"]) as lookup,
            ThreadPoolExecutor(4) as threads,
        ):
            stop = threading.Event()

            def ask() -> int:
                count = 0
                while not stop.is_set():
                    assert lookup.get([3, 1000, 2]).column(0).to_pylist() == ["bird 3", "bird 2"]
                    count += 1
                return count

            asked = [threads.submit(ask) for _ in range(4)]
            seen = ""
            for _ in range(3):
                known = seen
                until(lambda known=known: lookup.query_ids not in ([], [known]), "the lookup is connected")
                (seen,) = lookup.query_ids
                proxy.cut()
            stop.set()
            assert all(answer.result() > 0 for answer in asked)
    finally:
        proxy.close()


# Users


def test_rights_are_those_of_the_moment(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path, 1, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}'")
        admin.sql("CREATE TABLE nests (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        admin.sql("INSERT INTO nests VALUES (1, 'kea')")
        # The current schema of the session is asked for when the lookup is created.
        with (
            volary.connect(cluster.uri, username="kea", password=PASSWORD) as connection,
            connection.lookups("nests", columns=["name"]) as lookup,
        ):
            with pytest.raises(volary.NotFoundError, match="nests"):
                lookup.one(1)
            admin.sql("GRANT SELECT ON nests TO kea")
            assert lookup.one(1) == {"name": "kea"}
            admin.sql("REVOKE SELECT ON nests FROM kea")
            with pytest.raises((volary.NotFoundError, volary.PermissionDeniedError), match="nests"):
                lookup.one(1)


@pytest.fixture
def temporary(cluster: LocalCluster) -> Iterator[volary.Connection]:
    with volary.connect(cluster.uri, username="ada", password="") as connection:
        connection.sql("CREATE TEMPORARY TABLE passing (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 2)")
        connection.sql("INSERT INTO passing VALUES (1, 'kea')")
        yield connection


def test_a_temporary_table_is_found_in_its_session(temporary):
    assert temporary.lookup("passing", [1]).to_pylist() == [{"k": 1, "name": "kea"}]
    with temporary.lookups("passing") as lookup:
        assert lookup.one(1) == {"k": 1, "name": "kea"}


def test_the_names_are_public():
    assert {"Keys", "Lookup", "PendingLookup"} <= set(volary.__all__)
    assert volary.Lookup.__name__ == "Lookup"
