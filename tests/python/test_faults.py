"""Tests processes that die, stop, fill their disk or start wrongly.

The results must be complete, or typed errors. Afterwards, everything must work again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import IMPATIENT, PATIENCE_SECONDS, Process, Processes, Worker, until, within

import volary

pytestmark = pytest.mark.server

ROWS = 20_000
SUM = ROWS * (ROWS - 1) // 2
# Threshold in bytes. Idle connections send less, namely the pings of HTTP/2 (17 bytes now and then).
MORE_THAN_PINGS = 100
# The gateway asks workers for reports only when they join and when the gateway starts.
SELDOM = {
    "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "10m",
    "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "1h",
}
# No worker is given up because it is silent.
# All rows go to segments at once, so that tests can wait for files.
SEGMENTS = {"VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B"}
ENDURING = {
    "VOLARY_GATEWAY__GATHER__CONNECT_TIMEOUT": "10m",
    "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "10m",
}
# A query computes for a second or two until it holds as much memory as it may and spills.
SPILLING_SECONDS = 5 * PATIENCE_SECONDS
# A join with the reference table on the workers. It has more rows than all buffers between a worker and a client hold.
MANY = "SELECT birds.k, birds.v, feathers.f FROM birds CROSS JOIN feathers"
FEATHERS = 1_000
# A query that runs on the gateway without end.
MANY_GROUPS = "SELECT v + n, count(*) FROM birds CROSS JOIN generate_series(1, 1000000000) t(n) GROUP BY v + n"


class Loading(Processes):
    """A cluster whose workers write rows into segments at once."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, {**SEGMENTS, **(settings or {})})


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """A gateway without workers."""
    with Loading(tmp_path) as processes:
        yield processes


def with_birds(processes: Processes, *, proxied: bool = False) -> Processes:
    """Adds two workers and the tables `birds` and `feathers`. The second worker may be behind a proxy."""
    processes.add_worker()
    processes.add_worker(proxied=proxied)
    load_birds(processes)
    return processes


@pytest.fixture
def pair(processes: Processes) -> Processes:
    """A gateway and two workers with the tables `birds` and `feathers`."""
    return with_birds(processes)


@pytest.fixture
def proxied(processes: Processes) -> Processes:
    """A gateway and two workers with tables, where the second worker is behind a proxy."""
    return with_birds(processes, proxied=True)


@pytest.fixture
def impatient_pair(tmp_path: Path) -> Iterator[Processes]:
    """Starts the nodes of `pair` with a gateway that soon gives up a silent worker."""
    with Loading(tmp_path, IMPATIENT) as processes:
        yield with_birds(processes)


@pytest.fixture
def impatient_proxied(tmp_path: Path) -> Iterator[Processes]:
    """Starts the nodes of `proxied` with a gateway that soon gives up a silent worker."""
    with Loading(tmp_path, IMPATIENT) as processes:
        yield with_birds(processes, proxied=True)


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Processes]:
    """A gateway and two workers with tables, where only queries send bytes through the proxy of the second worker.

    The gateway asks for no reports in the meantime, and waits for a worker as long as it takes.
    """
    with Loading(tmp_path, SELDOM | ENDURING) as processes:
        yield with_birds(processes, proxied=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB. A test must request it before the processes that use it."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@contextmanager
def spilling_to(disk: Path, directory: Path) -> Iterator[Processes]:
    """Starts a gateway with its data on that disk, and a worker."""
    processes = Loading(directory)
    processes.gateway.data_dir = disk / "gateway"
    with processes:
        processes.add_worker()
        load_birds(processes)
        yield processes


def birds(rows: int) -> pa.Table:
    """Returns rows in which k is the key and counts up, and v is random and cannot be compressed."""
    noise = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(os.urandom(8 * rows))])
    return pa.table({"k": range(rows), "v": noise})


def load_birds(processes: Processes) -> None:
    write(processes, "birds", ROWS)
    processes.sql("CREATE TABLE birds (k BIGINT NOT NULL, v BIGINT) WITH (shard_key = 'k', shards = 8)")
    copy(processes, "birds")
    processes.sql("CREATE TABLE feathers (f BIGINT NOT NULL) WITH (reference = true)")
    processes.sql(f"INSERT INTO feathers SELECT k + 1 FROM birds WHERE k < {FEATHERS}")


def write(processes: Processes, name: str, rows: int) -> None:
    pq.write_table(birds(rows), processes.directory / f"{name}.parquet")


def copy(processes: Processes, name: str) -> int | None:
    with processes.connect() as connection:
        return connection.sql(f"COPY birds FROM '{processes.directory / f'{name}.parquet'}'").rows_affected


def count_and_sum(processes: Processes) -> tuple[int, int]:
    """Returns the count and the sum of the keys, which are read on the workers."""
    ((count, total),) = processes.sql("SELECT count(v), sum(k) FROM birds")
    return count, total


def assert_all_is_well(processes: Processes) -> None:
    assert count_and_sum(processes) == (ROWS, SUM)


def assert_names(error: volary.Error, worker: Worker) -> None:
    assert f"worker {worker.id} at 127.0.0.1:" in error.message, error.message


# A worker that is killed


def test_a_query_of_a_killed_worker_fails_with_its_name_until_it_is_back(pair: Processes) -> None:
    _, worker = pair.workers
    worker.kill()
    with within(), pytest.raises(volary.UnavailableError) as caught:
        count_and_sum(pair)
    assert_names(caught.value, worker)
    worker.start()
    assert_all_is_well(pair)


