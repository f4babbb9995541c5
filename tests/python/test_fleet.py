"""Tests `volary-fleet`: many workers in a few processes, which start and end together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE_SECONDS, binary, until, within

import volary

pytestmark = pytest.mark.server

WORKERS = 40
ROWS = 10_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A fleet, which ends when its standard input ends."""
    command = [binary("volary-fleet"), "up", f"--workers={WORKERS}", "--hosts=2", f"--data-dir={tmp_path / 'fleet'}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def await_address(fleet: subprocess.Popen[str]) -> str:
    with within():
        line = fleet.stdout.readline()
    found = re.fullmatch(rf"volary-fleet: {WORKERS} workers after .* listening on (grpc://127\.0\.0\.1:\d+)\n", line)
    assert found, line
    return found[1]


def children(fleet: subprocess.Popen[str]) -> dict[int, str]:
    """Returns the process ids of the child processes, with their kinds."""
    listed = Path(f"/proc/{fleet.pid}/task/{fleet.pid}/children").read_text().split()
    return {int(pid): Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1] for pid in listed}


def test_a_fleet_answers_from_all_its_workers_and_ends_with_its_input(fleet: subprocess.Popen[str]) -> None:
    with volary.connect(await_address(fleet)) as connection:
        assert connection.sql(
            "SELECT role, count(*) FROM system.nodes WHERE state = 'alive' GROUP BY 1 ORDER BY 1"
        ).rows() == [
            ("gateway", 1),
            ("worker", WORKERS),
        ]
        connection.sql(f"CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = {2 * WORKERS})")
        connection.sql(f"INSERT INTO t SELECT value FROM generate_series(1, {ROWS})")
        assert connection.sql("SELECT count(*), sum(k) FROM t WHERE k > 0").rows() == [(ROWS, ROWS * (ROWS + 1) // 2)]
        (text,) = {
            row[1] for row in connection.sql("EXPLAIN SELECT count(*) FROM t WHERE k > 0").rows() if "Gather" in row[1]
        }
        assert f"workers={WORKERS}" in text
    started = children(fleet)
    assert sorted(started.values()) == ["gateway", "host", "host"]
    fleet.stdin.close()
    assert fleet.wait(timeout=PATIENCE_SECONDS) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def test_workers_that_are_gone_are_an_error_that_names_one(fleet: subprocess.Popen[str]) -> None:
    with volary.connect(await_address(fleet)) as connection:
        connection.sql(f"CREATE TABLE t (k BIGINT) WITH (shard_key = 'k', shards = {WORKERS})")
        connection.sql(f"INSERT INTO t SELECT value FROM generate_series(1, {ROWS})")
        host = max(pid for pid, what in children(fleet).items() if what == "host")
        os.kill(host, signal.SIGKILL)
        until(lambda: connection.sql("SELECT 1").rows() == [(1,)], "the gateway answers")
        with within(), pytest.raises(volary.UnavailableError, match=r"worker w\d+ at 127\.0\.0\.1:\d+"):
            connection.sql("SELECT sum(k) FROM t").rows()
    fleet.stdin.close()
    assert fleet.wait(timeout=PATIENCE_SECONDS) == 1
