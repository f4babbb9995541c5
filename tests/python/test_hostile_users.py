"""Runs honest users beside hostile ones.

No statement of the honest users may fail, no node may take more memory than its limit, and everything must be as before
when the hostile users have left. `VOLARY_HOSTILE_SECONDS` says how long they run. The times of the honest statements
are printed (`pytest -s`). They are compared if the test runs for a minute or longer, because the slowest percent of
fewer statements is noise.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty
from threading import Lock

import grpc
import protobuf as pb
import pytest
from processes import PATIENCE_SECONDS, Node, until
from pyarrow import flight
from raw_flight import Node as Flight
from raw_flight import basic, descriptor
from raw_http2 import Connection, head
from secured import PASSWORD, Secured
from wiretap import Wiretap

import volary

SECONDS = float(os.environ.get("VOLARY_HOSTILE_SECONDS", "0"))
pytestmark = [pytest.mark.server, pytest.mark.skipif(SECONDS == 0, reason="it is part of `make soak`")]

HONEST = 8
LOGS_IN = 0
"""The number of the honest user who logs in with a password again and again. The others show tokens."""
STATEMENTS_OF_A_LOGIN = 50
ELSEWHERE = "127.0.0.2"
"""The address that wrong passwords come from.

As documented, guesses from an address that users share keep these users out.
"""
MIB = 1 << 20
LIMIT = 2560 * MIB
"""The memory limit of each node. A fifth of it is 512 MiB, which is also the least that a process may have in addition
to the limit. So both rules allow the same.
"""
MOST_MEMORY = LIMIT * 6 // 5
ROWS = 200_000
UNREAD_STREAMS, UNFINISHED_CALLS, PREPARED, SESSIONS = 20, 16, 200, 100
HOSTILE = ("reader", "maker", "sender", "owner")
HUGE = [
    "SELECT length(repeat('x', 2000000000))",
    "SELECT cardinality(range(0, 2000000000))",
    "SELECT sum(length(repeat(v, (k * 0 + 2000000)::BIGINT))) FROM nests WHERE k > 0",
    "SELECT length(string_agg(repeat(v, 1000), ',')) FROM nests",
    "SELECT count(*) FROM nests WHERE regexp_like(repeat(v, 2000), '(a+)+$|(x+x+)+y')",
    "SELECT count(*) FROM nests a, nests b WHERE a.k * b.k < 0",
    "SELECT repeat('a', 90000000), repeat('b', 90000000), repeat('c', 90000000), repeat('d', 90000000)",
    "SELECT max(length(b)) FROM (SELECT repeat('x', 1000000) AS b) a, nests",
    "SELECT max(regexp_count(repeat(v, 20000), '.*[^a-z0-9]|[a-z0-9]')) FROM nests",
    "SELECT max(levenshtein(repeat(v, 20000), repeat('y', 200000))) FROM nests",
]

LONG_ENOUGH_SECONDS = 60
SLOWER = 3
"""Factor by which honest statements may be slower beside hostile ones."""
FAST_SECONDS = 0.02
"""Time in seconds that is always fast enough. If the statements alone are faster, this time is multiplied by `SLOWER`
instead of theirs.
"""

STREAMS = "streams opened"
ENDED = "huge statements refused or ended"
HALVES = "half messages sent"
WIDE = "wide tables made"
STATEMENTS = "prepared statements made"
OPENED = "sessions opened"
WRONG = "wrong log-ins refused"
ACHIEVED = (STREAMS, ENDED, HALVES, WIDE, STATEMENTS, OPENED, WRONG)
TAKEN = "wrong log-ins taken"

GONE_SECONDS = 60
NO_MEMORY = 16 * MIB
"""Memory that is too small to count. Operators with less hold practically nothing."""
KEPT_MEMORY, KEPT_FILES = 256 * MIB, 16
"""What a node may keep of hostile users: plans and sessions until others need the room, and idle connections."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {
        "VOLARY_LOG__FILTER": "warn",
        "VOLARY_GATEWAY__MEMORY__LIMIT": str(LIMIT),
        "VOLARY_GATEWAY__QUERY__MAX_RUNNING": "64",
        "VOLARY_WORKER__MEMORY__LIMIT": str(LIMIT),
        "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "10s",
    }
    with Secured(tmp_path_factory.mktemp("hostile"), settings) as cluster:
        for _ in range(2):
            cluster.add_worker()
        cluster.populate()
        cluster.administer("CREATE TABLE nests (k BIGINT, v VARCHAR) WITH (shard_key = 'k', shards = 8)")
        for first in range(1, ROWS, 50_000):
            rows = f"SELECT value, 'egg ' || value FROM generate_series({first}, {first + 49_999})"
            cluster.administer(f"INSERT INTO nests {rows}")
        for user in [*(f"honest{number}" for number in range(HONEST)), *HOSTILE]:
            cluster.administer(f"CREATE USER {user} PASSWORD '{PASSWORD}'", f"GRANT SELECT ON nests TO {user}")
        cluster.administer("GRANT CREATE TO owner")
        yield cluster