def test_a_query_of_another_worker_alone_does_not_notice(pair: Processes) -> None:
    alive, dead = pair.workers
    dead.kill()
    places = dict(pair.sql("SELECT shard, worker_id FROM system.shards WHERE table_name = 'birds'"))
    assert set(places.values()) == {alive.id, dead.id}
    answered = 0
    for key in range(4):
        with within():
            try:
                assert pair.sql(f"SELECT k FROM birds WHERE k = {key}") == [(key,)]
                answered += 1
            except volary.UnavailableError as error:
                assert_names(error, dead)
    assert 0 < answered < 4


def test_a_query_waits_for_a_worker_that_starts_again(tmp_path: Path) -> None:
    with Loading(tmp_path, {"VOLARY_GATEWAY__GATHER__RETRY_FOR": "10m"}) as processes:
        worker = processes.add_worker()
        load_birds(processes)
        worker.kill()
        with processes.connect() as connection:
            count = connection.sql("SELECT count(v), sum(k) FROM birds")
            analysis = connection.sql("EXPLAIN ANALYZE SELECT v FROM birds")
            worker.start()
            with within():
                assert count.rows() == [(ROWS, SUM)]
                assert re.search("retries=[1-9]", analysis.rows()[0][1])


def test_a_worker_killed_in_the_middle_of_a_stream_that_is_read_slowly_fails_it(pair: Processes) -> None:
    _, worker = pair.workers
    with pair.connect() as connection:
        batches = connection.sql(MANY).batches()
        rows = next(batches).num_rows
        worker.kill()
        with within(), pytest.raises(volary.UnavailableError) as caught:
            rows += sum(batch.num_rows for batch in batches)
    assert_names(caught.value, worker)
    assert rows < ROWS * FEATHERS
    worker.start()
    assert_all_is_well(pair)


@pytest.mark.parametrize("place", ["first byte", "first quarter", "middle", "last batch", "end of stream", "last byte"])
def test_a_worker_killed_at_any_byte_of_a_stream_gives_all_rows_or_an_error(
    quiet: Processes, background: Any, place: str
) -> None:
    _, worker = quiet.workers
    query = "SELECT k, v FROM birds WHERE k >= 0"
    expected = sorted(quiet.sql(query))
    before = worker.proxy.downloaded
    assert sorted(quiet.sql(query)) == expected
    length = worker.proxy.downloaded - before
    cut = {
        "first byte": 1,
        "first quarter": length // 4,
        "middle": length // 2,
        "last batch": length - 500,
        "end of stream": length - 60,
        "last byte": length - 4,
    }[place]
    worker.proxy.hold_after(down=cut)
    answer = background(quiet.sql, query)
    # The last message contains times, so its length varies, and the last cut may come too late.
    until(lambda: worker.proxy.is_holding or answer.done(), "the worker has sent what it may")
    worker.kill()
    worker.proxy.cut()
    with within():
        try:
            assert sorted(answer.result()) == expected
        except volary.UnavailableError as error:
            assert_names(error, worker)
        else:
            assert place in ("end of stream", "last byte")
    worker.proxy.release()
    worker.start()
    assert sorted(quiet.sql(query)) == expected


# Many workers


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM birds WHERE k >= 0",
        "SELECT k FROM birds WHERE k >= 0 ORDER BY k",
        "SELECT k FROM birds GROUP BY k",
        "SELECT max(k) FROM birds GROUP BY v",
    ],
    ids=["as they come", "merged", "grouped by workers", "grouped by the gateway"],
)
@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_all_workers_are_asked_before_any_has_answered(
    tmp_path: Path, background: Any, query: str, partitions: int
) -> None:
    settings = SELDOM | ENDURING | {"VOLARY_GATEWAY__QUERY__TARGET_PARTITIONS": str(partitions)}
    with Loading(tmp_path, settings) as processes:
        workers = [processes.add_worker(proxied=True) for _ in range(3)]
        load_birds(processes)
        # A request has more bytes. The rest of it is held back, and no worker can answer without it.
        for worker in workers:
            worker.proxy.hold_after(up=MORE_THAN_PINGS)
        answer = background(processes.sql, query)
        try:
            until(lambda: all(worker.proxy.is_holding for worker in workers), "all workers are asked")
            assert not answer.done()
        finally:
            for worker in workers:
                worker.proxy.release()
        with within():
            assert sorted(answer.result()) == [(key,) for key in range(ROWS)]


# A worker that does not answer


@pytest.mark.parametrize("connections", ["open", "new"])
def test_a_worker_that_accepts_and_never_answers_is_given_up(impatient_proxied: Processes, connections: str) -> None:
    _, worker = impatient_proxied.workers
    worker.proxy.hold()
    if connections == "new":
        worker.proxy.cut()
    with within(), pytest.raises((volary.DeadlineExceededError, volary.UnavailableError)) as caught:
        count_and_sum(impatient_proxied)
    assert_names(caught.value, worker)
    worker.proxy.cut()
    worker.proxy.release()
    assert_all_is_well(impatient_proxied)


def test_a_worker_that_falls_silent_in_the_middle_of_a_stream_is_given_up(impatient_proxied: Processes) -> None:
    _, worker = impatient_proxied.workers
    worker.proxy.hold_after(down=1 << 20)
    with (
        impatient_proxied.connect() as connection,
        within(),
        pytest.raises(volary.DeadlineExceededError) as caught,
    ):
        list(connection.sql(MANY).batches())
    assert_names(caught.value, worker)
    assert f"for {IMPATIENT['VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT']}; " in caught.value.message
    worker.proxy.release()
    assert_all_is_well(impatient_proxied)


