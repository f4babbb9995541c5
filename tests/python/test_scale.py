"""Tests 2,160 workers behind one gateway, when some of them or their clients misbehave."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import binary, status_bytes, until, within

import volary

# The thousands of workers share a few cores, and each of them does a worker's full work.
PATIENCE_SECONDS = 300
pytestmark = [pytest.mark.server, pytest.mark.timeout(5 * PATIENCE_SECONDS)]

WORKERS = 2160
ONE_PERCENT = WORKERS // 100
TEN = 10
ROWS = 200_000
MINUTE, PARTS = 60, 3
# Long enough for thousands of workers on one processor, beside other tests.
IDLE_TIMEOUT_SECONDS = 30
MIB = 1 << 20
MEMORY_DISK, MEMORY_DISK_FREE = Path("/dev/shm"), 512 * MIB
SETTINGS = {
    # Asking thousands of workers as often as the default says would take a large part of a small machine.
    "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "10s",
    "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "20s",
    "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": f"{IDLE_TIMEOUT_SECONDS}s",
    "VOLARY_GATEWAY__GATHER__RETRY_FOR": "20s",
    "VOLARY_GATEWAY__QUERY__MEMORY": "256MiB",
}
COUNTED = "SELECT count(*), sum(k) FROM t WHERE k > 0"
COUNTS = [(ROWS, ROWS * (ROWS + 1) // 2)]
# Number of relays, which is about the square root of the number of workers.
SOME_RELAYS = 46
RELAYS = ("off", str(SOME_RELAYS))


class Node:
    """A process of `volary-fleet`, which ends when its standard input ends."""

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
        """Waits for the line that says that the process is ready, and returns it."""
        line = self.process.stdout.readline()
        assert line, self._log.read_text()[-2000:]
        return line

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        # The context manager also closes the pipes.
        with self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()

    def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self.kill()


class Fleet:
    """A gateway, many workers in two processes, and three further processes for workers that tests interfere with."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
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

    def sql(self, statement: str, **settings: str) -> list[tuple[object, ...]]:
        with self.connect() as connection:
            for name, value in settings.items():
                connection.sql(f"SET {name} = '{value}'")
            return connection.sql(statement).rows()

    def name_of(self, worker: int) -> str:
        """Returns the text with which errors name a worker. `worker` counts from 0."""
        identity = json.loads((self._directory / f"worker-{worker}" / "volary.json").read_text())
        return f"worker w{identity['worker_id']} at 127.0.0.1:"

    def resident(self) -> int:
        """Returns the resident memory of the gateway, in bytes."""
        return status_bytes(self.gateway.process.pid, "VmRSS")

    def open_files(self) -> int:
        """Returns the number of open files of the gateway."""
        return open_files_of(self.gateway)

    def open_files_of_workers(self) -> int:
        """Returns the number of open files of all workers."""
        return sum(open_files_of(host) for host in self._hosts)

    def await_quiet(self) -> None:
        """Waits until no query holds memory or runs on any node. Only reports that workers make from now on count."""
        began = time.monotonic()

        def is_quiet() -> bool:
            asked = time.monotonic()
            ((memory, fragments, oldest_ms),) = self.sql(
                "SELECT sum(memory_reserved_bytes), sum(running_fragments), max(last_heartbeat_ms) FROM system.nodes"
            )
            return memory == fragments == 0 and oldest_ms / 1000 < asked - began

        until(is_quiet, "nothing runs", PATIENCE_SECONDS)