# Hostile users


class Hostile:
    """Does what hostile users do until they are told to stop. Counts how often they achieved what they wanted."""

    def __init__(self, gateway: str, worker: str, stop: Event) -> None:
        self._gateway = gateway
        self._worker = worker
        self._stop = stop
        self._counting = Lock()
        self.achieved: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()

    def all(self) -> list[Callable[[], None]]:
        return [
            self.reads_nothing,
            self.makes_huge_values,
            self.makes_huge_values,
            self.sends_half_of_messages,
            self.takes_names,
            self.opens_sessions,
            self.logs_in_with_wrong_passwords,
        ]

    def _count(self, what: str) -> None:
        with self._counting:
            self.achieved[what] += 1

    def _again(self, what: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                what()
            except Exception as error:  # Every error is noted, and the next attempt is made.
                with self._counting:
                    self.unexpected[f"{what.__name__}: {type(error).__name__}"] += 1

    def reads_nothing(self) -> None:
        def streams() -> None:
            with volary.connect(self._gateway, username="reader", password=PASSWORD) as connection:
                endless = "SELECT a.k FROM nests a, nests b"
                held = [connection.sql(endless).batches() for _ in range(UNREAD_STREAMS)]
                for batches in held:
                    next(batches)
                    self._count(STREAMS)
                self._stop.wait(5)

        self._again(streams)

    def makes_huge_values(self) -> None:
        def values() -> None:
            with volary.connect(self._gateway, username="maker", password=PASSWORD) as connection:
                connection.sql("SET statement_timeout = '5s'")
                for query in HUGE:
                    if self._stop.is_set():
                        return
                    try:
                        connection.sql(query).to_arrow()
                    except (volary.ResourceExhaustedError, volary.DeadlineExceededError):
                        self._count(ENDED)
                    except volary.InvalidArgumentError:
                        # A constant that is computed during planning is refused as an error of the statement.
                        self._count(ENDED)

        self._again(values)

    def sends_half_of_messages(self) -> None:
        def messages() -> None:
            shown = ("authorization", basic("sender", PASSWORD))
            calls = [(self._gateway, "GetFlightInfo", [shown]), (self._worker, "DoGet", [])]
            for uri, method, headers in calls:
                with Connection(uri) as connection:
                    for _ in range(UNFINISHED_CALLS):
                        stream = connection.begin(method, *headers)
                        if connection.send(stream, head(200 * MIB) + bytes(4 * MIB)) > 0:
                            self._count(HALVES)
                    self._stop.wait(1)

        self._again(messages)

    def takes_names(self) -> None:
        columns = ", ".join(f"c{number} BIGINT" for number in range(4000))

        def names() -> None:
            with volary.connect(self._gateway, username="owner", password=PASSWORD) as connection:
                connection.sql(f"CREATE OR REPLACE TABLE wide ({columns})")
                self._count(WIDE)
            headers = [(b"authorization", basic("owner", PASSWORD).encode())]
            options = flight.FlightCallOptions(headers=headers, timeout=5)
            with flight.connect(self._gateway) as client:
                for number in range(PREPARED):
                    if self._stop.is_set():
                        return
                    statement = pb.field(1, f"SELECT v || '{number}' FROM nests WHERE k = ?")
                    prepare = pb.command("ActionCreatePreparedStatementRequest", statement)
                    list(client.do_action(flight.Action("CreatePreparedStatement", prepare), options))
                    self._count(STATEMENTS)

        self._again(names)

    def opens_sessions(self) -> None:
        def sessions() -> None:
            with Flight(self._gateway) as gateway:
                for _ in range(SESSIONS):
                    if self._stop.is_set():
                        return
                    answer = gateway.call("Handshake", b"", authorization=basic("reader", PASSWORD))
                    # A session exists from its first statement on. Nobody closes it.
                    shown = answer.headers["authorization"]
                    asked = gateway.call("GetFlightInfo", descriptor(b"SELECT 1"), authorization=shown)
                    assert asked.code == grpc.StatusCode.OK, asked
                    self._count(OPENED)

        self._again(sessions)

    def logs_in_with_wrong_passwords(self) -> None:
        elsewhere = Wiretap(source=ELSEWHERE)
        elsewhere.target = int(self._gateway.rsplit(":", 1)[1])
        names = [*(f"honest{number}" for number in range(HONEST)), "admin"]
        refusals = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        rounds = count()

        def log_in() -> None:
            with Flight(elsewhere.address) as gateway:
                # Nothing was tried yet with the new name, so its password is really checked.
                for name in [*names, f"nobody{next(rounds)}"]:
                    answer = gateway.call("Handshake", b"", authorization=basic(name, "a wrong password"))
                    assert answer.code in (grpc.StatusCode.OK, *refusals), answer
                    self._count(WRONG if answer.code in refusals else TAKEN)

        try:
            self._again(log_in)
        finally:
            elsewhere.close()


def be_hostile(gateway: str, worker: str, stop: Event, report: Queue) -> None:
    """Runs a process of hostile users. It has a low priority, because real ones would compute on other machines."""
    os.nice(15)
    hostile = Hostile(gateway, worker, stop)
    acts = hostile.all()
    with ThreadPoolExecutor(len(acts)) as threads:
        for act in [threads.submit(act) for act in acts]:
            act.result()
    report.put((hostile.achieved, hostile.unexpected))


class Report:
    """What the hostile users reported when they left."""

    achieved: Counter[str]
    unexpected: Counter[str]


@contextmanager
def hostile_users(cluster: Secured) -> Iterator[Report]:
    """Starts hostile users in a separate process, which ends with the context."""
    processes = multiprocessing.get_context("spawn")
    stop, queue, report = processes.Event(), processes.Queue(), Report()
    urls = (cluster.gateway.uri, cluster.uri_of(cluster.workers[0]))
    hostile = processes.Process(target=be_hostile, args=(*urls, stop, queue))
    hostile.start()
    try:
        yield report
        assert hostile.is_alive(), "the hostile users have left too early"
        stop.set()
        report.achieved, report.unexpected = said_by(queue, cluster)
        hostile.join(PATIENCE_SECONDS)
        assert hostile.exitcode == 0
    finally:
        hostile.kill()
        hostile.join()


def said_by(queue: Queue, cluster: Secured) -> tuple[Counter[str], Counter[str]]:
    """Returns the report of the hostile users. They leave when their last statements end, which have a timeout."""
    try:
        return queue.get(timeout=2 * PATIENCE_SECONDS)
    except Empty:
        running = cluster.administer("SELECT statement, running_us / 1000000 AS seconds FROM system.queries")
        raise AssertionError(f"the hostile users' statements do not end: {running}") from None


# Honest users


@dataclass(frozen=True)
class Took:
    """How long honest users waited for each statement, in seconds, sorted from the shortest to the longest."""

    statements: list[float]

    def at(self, part: float) -> float:
        return self.statements[min(len(self.statements) - 1, int(len(self.statements) * part))]

    def __str__(self) -> str:
        figures = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        shown = ", ".join(f"{name} {self.at(part) * 1000:.1f} ms" for name, part in figures.items())
        return f"{len(self.statements)} statements: {shown}"


def honest(cluster: Secured, seconds: float) -> Took:
    """Returns the times of honest users' statements. Fails if a login or a statement fails, or if rows are wrong."""

    def connect(number: int) -> volary.Connection:
        if number == LOGS_IN:
            return volary.connect(cluster.gateway.uri, username=f"honest{number}", password=PASSWORD)
        return volary.connect(cluster.gateway.uri, token=tokens[number])

    def ask(number: int) -> list[float]:
        took: list[float] = []
        end, key = time.monotonic() + seconds, number + 1
        while time.monotonic() < end:
            with connect(number) as connection:
                for _ in range(STATEMENTS_OF_A_LOGIN) if number == LOGS_IN else count():
                    if time.monotonic() >= end:
                        break
                    began = time.monotonic()
                    if key % 20 == 0:
                        query, parameters, expected = "SELECT count(*) FROM nests WHERE k % 7 = ?", [key % 7], None
                    else:
                        query, parameters, expected = "SELECT v FROM nests WHERE k = ?", [key], [(f"egg {key}",)]
                    rows = connection.sql(query, parameters).rows()
                    assert rows == expected or (expected is None and rows[0][0] > 0), rows
                    took.append(time.monotonic() - began)
                    key = key % (ROWS - HONEST) + HONEST
        return took

    # A token needs no login with a password.
    tokens = [
        cluster.administer(f"CREATE TOKEN t{time.time_ns()} FOR honest{number} VALID FOR '1 day'")[0]["token"]
        for number in range(HONEST)
    ]
    with ThreadPoolExecutor(HONEST) as users:
        return Took(sorted(chain.from_iterable(users.map(ask, range(HONEST)))))


# Leftovers


@dataclass(frozen=True)
class Before:
    """What the cluster had before the hostile users came."""

    memory: int
    files: dict[str, int]


def in_use(cluster: Secured) -> dict[str, int]:
    """Returns what is in use of the gateway's own limits."""
    listed = "SELECT name, in_use FROM system.limits WHERE scope = 'node' AND in_use IS NOT NULL"
    return {row["name"]: row["in_use"] for row in cluster.administer(listed)}


def open_files(node: Node) -> int:
    return len(list(Path(f"/proc/{node.running()._process.pid}/fd").iterdir()))


def look(cluster: Secured) -> Before:
    nodes = (cluster.gateway, *cluster.workers)
    return Before(in_use(cluster)["memory of the process"], {node.name: open_files(node) for node in nodes})


def left_behind(cluster: Secured, before: Before) -> list[str]:
    """Returns what is different from before."""
    found = []
    listed = "SELECT statement FROM system.queries WHERE statement NOT LIKE '%system.queries%'"
    found += [f"a statement: {row['statement'][:80]}" for row in cluster.administer(listed)]
    held = "SELECT id, memory_reserved_bytes AS held FROM system.nodes"
    found += [f"operators on {row['id']}: {row['held']}" for row in cluster.administer(held) if row["held"] > NO_MEMORY]
    now = in_use(cluster)
    nothing = ("incomplete messages", "running statements", "waiting statements")
    found += [f"{name}: {now[name]}" for name in nothing if now[name] > 0]
    grown = now["memory of the process"] - before.memory
    if grown > KEPT_MEMORY:
        found.append(f"memory of the gateway: {grown // MIB} MiB more")
    for name, files in look(cluster).files.items():
        if files > before.files[name] + KEPT_FILES:
            found.append(f"open files of {name}: {files}, and {before.files[name]} before")
    return found


def await_that_nothing_is_left(cluster: Secured, before: Before) -> None:
    found: list[str] = []

    def is_as_before() -> bool:
        found[:] = left_behind(cluster, before)
        return not found

    try:
        until(is_as_before, "all is as before", seconds=GONE_SECONDS)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *found])) from None


