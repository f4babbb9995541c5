"""Tests that only the nodes' own user can read the files of nodes, which contain keys and rows."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE_SECONDS, Processes, binary, environment, until


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Sets a umask with which new files are open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(processes: Processes) -> list[Path]:
    """Returns the files and directories below the data directories on which other users have any permission."""
    directories = [processes.gateway.data_dir, *(worker.data_dir for worker in processes.workers)]
    kept = [path for directory in directories for path in [directory, *directory.rglob("*")]]
    assert any(path.name == "catalog.redb" for path in kept)
    assert any(path.suffix == ".log" for path in kept)
    return [path for path in kept if mode_of(path) & 0o077]


def mode_of(path: Path) -> int:
    """Returns the permissions of a file. A file that a node has just renamed has none."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


@pytest.mark.usefixtures("open_umask")
def test_files_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests AS SELECT value AS k FROM generate_series(1, 1000)")
        assert open_to_others(processes) == []


def test_directories_that_an_earlier_release_left_open_are_closed(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests AS SELECT value AS k FROM generate_series(1, 1000)")
        processes.gateway.running().stop()
        worker.running().stop()
        catalog = processes.gateway.data_dir / "catalog.redb"
        processes.gateway.data_dir.chmod(0o755)
        worker.data_dir.chmod(0o755)
        catalog.chmod(0o644)
        processes.gateway.start()
        worker.start()
        assert open_to_others(processes) == []
        for node in (processes.gateway, worker):
            assert "other users could read the data directory (mode 0755)" in node.running().log()
        assert processes.sql("SELECT count(*) FROM nests") == [(1000,)]


NOBODY = 65534
"""The id of the system's user that owns nothing."""


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_a_directory_that_belongs_to_another_user_is_refused(tmp_path: Path, role: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes a directory of another user's")
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("setpriv is not there, which takes root's rights to files of others away")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    data_dir.chmod(0o777)
    os.chown(data_dir, NOBODY, NOBODY)
    # Root without its capabilities is like any other user, but can run the program wherever it was built.
    without_rights = [setpriv, "--bounding-set=-all", "--inh-caps=-all"]
    arguments = ["--listen=127.0.0.1:0", f"--data-dir={data_dir}", *(["--gateway=127.0.0.1:9"] * (role == "worker"))]
    refused = subprocess.run(
        [*without_rights, binary("volary"), role, *arguments],
        capture_output=True,
        env=environment({}),
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    said = refused.stderr.decode()
    assert refused.returncode != 0, said
    assert f"other users may read data directory {data_dir}, and it belongs to another user" in said
    assert "INVALID_ARGUMENT" in said


@pytest.mark.usefixtures("open_umask")
def test_what_is_spilled_is_closed_to_others(tmp_path: Path) -> None:
    text, rows = "lpad(CAST(n * 7919 % 1000003 AS VARCHAR), 8, '0')", "FROM generate_series(1, 600000) t(n)"
    with Processes(tmp_path, {"VOLARY_WORKER__MEMORY__LIMIT": "128MiB"}) as processes:
        nodes = [processes.gateway, processes.add_worker()]
        processes.sql("CREATE TABLE nests (k BIGINT, v VARCHAR) WITH (shard_key = 'k', shards = 2)")
        processes.sql(f"INSERT INTO nests SELECT n, {text} {rows}")
        queries = {
            "gateway": f"SELECT repeat({text}, 16) AS w {rows} ORDER BY w",
            "worker1": "SELECT repeat(v, 16) AS w FROM nests ORDER BY w",
        }
        for node in nodes:
            with processes.connect() as connection:
                connection.sql("SET query_memory = '48MiB'")
                # The client reads only one row of many, so the spilled rows stay on disk.
                batches = connection.sql(queries[node.name]).batches()
                next(batches)
                spill = node.data_dir / "spill"
                until(lambda spill=spill: [it for it in spill.rglob("*") if it.is_file()], f"{node.name} has spilled")
                kept = {path: path.stat().st_mode for path in [spill, *spill.rglob("*")]}
                assert {path: oct(mode) for path, mode in kept.items() if mode & 0o077} == {}
                modes = {(path.is_dir(), mode & 0o777) for path, mode in kept.items()}
                assert modes == {(True, 0o700), (False, 0o600)}