def open_files_of(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory if this machine has room there. On a disk, half of the fleet's start is syncing files."""
    if not MEMORY_DISK.is_dir() or shutil.disk_usage(MEMORY_DISK).free < MEMORY_DISK_FREE:
        yield tmp_path_factory.mktemp("scale")
        return
    with tempfile.TemporaryDirectory(prefix="volary-scale-", dir=MEMORY_DISK) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def fleet(directory: Path) -> Iterator[Fleet]:
    fleet = Fleet(directory)
    try:
        fleet.sql(f"CREATE TABLE t (k BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = {WORKERS})")
        fleet.sql(f"INSERT INTO t SELECT value, lpad(CAST(value AS VARCHAR), 100, '.') FROM generate_series(1, {ROWS})")
        yield fleet
    finally:
        fleet.end()


@contextmanager
def counted_meanwhile(fleet: Fleet) -> Iterator[None]:
    """Counts all rows while the context runs, with and without relays. The answers must be right."""
    with ThreadPoolExecutor(len(RELAYS)) as pool:
        answers = [pool.submit(fleet.sql, COUNTED, relays=relays) for relays in RELAYS]
        yield
        for relays, answer in zip(RELAYS, answers, strict=True):
            assert answer.result(PATIENCE_SECONDS) == COUNTS, relays


def failures(fleet: Fleet) -> list[volary.Error]:
    """Returns the errors of counting the rows, with and without relays."""

    def failure(relays: str) -> volary.Error:
        with pytest.raises(volary.Error) as raised:
            fleet.sql(COUNTED, relays=relays)
        return raised.value

    with ThreadPoolExecutor(len(RELAYS)) as pool:
        return list(pool.map(failure, RELAYS))


@pytest.mark.parametrize(
    ("relays", "asked", "most_kib"),
    [
        ("off", f"workers={WORKERS}", 272),
        # The tickets of relays name their members.
        (str(SOME_RELAYS), f"relays={SOME_RELAYS} members={WORKERS}", 352),
    ],
)
def test_all_workers_are_asked_and_the_plan_travels_once(
    fleet: Fleet, relays: str, asked: str, most_kib: float
) -> None:
    def plan_kib() -> float:
        ((_, text),) = fleet.sql(f"EXPLAIN ANALYZE {COUNTED}", relays=relays)
        size = re.search(rf"{asked} plan_bytes=([\d.]+) (KiB|MiB) ", text)
        assert size, text
        return float(size[1]) * (1024 if size[2] == "MiB" else 1)

    assert fleet.sql(COUNTED, relays=relays) == COUNTS
    assert plan_kib() < most_kib
    # A query with another value has the same plan.
    ((_, text),) = fleet.sql(f"EXPLAIN ANALYZE {COUNTED.replace('> 0', '> 7')}", relays=relays)
    assert re.search(rf"{asked} plan_bytes=[\d.]+ KiB ", text), text
    ((_, text),) = fleet.sql("EXPLAIN ANALYZE SELECT s FROM t WHERE k = 77", relays=relays)
    assert "workers=1 " in text


def test_so_many_workers_are_worth_relays(fleet: Fleet) -> None:
    # The planner estimates for a gateway with this number of cores, whatever this machine has.
    cores = "4"
    for merged in (COUNTED, "SELECT k FROM t ORDER BY k DESC LIMIT 3"):
        shown = fleet.sql(f"EXPLAIN {merged}", relays="auto", target_partitions=cores)
        plan = "\n".join(str(text) for _, text in shown)
        relays = re.search(rf"GatherExec: workers={WORKERS}, relays=(\d+), ", plan)
        assert relays, plan
        assert WORKERS // 100 < int(relays[1]) < WORKERS // 10
    for setting in ("auto", "off"):
        assert fleet.sql(COUNTED, relays=setting, target_partitions=cores) == COUNTS


@pytest.mark.parametrize("relays", RELAYS)
def test_groups_and_ordered_rows_of_all_workers_are_right(fleet: Fleet, relays: str) -> None:
    grouped = "SELECT k % 1000, count(*) FROM t GROUP BY 1 ORDER BY 1"
    assert fleet.sql(grouped, relays=relays) == [(group, ROWS // 1000) for group in range(1000)]
    first = "SELECT k FROM t ORDER BY k DESC LIMIT 3"
    assert fleet.sql(first, relays=relays) == [(ROWS,), (ROWS - 1,), (ROWS - 2,)]


def test_hundreds_of_cancelled_queries_leave_nothing_behind(fleet: Fleet) -> None:
    def cancel(numbers: range) -> None:
        with fleet.connect() as connection:
            for number in numbers:
                # Every twentieth query asks all workers. The others ask a hundred workers each.
                some = ", ".join(str(key) for key in range(number * 100, number * 100 + 100))
                asked = "s <> 'x'" if number % 20 == 0 else f"k IN ({some})"
                result = connection.sql(f"SELECT k, s FROM t WHERE {asked} {'ORDER BY s' if number % 2 else ''}")
                if number % 3:
                    result.reader().read_next_batch()
                result.close()

    # After this, nearly all workers were asked, by queries of many and of few workers. The gateway has a connection for
    # either kind.
    cancel(range(100))
    fleet.await_quiet()
    files, resident = fleet.open_files(), fleet.resident()
    cancel(range(100, 200))
    fleet.await_quiet()
    # A worker is reached over up to three connections. The free memory at the time of a query decides which one is
    # used.
    until(lambda: fleet.open_files() <= 3 * WORKERS + 64, "no more than three connections to a worker are open")
    assert fleet.open_files() <= files + WORKERS // 10
    # The plans of repeated statements are kept, in 64 MiB.
    assert fleet.resident() < resident + 96 * MIB
    assert fleet.sql(COUNTED) == COUNTS


def test_relayed_queries_that_are_cancelled_leave_nothing_behind(fleet: Fleet) -> None:
    # Each relay has its own connections to the workers that it reads.
    most_files = fleet.open_files_of_workers() + 2 * 3 * WORKERS
    with fleet.connect() as connection:
        connection.sql(f"SET relays = {SOME_RELAYS}")
        for number in range(6):
            groups = 50_000 if number % 2 else 100
            result = connection.sql(f"SELECT k % {groups}, count(*) FROM t GROUP BY 1")
            if number % 3:
                result.reader().read_next_batch()
            result.close()
    fleet.await_quiet()
    assert fleet.open_files_of_workers() <= most_files
    assert fleet.open_files() <= 3 * WORKERS + 64
    assert fleet.sql(COUNTED, relays=str(SOME_RELAYS)) == COUNTS


def test_a_client_that_reads_nothing_for_a_minute_stops_nobody_and_gets_its_rows(fleet: Fleet) -> None:
    with fleet.connect() as connection:
        reader = connection.sql("SELECT a.k FROM t a CROSS JOIN (SELECT k FROM t WHERE k <= 40)").reader()
        rows = reader.read_next_batch().num_rows
        resident = fleet.resident()
        began = time.monotonic()
        for part in range(1, PARTS + 1):
            # Meanwhile, other tests may have the processors.
            until(lambda part=part: time.monotonic() >= began + part * MINUTE / PARTS, "a part has passed", MINUTE)
            assert fleet.sql(COUNTED) == COUNTS
        assert fleet.resident() < resident + 256 * MIB
        rows += sum(batch.num_rows for batch in reader)
        assert rows == 40 * ROWS


def test_a_worker_that_hangs_is_an_error_that_names_it(fleet: Fleet) -> None:
    # This opens the connections to the worker.
    with counted_meanwhile(fleet):
        pass
    fleet.one.process.send_signal(signal.SIGSTOP)
    try:
        with within(PATIENCE_SECONDS):
            errors = failures(fleet)
    finally:
        fleet.one.process.send_signal(signal.SIGCONT)
    for error in errors:
        assert fleet.name_of(WORKERS - 1) in error.message, error
        # On a machine that is very slow, the connection's own deadline comes first.
        assert "for " in error.message or "the connection to the worker is lost" in error.message
    until(lambda: answers(fleet), "the worker answers again", PATIENCE_SECONDS)


def test_ten_workers_that_start_again_in_a_query_are_waited_for(fleet: Fleet) -> None:
    fleet.ten.kill()
    with counted_meanwhile(fleet):
        fleet.ten.start()
        assert fleet.ten.await_line() == "ready\n"
    assert fleet.sql(COUNTED) == COUNTS


def test_one_percent_of_the_workers_that_are_killed_are_an_error_until_they_are_back(fleet: Fleet) -> None:
    fleet.one_percent.kill()
    with within(PATIENCE_SECONDS):
        errors = failures(fleet)
    first = WORKERS - 1 - TEN - ONE_PERCENT
    killed = [fleet.name_of(worker) for worker in range(first, first + ONE_PERCENT)]
    for error in errors:
        assert isinstance(error, volary.UnavailableError), error
        assert any(name in error.message for name in killed), error
    # Statements that need no workers are answered.
    assert fleet.sql("SELECT 1") == [(1,)]
    fleet.one_percent.start()
    assert fleet.one_percent.await_line() == "ready\n"
    for relays in RELAYS:
        assert fleet.sql(COUNTED, relays=relays) == COUNTS


def answers(fleet: Fleet) -> bool:
    """Returns whether all workers answer."""
    try:
        return all(fleet.sql(COUNTED, relays=relays) == COUNTS for relays in RELAYS)
    except volary.Error:
        return False