def test_a_worker_at_which_a_query_waits_for_its_turn_is_not_given_up(tmp_path: Path, background: Any) -> None:
    with Loading(tmp_path, IMPATIENT | {"VOLARY_WORKER__EXECUTION__MAX_RUNNING": "1"}) as processes:
        processes.add_worker()
        load_birds(processes)
        with processes.connect() as connection:
            batches = connection.sql(MANY).batches()
            next(batches)
            waiting = background(count_and_sum, processes)
            # This is longer than the time after which a silent worker is given up.
            with pytest.raises(TimeoutError):
                waiting.result(timeout=2)
        with within():
            assert waiting.result() == (ROWS, SUM)


def test_a_stopped_worker_is_given_up_and_serves_on_when_it_continues(impatient_pair: Processes) -> None:
    _, worker = impatient_pair.workers
    worker.running().signal(signal.SIGSTOP)
    with within(), pytest.raises((volary.DeadlineExceededError, volary.UnavailableError)) as caught:
        count_and_sum(impatient_pair)
    assert_names(caught.value, worker)
    until(lambda: impatient_pair.nodes("state")[worker.id] == "lost", "the stopped worker is shown as lost")
    assert impatient_pair.nodes("state")[impatient_pair.workers[0].id] == "alive"
    worker.running().signal(signal.SIGCONT)
    assert_all_is_well(impatient_pair)
    until(lambda: impatient_pair.nodes("state")[worker.id] == "alive", "the worker is shown as alive again")


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_worker_is_named_whether_it_relays_or_is_relayed(impatient_pair: Processes, stopped: int) -> None:
    """One of the two workers relays for both."""
    worker = impatient_pair.workers[stopped]
    query = "SELECT count(v), sum(k) FROM birds WHERE k >= 0"
    with impatient_pair.connect() as connection:
        connection.sql("SET relays = 1")
        plan = connection.sql(f"EXPLAIN {query}").rows()[-1][1]
        assert "GatherExec: workers=2, relays=1" in plan
        worker.running().signal(signal.SIGSTOP)
        # The failure of a relay is reported as its worker's failure, so the stream is tried again.
        with (
            within(),
            pytest.raises((volary.DeadlineExceededError, volary.UnavailableError)) as caught,
        ):
            connection.sql(query).rows()
        assert_names(caught.value, worker)
        # If the other worker has asked this one, the two may be unable to reach each other.
        asked_by_other = f"worker {impatient_pair.workers[1 - stopped].id} at " in caught.value.message
        assert asked_by_other == ("if workers cannot reach each other, SET relays = 'off'" in caught.value.message)
        worker.running().signal(signal.SIGCONT)
        assert connection.sql(query).rows() == [(ROWS, SUM)]