def test_honest_users_are_served_beside_hostile_ones(cluster):
    nodes = [cluster.gateway, *cluster.workers]
    alone = honest(cluster, SECONDS / 3)
    print("\nalone:", alone)
    before = look(cluster)
    with hostile_users(cluster) as report:
        beside = honest(cluster, SECONDS)
        print("beside hostile ones:", beside)
    print("hostile ones:", *(f"{number} {what}" for what, number in sorted(report.achieved.items())), sep="\n  ")
    print("not expected by them:", *(f"{number} {what}" for what, number in report.unexpected.items()), sep="\n  ")
    for node in nodes:
        assert node.running().is_alive(), f"{node.name} has ended\n{node.running().tail()}"
        assert "panicked" not in node.running().log(), node.running().tail()
    await_that_nothing_is_left(cluster, before)
    print("after them:", honest(cluster, SECONDS / 3))
    peaks = {node.name: node.running().peak_memory_bytes() for node in nodes}
    print("peaks:", *(f"{name} {peak // MIB} MiB" for name, peak in peaks.items()))
    assert report.achieved[TAKEN] == 0
    assert [what for what in ACHIEVED if report.achieved[what] == 0] == []
    assert all(peak <= MOST_MEMORY for peak in peaks.values()), peaks
    if SECONDS >= LONG_ENOUGH_SECONDS:
        most = SLOWER * max(alone.at(0.99), FAST_SECONDS)
        assert beside.at(0.99) <= most, f"{beside}, and alone {alone}"
    with Connection(cluster.gateway.uri) as connection:
        stream = connection.begin("ListActions", ("authorization", basic("sender", PASSWORD)))
        connection.send(stream, head(0))
        connection.finish(stream)
        assert connection.await_end(stream).code == grpc.StatusCode.OK
