"""2,160 workers behind one gateway: what happens when some of them, or their clients, misbehave."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import binary, until, within

import volary

pytestmark = pytest.mark.server

WORKERS = 2160
ONE_PERCENT = WORKERS // 100
TEN = 10
ROWS = 200_000
# Of thousands of workers on a few cores, each of which is a worker of its own.
PATIENCE_SECONDS = 60
MINUTE = 60
MIB = 1 << 20
SETTINGS = {
    "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "4s",
    "VOLARY_GATEWAY__GATHER__RETRY_FOR": "20s",
    "VOLARY_GATEWAY__QUERY__MEMORY": "256MiB",
}
COUNTED = "SELECT count(*), sum(k) FROM t WHERE k > 0"
COUNTS = [(ROWS, ROWS * (ROWS + 1) // 2)]


class Node:
    """A process of `volary-fleet`, which ends with its standard input."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self._command = [str(binary("volary-fleet")), *arguments]
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**{key: value for key, value in os.environ.items() if not key.startswith("VOLARY_")}, **SETTINGS},
            )

    def await_line(self) -> str:
        """The line that says that it is ready."""
        line = self.process.stdout.readline()
        assert line, self._log.read_text()[-2000:]
        return line

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        # With its pipes closed.
        with self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()

    def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self.kill()