@pytest.mark.parametrize("before", ["", "EXPLAIN ANALYZE ", "INSERT INTO pairs "])
def test_a_join_of_the_gateway_that_makes_no_rows_ends_with_its_client(tmp_path: Path, before: str) -> None:
    with Loading(tmp_path, {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1"}) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE pairs (n BIGINT) WITH (shard_key = 'n', shards = 2)")
        numbers = "generate_series(1, 10000000)"
        pairs = f"SELECT count(*) AS n FROM {numbers} a(x), {numbers} b(y) WHERE x + y < 0"
        with processes.connect() as connection, pytest.raises(volary.DeadlineExceededError):
            connection.sql(before + pairs, timeout=1).rows()
        # The statement no longer takes the only place.
        with within():
            assert processes.sql("SELECT count(*) FROM pairs WHERE n >= 0") == [(0,)]


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_query_of_a_reference_table_is_answered_by_another_copy(
    impatient_pair: Processes, fault: signal.Signals
) -> None:
    _, worker = impatient_pair.workers
    worker.running().signal(fault)
    with within():
        # The copies of the table are used in turn.
        for _ in range(4):
            assert impatient_pair.sql("SELECT count(*), sum(f) FROM feathers WHERE f > 0") == [
                (FEATHERS, FEATHERS * (FEATHERS + 1) // 2)
            ]


def test_a_worker_that_ends_says_so(tmp_path: Path) -> None:
    with Loading(tmp_path, {"VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "1h"}) as processes:
        worker = processes.add_worker()
        worker.running().stop()
        assert processes.nodes("state")[worker.id] == "draining"


# A worker that joins late


def test_a_worker_that_joins_late_gets_new_tables_and_does_not_disturb_old_ones(pair: Processes) -> None:
    late = pair.add_worker()
    assert_all_is_well(pair)
    pair.sql("CREATE TABLE nests WITH (shard_key = 'k', shards = 6) AS SELECT k, k % 7 AS tree FROM birds")
    placed = pair.sql("SELECT DISTINCT worker_id FROM system.shards WHERE table_name = 'nests'")
    assert (late.id,) in placed
    assert pair.sql("SELECT count(*), sum(k) FROM nests WHERE tree >= 0") == [(ROWS, SUM)]
    assert pair.sql("SELECT count(*) FROM birds JOIN nests ON birds.k = nests.k") == [(ROWS,)]
    # The reference table has no copy on the late worker.
    joined = "SELECT count(*), sum(nests.k), sum(f) FROM nests JOIN feathers ON nests.tree + 1 = feathers.f"
    assert pair.sql(joined) == [(ROWS, SUM, sum(k % 7 + 1 for k in range(ROWS)))]
    outer = "SELECT count(*), count(nests.k) FROM feathers LEFT JOIN nests ON nests.tree + 1 = feathers.f"
    assert pair.sql(outer) == [(ROWS + FEATHERS - 7, ROWS)]
    pair.sql("INSERT INTO feathers VALUES (0)")
    assert pair.sql("SELECT count(f), min(f) FROM feathers") == [(FEATHERS + 1, 0)]


# Loads


def begin_half_a_load(processes: Processes, background: Any) -> Future[Any]:
    """Starts a COPY. The first worker gets all its rows and makes them durable; the second one gets only a part."""
    first, second = processes.workers
    write(processes, "more", 2 * ROWS)
    before = set(first.files())
    second.proxy.hold_after(up=100_000)
    load: Future[Any] = background(copy, processes, "more")
    until(lambda: second.proxy.is_holding, "the second worker has a part of its half")
    # The first worker has four of the eight shards. Files that the store names are complete.
    until(lambda: len(set(first.files()) - before) >= 4, "the first worker has written its half")
    ((table, rows),) = processes.sql("SELECT table_name, rows_written FROM system.loads")
    assert table == "birds"
    assert rows > 0
    assert not load.done()
    return load


def assert_nothing_is_left_of_a_load(processes: Processes, files: dict[str, list[Path]]) -> None:
    """Checks that no query and no disk has rows of the load, and that the same load now works."""
    assert_all_is_well(processes)
    until(
        lambda: {worker.name: worker.files() for worker in processes.workers} == files,
        "the files of the failed load are deleted",
    )
    assert processes.sql("SELECT sum(rows) FROM system.segments WHERE table_name = 'birds'") == [(ROWS,)]
    assert processes.sql("SELECT * FROM system.loads") == []
    assert copy(processes, "more") == 2 * ROWS
    assert count_and_sum(processes) == (3 * ROWS, SUM + ROWS * (2 * ROWS - 1))


def files_of(processes: Processes) -> dict[str, list[Path]]:
    while True:
        try:
            return {worker.name: worker.files() for worker in processes.workers}
        except FileNotFoundError:
            # A directory was deleted while it was read.
            continue


def keys_without(processes: Processes, worker: Worker, count: int) -> list[int]:
    """Returns `count` keys of `birds` whose shards are not on this worker, which is behind a proxy.

    If the worker sends a report during a query, it looks like the answer, and the key is skipped.
    """
    found: list[int] = []
    for key in range(ROWS):
        before = worker.proxy.downloaded
        assert processes.sql(f"SELECT k FROM birds WHERE k = {key}") == [(key,)]
        if worker.proxy.downloaded - before < MORE_THAN_PINGS:
            found.append(key)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("end", ["committed", "failed"])
def test_no_row_of_a_load_is_seen_before_it_ends_and_none_if_it_fails(
    proxied: Processes, background: Any, end: str
) -> None:
    files = files_of(proxied)
    first, second = proxied.workers
    # The second worker answers nobody while it accepts no rows. By then, the first one has all its rows of the load,
    # durably.
    keys = keys_without(proxied, second, 8)
    found = f"SELECT k, count(v) FROM birds WHERE k IN ({', '.join(map(str, keys))}) GROUP BY k ORDER BY k"
    load = begin_half_a_load(proxied, background)
    with proxied.connect() as connection:
        assert first.files() != files[first.name]
        with within():
            assert connection.sql(found).rows() == [(key, 1) for key in keys]
            # The catalog counts these rows.
            assert connection.sql("SELECT count(*) FROM birds").rows() == [(ROWS,)]
            assert connection.sql("SELECT rows FROM system.tables WHERE name = 'birds'").rows() == [(ROWS,)]
        assert not load.done()
        if end == "committed":
            second.proxy.release()
            with within():
                assert load.result() == 2 * ROWS
            assert connection.sql(found).rows() == [(key, 2) for key in keys]
            assert count_and_sum(proxied) == (3 * ROWS, SUM + ROWS * (2 * ROWS - 1))
            return
        second.kill()
        second.proxy.cut()
        second.proxy.release()
        with within(), pytest.raises(volary.UnavailableError):
            load.result()
        assert connection.sql(found).rows() == [(key, 1) for key in keys]
    second.start()
    assert_nothing_is_left_of_a_load(proxied, files)


def test_a_load_during_which_the_gateway_is_killed_leaves_nothing(proxied: Processes, background: Any) -> None:
    files = files_of(proxied)
    load = begin_half_a_load(proxied, background)
    proxied.gateway.kill()
    with within(), pytest.raises(volary.UnavailableError):
        load.result()
    proxied.workers[1].proxy.cut()
    proxied.workers[1].proxy.release()
    proxied.gateway.start()
    assert_nothing_is_left_of_a_load(proxied, files)


CREATE_NESTS = (
    "CREATE TABLE nests WITH (shard_key = 'k', shards = 8) AS "
    f"SELECT n AS k, n % 7 AS tree FROM generate_series(0, {2 * ROWS - 1}) t(n)"
)


def nests(processes: Processes) -> tuple[int, int] | None:
    """Returns the number of rows of the table `nests` and the sum of its keys, or None if the table does not exist."""
    is_listed = ("nests",) in processes.sql("SELECT name FROM system.tables")
    try:
        ((count, total),) = processes.sql("SELECT count(tree), sum(k) FROM nests WHERE tree >= 0")
    except volary.NotFoundError:
        assert not is_listed
        return None
    assert is_listed
    return count, total


ALL_NESTS = (2 * ROWS, ROWS * (2 * ROWS - 1))


def test_no_table_is_left_if_the_gateway_is_killed_while_workers_write_its_rows(
    proxied: Processes, background: Any
) -> None:
    files = files_of(proxied)
    first, second = proxied.workers
    second.proxy.hold_after(up=100_000)
    made = background(proxied.sql, CREATE_NESTS)
    until(lambda: second.proxy.is_holding, "the second worker has a part of its half")
    until(lambda: len(first.files()) - len(files[first.name]) == 4, "the first worker has written its half")
    assert nests(proxied) is None
    assert not made.done()
    proxied.gateway.kill()
    with within(), pytest.raises(volary.UnavailableError):
        made.result()
    second.proxy.cut()
    second.proxy.release()
    proxied.gateway.start()
    assert nests(proxied) is None
    until(lambda: files_of(proxied) == files, "the files of the table that never was are deleted")
    until(lambda: all_are_alive(proxied), "the gateway has found its workers")
    proxied.sql(CREATE_NESTS)
    assert nests(proxied) == ALL_NESTS
    assert_all_is_well(proxied)


def test_a_whole_table_or_none_is_left_if_the_gateway_is_killed_while_it_creates_the_table(
    pair: Processes, background: Any
) -> None:
    files = files_of(pair)

    def written() -> int:
        return sum(len(now) for now in files_of(pair).values()) - sum(len(then) for then in files.values())

    moments: list[Callable[[Future[Any]], bool]] = [
        lambda made: pair.sql("SELECT * FROM system.loads") != [] or made.done(),
        lambda made: written() >= 1,
        lambda made: written() >= 5,
        lambda made: written() >= 8,
        lambda made: made.done(),
    ]
    for number, moment in enumerate(moments):
        made = background(pair.sql, CREATE_NESTS)
        until(lambda made=made, moment=moment: moment(made), f"moment {number} has come")
        pair.gateway.kill()
        with within():
            is_answered = made.exception() is None
        pair.gateway.start()
        found = nests(pair)
        assert found == ALL_NESTS or (found is None and not is_answered), number
        pair.sql("DROP TABLE IF EXISTS nests")
        until(lambda: all_are_alive(pair), "the gateway has found its workers")
        pair.sql(CREATE_NESTS)
        assert nests(pair) == ALL_NESTS
        pair.sql("DROP TABLE nests")
        until(lambda: files_of(pair) == files, "all files of these tables are deleted")
    assert_all_is_well(pair)


def test_a_load_during_which_a_worker_is_killed_fails_with_its_name_and_leaves_nothing(
    proxied: Processes, background: Any
) -> None:
    files = files_of(proxied)
    load = begin_half_a_load(proxied, background)
    _, worker = proxied.workers
    worker.kill()
    worker.proxy.cut()
    worker.proxy.release()
    with within(), pytest.raises(volary.UnavailableError, match="run the statement again") as caught:
        load.result()
    assert_names(caught.value, worker)
    worker.start()
    assert_nothing_is_left_of_a_load(proxied, files)


def test_a_load_whose_client_is_killed_leaves_nothing(proxied: Processes, background: Any) -> None:
    files = files_of(proxied)
    clients: list[Process] = []

    def copy_with_a_process(processes: Processes, name: str) -> None:
        statement = f"COPY birds FROM '{processes.directory / f'{name}.parquet'}'"
        clients.append(processes.run("client", "sql", f"--gateway={processes.gateway.uri}", statement))
        clients[0].await_failure()

    write(proxied, "more", 2 * ROWS)
    load = begin_half_a_load(proxied, lambda _, *arguments: background(copy_with_a_process, *arguments))
    first, second = proxied.workers
    clients[0].kill()
    until(lambda: proxied.sql("SELECT * FROM system.loads") == [], "the load has ended")
    # The worker is told at once and not with its next report, although the other worker cannot be told.
    until(lambda: first.files() == files[first.name], "the rows that one worker had are gone")
    second.proxy.release()
    until(lambda: is_idle(proxied), "both workers are idle")
    until(load.done, "nobody waits for the client any more")
    assert_nothing_is_left_of_a_load(proxied, files)


def test_a_write_whose_client_gives_up_at_any_moment_is_there_whole_or_not_at_all(pair: Processes) -> None:
    keys = range(16)
    given_up = 0
    with pair.connect() as connection:
        connection.sql("CREATE TABLE eggs (k BIGINT NOT NULL, attempt BIGINT) WITH (shard_key = 'k', shards = 8)")

        def insert(attempt: int, timeout: float) -> float:
            started = time.monotonic()
            values = ", ".join(f"({key}, {attempt})" for key in keys)
            connection.sql(f"INSERT INTO eggs VALUES {values}", timeout=timeout)
            return time.monotonic() - started

        usual = min(insert(attempt, PATIENCE_SECONDS) for attempt in range(3))
        for attempt in range(3, 60):
            try:
                insert(attempt, usual * attempt / 40)
            except volary.DeadlineExceededError:
                given_up += 1
    assert given_up > 0
    # The workers must have what the catalog has counted: a committed write is never deleted.
    counted = "SELECT rows FROM system.tables WHERE name = 'eggs'"
    until(lambda: pair.sql(counted) == pair.sql("SELECT count(attempt) FROM eggs"), "all committed rows are there")
    attempts = pair.sql("SELECT attempt, count(*) FROM eggs GROUP BY attempt")
    assert {count for _, count in attempts} == {len(keys)}
    assert len(attempts) >= 3


def test_rows_of_a_key_do_not_wait_behind_those_of_a_scan(processes: Processes) -> None:
    proxy = processes.add_worker(proxied=True).proxy
    processes.sql("CREATE TABLE nests (id BIGINT, twigs VARCHAR) WITH (shard_key = 'id', shards = 8)")
    processes.sql(
        "INSERT INTO nests SELECT value, repeat(md5(value::varchar), 10) FROM generate_series(1, 10000) g(value)"
    )
    before = proxy.downloaded
    assert len(processes.sql("SELECT * FROM nests")) == 10_000
    scanned_bytes = proxy.downloaded - before
    # The connection of the scan stops, as if large results were in front of everything on it.
    proxy.hold_busy_connections(down=scanned_bytes // 2)
    for key in (1, 5_000):
        with within():
            assert len(processes.sql(f"SELECT * FROM nests WHERE id = {key}")) == 1


def test_a_load_into_a_worker_that_takes_no_rows_is_given_up(tmp_path: Path) -> None:
    with Loading(tmp_path, {"VOLARY_GATEWAY__LOAD__IDLE_TIMEOUT": "1s"}) as processes:
        worker = processes.add_worker(proxied=True)
        load_birds(processes)
        files = files_of(processes)
        # These are more rows than the connection and the proxy's sockets can buffer.
        write(processes, "more", 100 * ROWS)
        worker.proxy.hold_after(up=100_000)
        with within(), pytest.raises(volary.DeadlineExceededError) as caught:
            copy(processes, "more")
        assert_names(caught.value, worker)
        worker.proxy.release()
        write(processes, "more", 2 * ROWS)
        assert_nothing_is_left_of_a_load(processes, files)


def test_a_small_write_into_a_stopped_worker_is_given_up(tmp_path: Path) -> None:
    with Loading(tmp_path, {"VOLARY_GATEWAY__LOAD__IDLE_TIMEOUT": "1s"}) as processes:
        worker = processes.add_worker()
        load_birds(processes)
        worker.running().signal(signal.SIGSTOP)
        with within(), pytest.raises((volary.DeadlineExceededError, volary.UnavailableError)) as caught:
            processes.sql("INSERT INTO birds VALUES (-1, 1)")
        assert_names(caught.value, worker)
        worker.running().signal(signal.SIGCONT)
        assert_all_is_well(processes)


def test_the_rows_of_a_failed_load_are_deleted_before_the_next_report(tmp_path: Path, background: Any) -> None:
    with Loading(tmp_path, SELDOM) as processes:
        first = processes.add_worker()
        second = processes.add_worker(proxied=True)
        load_birds(processes)
        files = first.files()
        load = begin_half_a_load(processes, background)
        second.kill()
        second.proxy.cut()
        with within(), pytest.raises(volary.UnavailableError) as caught:
            load.result()
        assert_names(caught.value, second)
        until(lambda: first.files() == files, "the files of the failed load are deleted")


def test_a_full_disk_fails_a_load_with_the_workers_name_and_leaves_nothing(
    small_disk: Path, processes: Processes
) -> None:
    processes.add_worker()
    worker = processes.new_worker(data_dir=small_disk / "data")
    # Otherwise the worker takes no rows at all on such a disk.
    worker.variables = {"VOLARY_WORKER__STORAGE__MIN_FREE": "1B"}
    worker.start()
    load_birds(processes)
    files = files_of(processes)
    write(processes, "more", 60 * ROWS)
    with (
        within(),
        pytest.raises(volary.ResourceExhaustedError, match="the disk is full; free space and retry") as caught,
    ):
        copy(processes, "more")
    assert_names(caught.value, worker)
    assert str(worker.data_dir) in caught.value.message
    write(processes, "more", 2 * ROWS)
    assert_nothing_is_left_of_a_load(processes, files)


def test_a_full_disk_fails_a_query_that_spills_with_what_to_do(small_disk: Path, tmp_path: Path) -> None:
    with (
        spilling_to(small_disk, tmp_path) as processes,
        within(SPILLING_SECONDS),
        pytest.raises(volary.ResourceExhaustedError, match="the disk is full; free space and retry"),
    ):
        processes.sql(MANY_GROUPS)


def test_a_query_that_fills_the_disk_of_the_gateway_ends_alone(small_disk: Path, tmp_path: Path) -> None:
    with spilling_to(small_disk, tmp_path) as processes:
        with within(SPILLING_SECONDS), pytest.raises(volary.Error, match="the disk is full"):
            processes.sql(MANY_GROUPS)
        until(lambda: all_are_idle(processes), "all nodes are idle")
        assert_all_is_well(processes)
        processes.sql("INSERT INTO feathers VALUES (0)")


# A restart


def describe(processes: Processes) -> list[list[tuple[Any, ...]]]:
    """Returns the columns and the placement of the tables."""
    shards = "SELECT * FROM system.shards ORDER BY table_name, shard, worker_id"
    return [processes.sql(statement) for statement in ("DESCRIBE birds", "DESCRIBE feathers", "SHOW TABLES", shards)]


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_everything_is_there_again_when_all_processes_were(pair: Processes, end: str) -> None:
    pair.sql("CREATE VIEW early AS SELECT k FROM birds WHERE k < 10")
    pair.sql("INSERT INTO birds VALUES (-1, 42)")
    described = describe(pair)
    ids = [worker.id for worker in pair.workers]
    for node in [pair.gateway, *pair.workers]:
        if end == "killed":
            node.kill()
        else:
            node.running().stop()
    # The workers start first. They wait for the gateway without a time limit.
    for worker in pair.workers:
        worker.launch()
    pair.gateway.start()
    for worker in pair.workers:
        worker.await_ready()
    assert [worker.id for worker in pair.workers] == ids
    assert count_and_sum(pair) == (ROWS + 1, SUM - 1)
    assert pair.sql("SELECT v FROM birds WHERE k = -1") == [(42,)]
    assert pair.sql("SELECT count(*), min(k) FROM early") == [(11, -1)]
    assert pair.sql("SELECT count(f) FROM feathers") == [(FEATHERS,)]
    assert describe(pair) == described


def all_are_alive(processes: Processes) -> bool:
    return set(processes.nodes("state").values()) == {"alive"}


def has_joined_again(worker: Worker) -> bool:
    return "joined again" in worker.running().tail()


def test_a_gateway_that_starts_again_asks_its_workers_whether_they_are_there(tmp_path: Path) -> None:
    # By themselves, the workers would do nothing for most of an hour.
    with Loading(tmp_path, SELDOM) as processes:
        processes.add_worker()
        processes.add_worker()
        load_birds(processes)
        processes.gateway.kill()
        processes.gateway.start()
        until(lambda: all_are_alive(processes), "the workers have answered")
        assert not any(has_joined_again(worker) for worker in processes.workers)
        assert_all_is_well(processes)
        processes.sql("CREATE TABLE nests WITH (shard_key = 'k', shards = 8) AS SELECT k FROM birds")
        placed = processes.sql("SELECT DISTINCT worker_id FROM system.shards WHERE table_name = 'nests' ORDER BY 1")
        assert placed == [(worker.id,) for worker in processes.workers]


def test_a_worker_that_the_gateway_does_not_find_any_more_joins_again(processes: Processes) -> None:
    worker = processes.add_worker()
    load_birds(processes)
    gateway, backup = processes.gateway, processes.directory / "backup"
    gateway.running().stop()
    shutil.copytree(gateway.data_dir, backup)
    gateway.start()
    # The worker restarts on another port, which the older catalog does not have.
    worker.kill()
    worker.start()
    gateway.running().stop()
    shutil.rmtree(gateway.data_dir)
    backup.rename(gateway.data_dir)
    gateway.start()
    until(lambda: all_are_alive(processes), "the worker is there again")
    assert has_joined_again(worker)
    assert_all_is_well(processes)


def test_a_worker_that_no_gateway_reaches_joins_again_and_is_asked_again(impatient_proxied: Processes) -> None:
    _, worker = impatient_proxied.workers
    worker.proxy.hold()
    until(lambda: has_joined_again(worker), "the worker takes itself for forgotten")
    until(lambda: impatient_proxied.nodes("state")[worker.id] == "lost", "it has joined, and does not answer")
    worker.proxy.cut()
    worker.proxy.release()
    until(lambda: all_are_alive(impatient_proxied), "the worker answers again")
    assert_all_is_well(impatient_proxied)


# A client that goes away


def work_of_workers(processes: Processes) -> list[Any]:
    """Returns the number of running fragments and the reserved memory of each worker."""
    rows = processes.sql("SELECT running_fragments, memory_reserved_bytes FROM system.nodes WHERE role = 'worker'")
    return [number for row in rows for number in row]


def is_idle(processes: Processes) -> bool:
    return not any(work_of_workers(processes))


def is_busy(processes: Processes) -> bool:
    return all(work_of_workers(processes))


@pytest.mark.parametrize("query", [MANY, f"{MANY} WHERE f <= 200 ORDER BY v, f"], ids=["streamed", "sorted"])
def test_a_client_that_closes_a_stream_frees_all_nodes(pair: Processes, query: str) -> None:
    with pair.connect() as connection:
        result = connection.sql(query)
        batches = result.batches()
        assert next(batches).num_rows > 0
        until(lambda: is_busy(pair), "both workers hold memory for the query")
        result.close()
        until(lambda: is_idle(pair), "both workers are idle")
    assert_all_is_well(pair)


def test_a_client_that_is_killed_in_a_stream_frees_all_nodes(pair: Processes) -> None:
    client = pair.run("client", "sql", f"--gateway={pair.gateway.uri}", "--output=csv", MANY)
    until(lambda: is_busy(pair) and client.output(), "both workers hold memory for the query")
    client.kill()
    until(lambda: is_idle(pair), "both workers are idle")
    assert_all_is_well(pair)


# If queries hold more of the gateway's 256 MiB than this, no other one gets 250 MiB.
NO_ROOM_BYTES = 6 << 20


def gateway_has_room(processes: Processes) -> bool:
    """Returns whether a query gets 250 of the gateway's 256 MiB. The query makes and copies as many bytes."""
    try:
        processes.sql("SELECT array_length(array_agg(repeat('x', 1048576 + n % 2))) FROM generate_series(1, 250) t(n)")
    except volary.ResourceExhaustedError:
        return False
    return True


def held_by_gateway(processes: Processes) -> int:
    """Returns the number of bytes that queries hold on the gateway."""
    ((held,),) = processes.sql("SELECT memory_reserved_bytes FROM system.nodes WHERE role = 'gateway'")
    return held


def gateway_spills(processes: Processes) -> bool:
    return any(path.is_file() for path in (processes.gateway.data_dir / "spill").rglob("*"))


def all_are_idle(processes: Processes) -> bool:
    # Only when the gateway counts nothing more as held, a query shows that the memory can be had.
    return (
        is_idle(processes)
        and not gateway_spills(processes)
        and held_by_gateway(processes) == 0
        and gateway_has_room(processes)
    )


@pytest.mark.parametrize(
    ("query", "workers_are_busy"),
    [
        (f"SELECT s.n, m.f FROM generate_series(1, 4000000) s(n) JOIN ({MANY}) m ON s.n = m.k", True),
        ("SELECT v, n FROM birds CROSS JOIN generate_series(1, 200) s(n) ORDER BY v + n", False),
    ],
    ids=["joined", "sorted"],
)
def test_a_client_that_closes_a_stream_frees_the_gateway(pair: Processes, query: str, workers_are_busy: bool) -> None:
    assert held_by_gateway(pair) == 0
    with pair.connect() as connection:
        result = connection.sql(query)
        batches = result.batches()
        assert next(batches).num_rows > 0
        until(lambda: is_busy(pair) is workers_are_busy, "the workers have their part of the query")
        assert not gateway_has_room(pair)
        result.close()
        until(lambda: all_are_idle(pair), "all nodes are idle")
    assert_all_is_well(pair)


def test_a_client_that_is_killed_before_the_first_row_frees_all_nodes(pair: Processes) -> None:
    # The gateway holds one side of the join. The workers send rows without end, and none of the rows has a partner.
    held = "(SELECT n, n % 7 AS m FROM generate_series(1, 3000000) t(n))"
    sent = f"{MANY} CROSS JOIN feathers AS more CROSS JOIN feathers AS most"
    query = f"SELECT n FROM {held} s JOIN ({sent}) b ON n = b.k AND m + b.f < 0"
    client = pair.run("client", "sql", f"--gateway={pair.gateway.uri}", "--output=csv", query)
    until(lambda: is_busy(pair), "both workers hold memory for the query")
    until(lambda: held_by_gateway(pair) > NO_ROOM_BYTES, "the gateway holds one side of the join")
    assert client.is_alive()
    assert client.output() in ("", "n\n")
    client.kill()
    until(lambda: all_are_idle(pair), "all nodes are idle")
    assert_all_is_well(pair)


def test_a_client_that_is_killed_while_the_gateway_spills_frees_memory_and_disk(
    pair: Processes,
) -> None:
    client = pair.run("client", "sql", f"--gateway={pair.gateway.uri}", "--output=csv", MANY_GROUPS)
    until(lambda: gateway_spills(pair), "the gateway holds as many groups as it may", SPILLING_SECONDS)
    assert client.is_alive()
    client.kill()
    until(lambda: all_are_idle(pair), "all nodes are idle")
    assert_all_is_well(pair)


# Starts that are refused


def assert_refused(process: Process, code: str, *words: str) -> None:
    """Checks that the process ends with code 1 and a line that has the error code and the words."""
    exit_code, line = process.await_failure()
    assert exit_code == 1, line
    assert line.startswith(f"volary: {code}: "), line
    for word in words:
        assert word in line


def test_a_data_directory_is_used_by_one_process(pair: Processes) -> None:
    worker = pair.workers[0]
    arguments = ["--listen=127.0.0.1:0", f"--data-dir={worker.data_dir}"]
    second = pair.run("second", "worker", *arguments, f"--gateway={pair.gateway.address}")
    assert_refused(second, "ALREADY_EXISTS", str(worker.data_dir), "in use by another process", "directory of its own")
    gateway = pair.run("gateway2", "gateway", "--listen=127.0.0.1:0", f"--data-dir={pair.gateway.data_dir}")
    assert_refused(gateway, "ALREADY_EXISTS", str(pair.gateway.data_dir), "in use by another process")
    assert_all_is_well(pair)


def test_a_copy_of_a_workers_data_directory_is_refused_while_the_worker_lives(pair: Processes) -> None:
    worker = pair.workers[0]
    twin = pair.directory / "twin"
    shutil.copytree(worker.data_dir, twin)
    process = pair.run(
        "twin_process", "worker", "--listen=127.0.0.1:0", f"--data-dir={twin}", f"--gateway={pair.gateway.address}"
    )
    assert_refused(process, "ALREADY_EXISTS", f"worker {worker.id} at 127.0.0.1:", "is alive", "empty directory")
    assert_all_is_well(pair)


def test_a_data_directory_of_another_role_is_refused(pair: Processes) -> None:
    worker = pair.workers[0]
    worker.kill()
    process = pair.run("gateway2", "gateway", "--listen=127.0.0.1:0", f"--data-dir={worker.data_dir}")
    assert_refused(
        process, "INVALID_ARGUMENT", f"{worker.data_dir} is the data directory of a worker, not of a gateway"
    )


def test_a_data_directory_of_another_cluster_is_refused(
    pair: Processes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    worker = pair.workers[0]
    worker.kill()
    with Loading(tmp_path_factory.mktemp("other")) as other:
        process = other.run(
            "stranger",
            "worker",
            "--listen=127.0.0.1:0",
            f"--data-dir={worker.data_dir}",
            f"--gateway={other.gateway.address}",
        )
        assert_refused(process, "INVALID_ARGUMENT", "belongs to cluster", "empty data directory")


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_a_data_directory_of_a_newer_format_is_refused(pair: Processes, role: str) -> None:
    node = pair.gateway if role == "gateway" else pair.workers[0]
    node.kill()
    identity = node.data_dir / "volary.json"
    content = json.loads(identity.read_text())
    identity.write_text(json.dumps(content | {"format": 99, "role": "moon"}))
    process = pair.run("newer", role, "--listen=127.0.0.1:0", f"--data-dir={node.data_dir}")
    assert_refused(
        process, "INVALID_ARGUMENT", str(identity), "format 99", "the release that wrote the file, or a newer one"
    )


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_a_port_in_use_is_refused(pair: Processes, role: str) -> None:
    address = pair.gateway.address
    process = pair.run("second", role, f"--listen={address}", f"--data-dir={pair.directory / 'new'}")
    assert_refused(process, "ALREADY_EXISTS", f"cannot listen on {address}", "the port is in use by another process")
    assert_all_is_well(pair)


def test_a_directory_of_somebody_else_is_refused(processes: Processes) -> None:
    home = processes.directory / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("forty-two")
    process = processes.run("worker0", "worker", "--listen=127.0.0.1:0", f"--data-dir={home}")
    assert_refused(process, "INVALID_ARGUMENT", str(home), "thesis.txt", "choose an empty or new directory")
    assert (home / "thesis.txt").read_text() == "forty-two"
