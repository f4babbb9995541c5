"""Tests calls of a gateway to the workers of its own process: `local.in_process_calls`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import LocalCluster
from processes import until
from scrape import Operations

import volary

pytestmark = pytest.mark.server

WORKERS = 3
CONNECTED = "01"
"""The state of a TCP connection that is open, in the files of /proc."""


def settings(calls: str) -> dict[str, str]:
    """Returns the settings of a cluster whose calls are `in process` or `over connections`."""
    in_process = {"in process": "true", "over connections": "false"}[calls]
    return {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0", "VOLARY_LOCAL__IN_PROCESS_CALLS": in_process}


@pytest.fixture(scope="module", params=["in process", "over connections"])
def calls(request: pytest.FixtureRequest) -> str:
    """How the gateway calls the workers."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(calls: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("in_process_calls")
    with LocalCluster(directory, WORKERS, settings=settings(calls)) as cluster:
        with cluster.connect() as connection:
            connection.sql(
                "CREATE TABLE facts WITH (shard_key = 'n', shards = 12) AS SELECT n FROM generate_series(1, 30000) t(n)"
            )
            connection.sql("CREATE TABLE other WITH (reference = true) AS SELECT n FROM generate_series(1, 30000) t(n)")
        yield cluster


@pytest.fixture
def connection(cluster: LocalCluster) -> Iterator[volary.Connection]:
    with cluster.connect() as connection:
        yield connection


def connections_to(ports: set[int]) -> int:
    """Returns the number of open TCP connections to these ports of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[3] == CONNECTED and int(line[2].rpartition(":")[2], 16) in ports for line in lines)


def test_queries_need_no_connection_unless_the_setting_says_so(
    calls: str, cluster: LocalCluster, connection: volary.Connection
) -> None:
    addresses = connection.sql("SELECT address FROM system.nodes WHERE role = 'worker'").rows()
    ports = {int(address.rpartition(":")[2]) for (address,) in addresses}
    assert len(ports) == WORKERS
    # The first question to a worker may come before the worker serves, and then opens a connection.
    before = connections_to(ports)
    for _ in range(3):
        assert connection.sql("SELECT count(*) FROM facts WHERE n > 7").rows() == [(29_993,)]
        assert connection.sql("SELECT n FROM facts WHERE n = 4711").rows() == [(4711,)]
    connection.sql("INSERT INTO facts SELECT n + 30000 FROM generate_series(1, 100) t(n)")
    if calls == "in process":
        assert connections_to(ports) <= before
    else:
        assert connections_to(ports) > before


def running(operations: Operations) -> float:
    """Returns the number of fragments that run on all workers."""
    values = operations.values().items()
    return sum(value for series, value in values if series.startswith("volary_fragments_running{"))


def test_a_killed_query_ends_on_the_workers(cluster: LocalCluster, connection: volary.Connection) -> None:
    operations = Operations(cluster.output())
    endless = "SELECT count(*) FROM facts f, other a, other b WHERE f.n + a.n + b.n < 0"
    errors: list[volary.Error] = []

    def ask() -> None:
        with cluster.connect() as asking, pytest.raises(volary.Error) as raised:
            asking.sql(endless).rows()
        errors.append(raised.value)

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: running(operations) == WORKERS, "each worker runs a fragment")
    ((query_id,),) = connection.sql(
        "SELECT query_id FROM system.queries WHERE statement LIKE 'SELECT count(*) FROM facts f,%'"
    ).rows()
    connection.sql(f"KILL '{query_id}'")
    until(lambda: running(operations) == 0, "no worker runs a fragment")
    asker.join()
    assert errors
    assert connection.sql("SELECT count(*) FROM other").rows() == [(30_000,)]