class Fleet:
    """A gateway, many workers in two processes, and three processes with those that tests do something to."""

    def __init__(self, directory: Path) -> None:
        self.gateway = Node(directory, "gateway", "gateway", f"--data-dir={directory / 'gateway'}")
        self.gateway.start()
        self.address = self.gateway.await_line().split("grpc://")[1].strip()
        rest = WORKERS - ONE_PERCENT - TEN - 1
        self._hosts: list[Node] = []
        first = 0
        for count in [rest // 2, rest - rest // 2, ONE_PERCENT, TEN, 1]:
            host = Node(
                directory,
                f"host-{first}",
                "host",
                f"--gateway={self.address}",
                f"--data-dir={directory}",
                f"--first={first}",
                f"--workers={count}",
            )
            host.start()
            self._hosts.append(host)
            first += count
        for host in self._hosts:
            assert host.await_line() == "ready\n"
        self.one_percent, self.ten, self.one = self._hosts[2:]

    def end(self) -> None:
        for node in [*self._hosts, self.gateway]:
            node.end()

    def connect(self) -> volary.Connection:
        return volary.connect(f"grpc://{self.address}")

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with self.connect() as connection:
            return connection.sql(statement).rows()

    def resident(self) -> int:
        """Bytes of real memory of the gateway."""
        status = Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def open_files(self) -> int:
        """Of the gateway."""
        return len(os.listdir(f"/proc/{self.gateway.process.pid}/fd"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("scale"))
    try:
        fleet.sql(f"CREATE TABLE t (k BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = {WORKERS})")
        fleet.sql(f"INSERT INTO t SELECT value, lpad(CAST(value AS VARCHAR), 100, '.') FROM generate_series(1, {ROWS})")
        yield fleet
    finally:
        fleet.end()


@contextmanager
def another(fleet: Fleet, statement: str) -> Iterator[None]:
    """Runs a statement beside what is done; it must be answered rightly."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fleet.sql, statement)
        yield
        assert answer.result(PATIENCE_SECONDS) == COUNTS


def test_all_workers_are_asked_and_the_plan_travels_once(fleet: Fleet) -> None:
    def plan_kib() -> float:
        ((_, text),) = fleet.sql(f"EXPLAIN ANALYZE {COUNTED}")
        size = re.search(rf"workers={WORKERS} plan_bytes=([\d.]+) (KiB|MiB) ", text)
        assert size, text
        return float(size[1]) * (1024 if size[2] == "MiB" else 1)

    assert fleet.sql(COUNTED) == COUNTS
    assert plan_kib() < 300
    # Another value is the same plan.
    ((_, text),) = fleet.sql(f"EXPLAIN ANALYZE {COUNTED.replace('> 0', '> 7')}")
    assert re.search(r" plan_bytes=[\d.]+ KiB ", text), text
    ((_, text),) = fleet.sql("EXPLAIN ANALYZE SELECT s FROM t WHERE k = 77")
    assert "workers=1 " in text


def test_groups_and_ordered_rows_of_all_workers_are_right(fleet: Fleet) -> None:
    grouped = "SELECT k % 1000, count(*) FROM t GROUP BY 1 ORDER BY 1"
    assert fleet.sql(grouped) == [(group, ROWS // 1000) for group in range(1000)]
    assert fleet.sql("SELECT k FROM t ORDER BY k DESC LIMIT 3") == [(ROWS,), (ROWS - 1,), (ROWS - 2,)]


def test_hundreds_of_cancelled_queries_leave_nothing_behind(fleet: Fleet) -> None:
    def cancel(count: int) -> None:
        with fleet.connect() as connection:
            for number in range(count):
                # Every tenth asks all workers, the others a hundred each.
                some = ", ".join(str(key) for key in range(number * 100, number * 100 + 100))
                asked = "s <> 'x'" if number % 10 == 0 else f"k IN ({some})"
                result = connection.sql(f"SELECT k, s FROM t WHERE {asked} {'ORDER BY s' if number % 2 else ''}")
                if number % 3:
                    result.reader().read_next_batch()
                result.close()

    def is_quiet() -> bool:
        held = fleet.sql("SELECT sum(memory_reserved_bytes), sum(running_fragments) FROM system.nodes")
        return held == [(0, 0)]

    # Nearly all workers have been asked by then, by queries of many and of few: a gateway has a connection for either.
    cancel(150)
    until(is_quiet, "nothing runs", PATIENCE_SECONDS)
    files, resident = fleet.open_files(), fleet.resident()
    cancel(500)
    until(is_quiet, "nothing runs", PATIENCE_SECONDS)
    # A worker is reached by up to three connections, by what memory is free when it is asked.
    until(lambda: fleet.open_files() <= 3 * WORKERS + 64, "no more than three connections to a worker are open")
    assert fleet.open_files() <= files + WORKERS // 10
    # The plans of statements that came again are kept, in 64 MiB.
    assert fleet.resident() < resident + 128 * MIB
    assert fleet.sql(COUNTED) == COUNTS


def test_a_client_that_reads_nothing_for_a_minute_stops_nobody_and_gets_its_rows(fleet: Fleet) -> None:
    with fleet.connect() as connection:
        reader = connection.sql("SELECT a.k FROM t a CROSS JOIN (SELECT k FROM t WHERE k <= 40)").reader()
        rows = reader.read_next_batch().num_rows
        resident = fleet.resident()
        began = time.monotonic()
        asked = 0
        while time.monotonic() - began < MINUTE:
            assert fleet.sql(COUNTED) == COUNTS
            asked += 1
        assert asked > 5
        assert fleet.resident() < resident + 256 * MIB
        rows += sum(batch.num_rows for batch in reader)
        assert rows == 40 * ROWS


def test_a_worker_that_hangs_is_an_error_that_names_it(fleet: Fleet) -> None:
    fleet.one.process.send_signal(signal.SIGSTOP)
    try:
        with within(PATIENCE_SECONDS), pytest.raises(volary.Error, match=r"worker w\d+ at 127\.0\.0\.1:\d+") as raised:
            fleet.sql(COUNTED)
        assert "for " in raised.value.message
    finally:
        fleet.one.process.send_signal(signal.SIGCONT)
    until(lambda: answers(fleet), "the worker answers again", PATIENCE_SECONDS)


def test_ten_workers_that_start_again_in_a_query_are_waited_for(fleet: Fleet) -> None:
    fleet.ten.kill()
    with another(fleet, COUNTED):
        fleet.ten.start()
        assert fleet.ten.await_line() == "ready\n"
    assert fleet.sql(COUNTED) == COUNTS


def test_one_percent_of_the_workers_that_are_killed_are_an_error_until_they_are_back(fleet: Fleet) -> None:
    fleet.one_percent.kill()
    with within(PATIENCE_SECONDS), pytest.raises(volary.UnavailableError, match=r"worker w\d+ at 127\.0\.0\.1:\d+"):
        fleet.sql(COUNTED)
    # Rows of others are there.
    assert fleet.sql("SELECT 1") == [(1,)]
    fleet.one_percent.start()
    assert fleet.one_percent.await_line() == "ready\n"
    assert fleet.sql(COUNTED) == COUNTS


def answers(fleet: Fleet) -> bool:
    """Whether all workers do."""
    try:
        return fleet.sql(COUNTED) == COUNTS
    except volary.Error:
        return False
