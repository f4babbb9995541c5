"""Honest users beside hostile ones.

Nothing of the honest ones fails, no node takes more memory than it may, and all is as before when the hostile ones
have left. `VOLARY_HOSTILE_SECONDS` says how long that goes on. What honest statements took is printed (`pytest -s`).
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from multiprocessing.synchronize import Event

import grpc
import protobuf as pb
import pyarrow as pa
import pytest
from processes import PATIENCE_SECONDS, until
from pyarrow import flight
from raw_flight import basic
from raw_http2 import Connection, head
from secured import PASSWORD, Secured

import volary

SECONDS = float(os.environ.get("VOLARY_HOSTILE_SECONDS", "0"))
pytestmark = [pytest.mark.server, pytest.mark.skipif(SECONDS == 0, reason="it is part of `make soak`")]

HONEST = 8
MIB = 1 << 20
LIMIT = 1024 * MIB
ROWS = 200_000
UNREAD_STREAMS, UNFINISHED_CALLS = 20, 16
HOSTILE = ("reader", "maker", "sender", "owner")
HUGE = [
    "SELECT length(repeat('x', 2000000000))",
    "SELECT cardinality(range(0, 2000000000))",
    "SELECT sum(length(repeat(v, (k * 0 + 2000000)::BIGINT))) FROM nests WHERE k > 0",
    "SELECT length(string_agg(repeat(v, 1000), ',')) FROM nests",
    "SELECT count(*) FROM nests WHERE regexp_like(repeat(v, 2000), '(a+)+$|(x+x+)+y')",
    "SELECT count(*) FROM nests a, nests b WHERE a.k * b.k < 0",
    "SELECT repeat('a', 90000000), repeat('b', 90000000), repeat('c', 90000000), repeat('d', 90000000)",
]


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


class Hostile:
    """What hostile users do, until they are told to stop."""

    def __init__(self, gateway: str, worker: str, stop: Event) -> None:
        self._gateway = gateway
        self._worker = worker
        self._stop = stop

    def all(self) -> list[Callable[[], None]]:
        return [
            self.reads_nothing,
            self.makes_huge_values,
            self.makes_huge_values,
            self.sends_half_of_messages,
            self.takes_names,
            self.logs_in_with_wrong_passwords,
        ]

    def _again(self, what: Callable[[], None]) -> None:
        while not self._stop.is_set():
            with suppress(volary.Error, pa.ArrowException, flight.FlightError, grpc.RpcError, OSError, AssertionError):
                what()

    def reads_nothing(self) -> None:
        def streams() -> None:
            with volary.connect(self._gateway, username="reader", password=PASSWORD) as connection:
                endless = "SELECT a.k FROM nests a, nests b"
                held = [connection.sql(endless).batches() for _ in range(UNREAD_STREAMS)]
                for batches in held:
                    next(batches)
                self._stop.wait(5)

        self._again(streams)

    def makes_huge_values(self) -> None:
        def values() -> None:
            with volary.connect(self._gateway, username="maker", password=PASSWORD) as connection:
                connection.sql("SET statement_timeout = '5s'")
                for query in HUGE:
                    if self._stop.is_set():
                        return
                    with suppress(volary.Error):
                        connection.sql(query).to_arrow()

        self._again(values)

    def sends_half_of_messages(self) -> None:
        def messages() -> None:
            shown = ("authorization", basic("sender", PASSWORD))
            calls = [(self._gateway, "GetFlightInfo", [shown]), (self._worker, "DoGet", [])]
            for uri, method, headers in calls:
                with Connection(uri) as connection:
                    for _ in range(UNFINISHED_CALLS):
                        stream = connection.begin(method, *headers)
                        connection.send(stream, head(200 * MIB) + bytes(4 * MIB))
                    self._stop.wait(1)

        self._again(messages)

    def takes_names(self) -> None:
        columns = ", ".join(f"c{number} BIGINT" for number in range(4000))

        def tables() -> None:
            with volary.connect(self._gateway, username="owner", password=PASSWORD) as connection:
                connection.sql(f"CREATE OR REPLACE TABLE wide ({columns})")
            headers = [(b"authorization", basic("owner", PASSWORD).encode())]
            options = flight.FlightCallOptions(headers=headers, timeout=5)
            with flight.connect(self._gateway) as client:
                for number in range(200):
                    if self._stop.is_set():
                        return
                    statement = pb.field(1, f"SELECT v || '{number}' FROM nests WHERE k = ?")
                    prepare = pb.command("ActionCreatePreparedStatementRequest", statement)
                    list(client.do_action(flight.Action("CreatePreparedStatement", prepare), options))

        self._again(tables)

    def logs_in_with_wrong_passwords(self) -> None:
        def log_in() -> None:
            for user in ("honest0", "nobody", "admin"):
                with suppress(volary.Error):
                    volary.connect(self._gateway, username=user, password="a wrong password").close()

        self._again(log_in)


def be_hostile(gateway: str, worker: str, stop: Event) -> None:
    """What a process of hostile users does. What it computes itself would be done on other machines: it is nice."""
    os.nice(15)
    acts = Hostile(gateway, worker, stop).all()
    with ThreadPoolExecutor(len(acts)) as threads:
        for act in [threads.submit(act) for act in acts]:
            act.result()


def honest(cluster: Secured, seconds: float) -> list[float]:
    """How long each statement of honest users took, in seconds. Fails if one fails, or has other rows."""

    def ask(number: int) -> list[float]:
        took = []
        with volary.connect(cluster.gateway.uri, token=tokens[number]) as connection:
            end, key = time.monotonic() + seconds, number + 1
            while time.monotonic() < end:
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

    # Who shows a token logs in by no password.
    tokens = [
        cluster.administer(f"CREATE TOKEN t{time.time_ns()} FOR honest{number} VALID FOR '1 day'")[0]["token"]
        for number in range(HONEST)
    ]
    with ThreadPoolExecutor(HONEST) as users:
        return sorted(chain.from_iterable(users.map(ask, range(HONEST))))


def _shown(took: list[float]) -> str:
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    figures = (f"{name} {took[min(len(took) - 1, int(len(took) * part))] * 1000:.1f} ms" for name, part in at.items())
    return f"{len(took)} statements: {', '.join(figures)}"


def test_honest_users_are_served_beside_hostile_ones(cluster):
    nodes = [cluster.gateway, *cluster.workers]
    print("\nalone:", _shown(honest(cluster, SECONDS / 3)))
    processes = multiprocessing.get_context("spawn")
    stop = processes.Event()
    urls = (cluster.gateway.uri, cluster.uri_of(cluster.workers[0]))
    hostile = processes.Process(target=be_hostile, args=(*urls, stop))
    hostile.start()
    try:
        print("beside hostile ones:", _shown(honest(cluster, SECONDS)))
        assert hostile.is_alive()
    finally:
        stop.set()
        hostile.join(PATIENCE_SECONDS)
        hostile.kill()
    assert hostile.exitcode == 0
    print("after them:", _shown(honest(cluster, SECONDS / 3)))
    for node in nodes:
        assert node.running().is_alive(), f"{node.name} has ended\n{node.running().tail()}"
        assert "panicked" not in node.running().log(), node.running().tail()
    print("peaks:", *(f"{node.name} {node.running().peak_memory_bytes() / MIB:.0f} MiB" for node in nodes))
    listing = "SELECT count(*) AS n FROM system.queries WHERE statement NOT LIKE '%system.queries%'"
    until(lambda: cluster.administer(listing)[0]["n"] == 0, "nothing is left of them", seconds=60)
    unfinished = "SELECT in_use FROM system.limits WHERE name = 'messages that are not whole' AND scope = 'node'"
    until(lambda: cluster.administer(unfinished)[0]["in_use"] == 0, "nor of their messages", seconds=60)
    with Connection(cluster.gateway.uri) as connection:
        stream = connection.begin("ListActions", ("authorization", basic("sender", PASSWORD)))
        connection.send(stream, head(0))
        connection.finish(stream)
        assert connection.ended(stream).code == grpc.StatusCode.OK
