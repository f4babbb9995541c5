"""What nodes keep is their own user's: nobody else on the machine reads keys or rows from the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Processes


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Whoever starts the nodes leaves new files open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(processes: Processes) -> list[Path]:
    """The files and directories below the data directories that others have any right to."""
    directories = [processes.gateway.data_dir, *(worker.data_dir for worker in processes.workers)]
    kept = [path for directory in directories for path in [directory, *directory.rglob("*")]]
    assert any(path.name == "catalog.redb" for path in kept)
    assert any(path.suffix == ".parquet" for path in kept)
    return [path for path in kept if path.stat().st_mode & 0o077]


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
