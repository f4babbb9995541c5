"""Fixtures: a cluster that all tests of a session share, connections to it, and tables for single tests."""

from __future__ import annotations

import gc
import itertools
import os
import socket
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from adbc_driver_flightsql import dbapi
from cluster import LocalCluster
from every_call import Made
from processes import until
from pyarrow import flight
from secured import Secured

import volary

_NEEDS_SERVER = {"cluster", "tpch_cluster"}
# Slow files are run first. Otherwise, the last process could begin one of them when the others have no work left.
_LONGEST_FIRST = (
    "test_torture.py",
    "test_scale.py",
    "test_sqlalchemy_suite.py",
    "test_faults.py",
    "test_unfinished.py",
    "test_bad_input.py",
    "test_wheel.py",
    "test_bench_python.py",
    "test_tpch.py",
    "test_bench.py",
    "test_memory.py",
    "test_large_values.py",
    "test_damage.py",
    "test_every_function.py",
    "test_limits.py",
    "test_security.py",
    "test_every_call_gateway.py",
    "test_merge.py",
    "test_tls.py",
    "test_pushed.py",
    "test_sql_surface.py",
    "test_every_call_worker.py",
    "test_every_port.py",
)
_numbers = itertools.count()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Returns the number of processes of `-n auto`: two for each processor, because many tests mostly wait."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leaves out of garbage collections what is there before the first test. Modules and tests stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that need the binary, so that `-m "not server"` runs the others. Puts the slowest files first."""
    for item in items:
        if _NEEDS_SERVER & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
    rank = {name: number for number, name in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with three workers. All tests share it, so each test creates its own tables."""
    directory = tmp_path_factory.mktemp("cluster")
    allowed = tmp_path_factory.getbasetemp()
    with LocalCluster(directory, workers=3, allow_roots=[allowed]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kea(secured: Secured) -> str:
    """The token of the user kea, who may read and write, in a module that has a cluster with users."""
    return secured.create_token("kea", "of_kea")


@pytest.fixture(scope="module")
def keas_tickets(secured: Secured, kea: str) -> Made:
    """The tickets, handles and FlightInfos that the gateway of a cluster with users has made for kea."""
    return Made(secured, kea)


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Runs calls in another thread."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


@pytest.fixture
def connection(cluster: LocalCluster) -> Iterator[volary.Connection]:
    """A connection of the Volary client."""
    with cluster.connect() as connection:
        yield connection


@pytest.fixture
def driver(cluster: LocalCluster) -> Iterator[dbapi.Connection]:
    """A connection of the ADBC driver's DB-API."""
    with dbapi.connect(cluster.uri, autocommit=True) as driver:
        yield driver


@pytest.fixture
def cursor(driver: dbapi.Connection) -> Iterator[dbapi.Cursor]:
    """A cursor of the ADBC driver."""
    with driver.cursor() as cursor:
        yield cursor


@pytest.fixture
def empty_table(connection: volary.Connection) -> Iterator[str]:
    """The name of a sharded table without rows: (k BIGINT, name VARCHAR, price DOUBLE, day DATE)."""
    name = f"birds_{next(_numbers)}"
    connection.sql(
        f"CREATE TABLE {name} (k BIGINT NOT NULL, name VARCHAR, price DOUBLE, day DATE) "
        "WITH (shard_key = 'k', shards = 8)"
    )
    yield name
    connection.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def endless_part(cluster: LocalCluster) -> Iterator[str]:
    """A query that would take years and that one worker answers alone, so that clients may fetch its rows from the
    worker.
    """
    with cluster.connect() as connection:
        connection.sql("CREATE TABLE endless (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 4)")
        connection.sql("INSERT INTO endless SELECT 1, value FROM generate_series(1, 10000)")
        joins = " ".join(f"JOIN endless {name} ON a.k = {name}.k" for name in "bcde")
        query = f"SELECT a.v FROM endless a {joins} WHERE a.k = 1 AND a.v + b.v + c.v + d.v + e.v < 0"
        asked = flight.FlightCallOptions(headers=[(b"volary-direct-results", b"on")])

        def is_at_a_worker() -> bool:
            info = client.get_flight_info(flight.FlightDescriptor.for_command(query.encode()), asked)
            return bool(info.endpoints[0].locations)

        # Workers report the address for clients, so the gateway knows it only after their reports.
        with flight.connect(cluster.uri) as client:
            until(is_at_a_worker, "the worker has reported")
        yield query
        connection.sql("DROP TABLE endless")


@pytest.fixture
def name(connection: volary.Connection) -> Iterator[str]:
    """A name for a table. If the test creates the table, it is dropped."""
    name = f"named_{next(_numbers)}"
    yield name
    connection.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def birds(connection: volary.Connection, empty_table: str) -> str:
    """The name of a table with five rows, some of them with NULLs."""
    connection.sql(
        f"INSERT INTO {empty_table} VALUES "
        "(1, 'kea', 1.5, DATE '2026-01-01'), (2, 'kaka', 2.5, DATE '2026-01-02'), (3, NULL, 3.5, NULL), "
        "(4, 'tui', NULL, DATE '2026-01-04'), (5, 'kea', 5.5, DATE '2026-01-05')"
    )
    return empty_table


@pytest.fixture
def other_address() -> str:
    """An address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
        except OSError:
            pytest.skip("this machine has no network")
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no network")
    return address
