"""Tests nodes with a missing or damaged file at their start: all acknowledged rows, or an error that names the file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from processes import Processes, Worker, binary, environment, until

import volary

REPOSITORY = Path(__file__).resolve().parents[2]
# The commands that docs/repair.md recommends, in its order.
RESTORE_STORE, RECOVER = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs/repair.md").read_text("utf-8"), re.DOTALL)
SHARDS = 4
FIRST_FORMAT = REPOSITORY / "tests/data/first_format.tar.xz"
QUERIES = (
    "SELECT count(*), sum(k), max(v) FROM nests WHERE k >= 0",
    "SELECT v, count(*) FROM nests GROUP BY v ORDER BY v",
    "SELECT * FROM nests WHERE k = 7",
    "SELECT * FROM kinds WHERE id > 0 ORDER BY id",
    "SELECT nests.k, kinds.name FROM nests JOIN kinds ON nests.v = kinds.id WHERE k < 100 ORDER BY 1",
)
# All rows go to segments at once.
SEGMENTS = {"VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B"}
# Scrubs at full speed all the time. Whole segments are not checked when a query first needs them.
SCRUBBING = {
    **SEGMENTS,
    "VOLARY_WORKER__STORAGE__SCRUB_INTERVAL": "20ms",
    "VOLARY_WORKER__STORAGE__SCRUB_RATE": "1GiB",
    "VOLARY_WORKER__STORAGE__CHECK_ON_OPEN": "1B",
}


def start(processes: Processes) -> None:
    processes.gateway.start()
    for worker in processes.workers:
        worker.launch()
    for worker in processes.workers:
        worker.await_ready()


def stop(processes: Processes) -> None:
    for node in [processes.gateway, *processes.workers]:
        if node.process is not None and node.process.is_alive():
            node.process.stop()


def make_tables(processes: Processes) -> None:
    processes.sql(f"CREATE TABLE nests (k BIGINT NOT NULL, v BIGINT) WITH (shard_key = 'k', shards = {SHARDS})")
    processes.sql("CREATE TABLE kinds (id BIGINT NOT NULL, name VARCHAR) WITH (reference = true)")
    processes.sql("INSERT INTO kinds VALUES (1, 'kea'), (2, 'takahe')")


def insert(processes: Processes, start: int, count: int) -> None:
    """Writes rows into all shards, and lets another write fail."""
    rows = f"SELECT n, n % 3 FROM generate_series({start}, {start + count - 1}) AS t(n)"
    processes.sql(f"INSERT INTO nests {rows}")
    with pytest.raises(volary.Error):
        processes.sql(f"INSERT INTO nests SELECT n, 1 / (n - {start + count - 1}) FROM ({rows}) AS t(n, v)")

    def is_tidy() -> bool:
        files = sum(len(worker.files()) for worker in processes.workers)
        return processes.sql("SELECT count(*) FROM system.segments") == [(files,)]

    until(is_tidy, "the rows of the failed write are deleted")


def answers(processes: Processes) -> list[list[tuple[Any, ...]]]:
    return [processes.sql(query) for query in QUERIES]


def answer_of(processes: Processes, query: str) -> list[tuple[Any, ...]] | volary.Error | None:
    """Returns the rows or the error of a query, or `None` if the query should be repeated."""
    try:
        return processes.sql(query)
    except volary.UnavailableError:
        return None
    except volary.Error as error:
        return error


class Stopped(NamedTuple):
    """A cluster of two workers that has stopped, with copies of its directories."""

    processes: Processes
    whole: Path
    older: Path
    answers: list[list[tuple[Any, ...]]]

    def copy_of(self, file: Path) -> Path:
        """Returns the copy of a file from the end."""
        return self.whole / file.relative_to(self.processes.directory)

    def older_copy_of(self, file: Path) -> Path:
        """Returns the copy of a file from before the last rows were written."""
        return self.older / file.relative_to(self.processes.directory)

    def nodes(self) -> list[Path]:
        nodes = [self.processes.gateway, *self.processes.workers]
        return [node.data_dir for node in nodes]

    def restore(self) -> None:
        """Restores all files as they were at the end."""
        for directory in self.nodes():
            shutil.rmtree(directory)
            shutil.copytree(self.copy_of(directory), directory)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """A stopped cluster that wrote rows before and after its older copy was made."""
    directory = tmp_path_factory.mktemp("damage")
    copies = tmp_path_factory.mktemp("copies")
    with Processes(directory, SEGMENTS) as processes:
        for _ in range(2):
            processes.add_worker()
        make_tables(processes)
        insert(processes, 0, 300)
        stop(processes)
        stopped = Stopped(processes, copies / "whole", copies / "older", [])
        for node in stopped.nodes():
            shutil.copytree(node, stopped.older_copy_of(node))
        start(processes)
        insert(processes, 300, 200)
        known = answers(processes)
        stop(processes)
        for node in stopped.nodes():
            shutil.copytree(node, stopped.copy_of(node))
        yield stopped._replace(answers=known)


def segments_of(worker: Worker, table: int = 1) -> list[Path]:
    """Returns the worker's segments of a table, by default of the largest one, ordered by shard and write."""

    def shard_and_write(file: Path) -> list[int]:
        return [int(part) for part in file.name.split("-")[:2]]

    return sorted(worker.data_dir.glob(f"tables/{table}/*.parquet"), key=shard_and_write)


FILES: dict[str, Callable[[Processes], tuple[Path, Path]]] = {
    # Each file comes with another file of the same kind.
    "gateway's volary.json": lambda p: (p.gateway.data_dir / "volary.json", p.workers[0].data_dir / "volary.json"),
    "catalog.redb": lambda p: (p.gateway.data_dir / "catalog.redb", p.gateway.data_dir / "volary.json"),
    "worker's volary.json": lambda p: (p.workers[0].data_dir / "volary.json", p.workers[1].data_dir / "volary.json"),
    "store.redb": lambda p: (p.workers[0].data_dir / "store.redb", p.workers[1].data_dir / "store.redb"),
    "segment": lambda p: (segments_of(p.workers[0])[0], segments_of(p.workers[0])[-1]),
    "newest segment": lambda p: (segments_of(p.workers[1])[-1], segments_of(p.workers[1])[0]),
    "segment of a reference table": lambda p: (segments_of(p.workers[1], 2)[0], segments_of(p.workers[1])[0]),
}


def repair(commands: str, places: dict[str, Path]) -> None:
    """Runs the commands of the page, with its directories replaced by those of the test."""
    for theirs, ours in places.items():
        assert theirs in commands
        commands = commands.replace(theirs, str(ours))
    path = f"{binary('volary').parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands], env={**environment({}), "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def flip(file: Path, share: float) -> None:
    content = bytearray(file.read_bytes())
    content[int(share * (len(content) - 1))] ^= 0x10
    file.write_bytes(bytes(content))


def truncate(file: Path, share: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])


def swap(file: Path, other: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(content)


def roll_back(stopped: Stopped, file: Path) -> None:
    shutil.copy(stopped.older_copy_of(file), file)


DAMAGES: dict[str, Callable[[Stopped, Path, Path], None]] = {
    "removed": lambda _, file, __: file.unlink(),
    "emptied": lambda _, file, __: truncate(file, 0),
    "cut in half": lambda _, file, __: truncate(file, 0.5),
    "flipped at its beginning": lambda _, file, __: flip(file, 0.02),
    "flipped in the middle": lambda _, file, __: flip(file, 0.5),
    "flipped near its end": lambda _, file, __: flip(file, 0.9),
    "rolled back": lambda stopped, file, _: roll_back(stopped, file),
    "swapped": lambda _, file, other: swap(file, other),
}
CASES = [
    (file, damage)
    for file in FILES
    for damage in DAMAGES
    # Segments never change, so they have no older content.
    if not (damage == "rolled back" and "segment" in file)
]


def segments(stopped: Stopped) -> list[bytes]:
    """Returns the contents of all files with rows."""
    return sorted(file.read_bytes() for node in stopped.nodes() for file in node.rglob("*.parquet"))


@pytest.mark.parametrize(("file", "damage"), CASES, ids=[f"{file} {damage}" for file, damage in CASES])
def test_a_damaged_file_is_named_or_does_not_matter_and_no_row_is_deleted(
    stopped: Stopped, file: str, damage: str
) -> None:
    processes = stopped.processes
    stopped.restore()
    path, other = FILES[file](processes)
    DAMAGES[damage](stopped, path, other)
    before = segments(stopped)
    # The error names the damaged file, or another file of the directory that does not fit it.
    names = [path.name, other.name, "catalog.redb"]
    try:
        start(processes)
    except AssertionError:
        said = "".join(node.running().tail() for node in [processes.gateway, *processes.workers] if node.process)
        # Nodes that have started may not be ready to be stopped yet.
        for node in [processes.gateway, *processes.workers]:
            node.end()
        assert any(name in said for name in names), said
    else:
        for query, expected in zip(QUERIES, stopped.answers, strict=True):
            answer = until(lambda query=query: answer_of(processes, query), "the nodes agree on what there was")
            if isinstance(answer, volary.Error):
                assert any(name in str(answer) for name in names), answer
            else:
                assert answer == expected
    finally:
        stop(processes)
    assert segments(stopped) == before


def test_nothing_is_wrong_with_what_is_whole(stopped: Stopped) -> None:
    stopped.restore()
    start(stopped.processes)
    assert answers(stopped.processes) == stopped.answers
    assert {row[0] for row in stopped.processes.sql("SELECT damage FROM system.segments")} == {None}
    stop(stopped.processes)


def test_a_worker_whose_store_was_rolled_back_is_whole_again_when_the_newest_is_restored(stopped: Stopped) -> None:
    processes = stopped.processes
    stopped.restore()
    store = processes.workers[0].data_dir / "store.redb"
    roll_back(stopped, store)
    start(processes)
    with pytest.raises(volary.Error, match=r"store\.redb in the worker's data directory is outdated"):
        answers(processes)
    # A row that is written to the shard now would be lost, too.
    rows = f"SELECT n, 1 FROM generate_series(1000, {1000 + 10 * SHARDS}) AS t(n)"
    with pytest.raises(volary.Error, match=r"store\.redb"):
        processes.sql(f"INSERT INTO nests {rows}")
    stop(processes)
    repair(
        RESTORE_STORE,
        {
            "backup/worker-1": stopped.copy_of(processes.workers[0].data_dir),
            "/var/lib/volary/worker-1": processes.workers[0].data_dir,
        },
    )
    start(processes)
    ((count,),) = processes.sql("SELECT count(*) FROM nests WHERE k < 500")
    assert count == 500
    stop(processes)


def test_a_scrub_finds_a_flipped_bit_that_no_query_reads(tmp_path: Path) -> None:
    with Processes(tmp_path, SCRUBBING) as processes:
        worker = processes.add_worker()
        make_tables(processes)
        insert(processes, 0, 100)
        segment = max(worker.data_dir.glob("tables/1/*.parquet"))
        flip(segment, 0.5)
        damage = "SELECT file, damage FROM system.segments WHERE damage IS NOT NULL"
        ((file, text),) = until(lambda: processes.sql(damage), "the scrub finds it")
        assert segment.name in file
        assert "BLAKE3" in text
        with pytest.raises(volary.Error, match=segment.name):
            answers(processes)


def test_a_scrub_logs_a_segment_that_it_cannot_read(tmp_path: Path) -> None:
    with Processes(tmp_path, SCRUBBING) as processes:
        worker = processes.add_worker()
        make_tables(processes)
        insert(processes, 0, 100)
        segment = max(worker.data_dir.glob("tables/1/*.parquet"))
        # A directory can be opened like a file, but reading it fails, as it does on a failing disk. There is no moment
        # at which a scrub finds neither the file nor the directory.
        link = tmp_path / "link"
        link.symlink_to(tmp_path, target_is_directory=True)
        link.replace(segment)

        def is_logged() -> bool:
            lines = worker.running().log().splitlines()
            return any(segment.name in line and "check the worker's disk" in line for line in lines)

        until(is_logged, "the scrub logs the segment")
        # The file itself may be in order.
        assert processes.sql("SELECT file FROM system.segments WHERE damage IS NOT NULL") == []


def test_a_bit_that_flips_in_a_page_while_the_worker_runs_is_no_wrong_value(tmp_path: Path) -> None:
    settings = {**SEGMENTS, "VOLARY_WORKER__STORAGE__CHECK_ON_OPEN": "1B", "VOLARY_WORKER__STORAGE__SCRUB": "false"}
    with Processes(tmp_path, settings) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE eggs (k BIGINT NOT NULL, v BIGINT, s VARCHAR) WITH (shard_key = 'k', shards = 1)")
        # One segment is read in one go, the other one page by page.
        for rows in (5_000, 100_000):
            values = f"SELECT n, (n * 7919) % 1000, 'egg ' || n FROM generate_series(1, {rows}) AS t(n)"
            processes.sql(f"INSERT INTO eggs {values}")
        whole = "SELECT sum(k), sum(v), count(DISTINCT s), max(s) FROM eggs WHERE k >= 0"
        one = "SELECT * FROM eggs WHERE k = 4321 ORDER BY v"
        expected = [processes.sql(query) for query in (whole, one)]
        for segment in worker.files():
            content = segment.read_bytes()
            for share in [number / 16 for number in range(1, 16)]:
                flip(segment, share)
                for query, known in zip((whole, one), expected, strict=True):
                    try:
                        assert processes.sql(query) == known
                    except volary.Error as error:
                        assert segment.name in str(error), error  # noqa: PT017
                segment.write_bytes(content)
                # A segment that was found damaged is not used until the worker restarts.
                worker.running().stop()
                worker.start()
        assert [processes.sql(query) for query in (whole, one)] == expected


@pytest.mark.parametrize("settings", [{}, SEGMENTS], ids=["log", "segments"])
def test_a_restored_catalog_serves_nothing_until_it_is_recovered_and_brings_no_row_back(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    with Processes(tmp_path, settings) as processes:
        worker = processes.add_worker()
        catalog = processes.gateway.data_dir / "catalog.redb"
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
        for key in (1, 2, 3):
            processes.sql(f"INSERT INTO nests VALUES ({key})")
        processes.gateway.running().stop()
        backup = shutil.copy(catalog, tmp_path / "backup.redb")
        processes.gateway.start()
        for key in (4, 5):
            processes.sql(f"INSERT INTO nests VALUES ({key})")
        processes.gateway.running().stop()
        newest = shutil.copy(catalog, tmp_path / "newest.redb")
        shutil.copy(backup, catalog)
        processes.gateway.start()

        def refused() -> bool:
            with pytest.raises(volary.Error) as error:
                processes.sql("SELECT k FROM nests WHERE k > 0")
            return "catalog.redb" in str(error.value) and "volary gateway recover" in str(error.value)

        until(refused, "the gateway has found out that its catalog is older than the worker")
        with pytest.raises(volary.Error, match="volary gateway recover"):
            processes.sql("INSERT INTO nests VALUES (6)")
        assert processes.sql("SELECT count(*) FROM system.nodes")
        files = worker.files()
        processes.gateway.running().stop()

        # The better repair uses the newest copy of the catalog.
        shutil.copy(newest, catalog)
        processes.gateway.start()
        until(lambda: len(answered(processes)) == 5, "the worker goes on with the newest catalog")
        assert worker.files() == files
        processes.gateway.running().stop()

        # The other repair recovers from an older copy.
        shutil.copy(backup, catalog)
        repair(RECOVER, {"/var/lib/volary/gateway": processes.gateway.data_dir})
        processes.gateway.start()
        until(lambda: len(answered(processes)) == 3, "the worker has set its rows aside")
        processes.sql("INSERT INTO nests VALUES (6)")
        assert sorted(answered(processes)) == [(1,), (2,), (3,), (6,)]
        lost = worker.data_dir.glob("lost/*/tables/1/0-*.parquet")
        assert sorted(key for file in lost for key in pq.read_table(file)["k"].to_pylist()) == [4, 5]
        worker.kill()
        worker.start()
        assert sorted(answered(processes)) == [(1,), (2,), (3,), (6,)]


def test_a_copy_of_a_running_catalog_that_lacks_acknowledged_rows_deletes_none_of_them(tmp_path: Path) -> None:
    """The numbers of the later writes are among those that the copy had reserved."""
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        catalog = processes.gateway.data_dir / "catalog.redb"
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
        for key in (1, 2, 3):
            processes.sql(f"INSERT INTO nests VALUES ({key})")
        # A snapshot of the volume has the files as they are on the disk.
        backup = shutil.copy(catalog, tmp_path / "backup.redb")
        mark = catalog.with_suffix(".revision")
        backup_of_mark = shutil.copy(mark, tmp_path / "backup.revision")
        for key in (4, 5, 6):
            processes.sql(f"INSERT INTO nests VALUES ({key})")
        newest = shutil.copy(catalog, tmp_path / "newest.redb")
        processes.gateway.kill()
        worker.kill()
        shutil.copy(backup, catalog)
        # Without the rest of the snapshot, it looks as if the last commits were damaged.
        processes.gateway.launch()
        code, line = processes.gateway.running().await_failure()
        assert code == 1
        assert re.match(r"volary: DATA_LOSS: .* ends with commit \d+, and commit \d+ was durable", line)
        shutil.copy(backup_of_mark, mark)
        worker.launch()
        processes.gateway.start()
        worker.await_ready()

        def refused() -> bool:
            with pytest.raises(volary.Error) as error:
                processes.sql("SELECT k FROM nests WHERE k > 0")
            return "volary gateway recover" in str(error.value)

        until(refused, "the gateway has found out that its catalog is older than the worker")
        processes.gateway.kill()
        shutil.copy(newest, catalog)
        processes.gateway.start()
        until(lambda: len(answered(processes)) == 6, "no row was deleted")


def answered(processes: Processes) -> list[tuple[Any, ...]]:
    """Returns the rows, or no rows while the query is refused."""
    try:
        return processes.sql("SELECT k FROM nests WHERE k > 0")
    except volary.Error:
        return []


def test_a_worker_that_was_away_while_a_restored_catalog_went_on_does_not_bring_its_rows_back(tmp_path: Path) -> None:
    with Processes(tmp_path, SEGMENTS) as processes:
        _, second = processes.add_worker(), processes.add_worker()
        catalog = processes.gateway.data_dir / "catalog.redb"
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 2)")
        processes.sql("INSERT INTO nests SELECT n FROM generate_series(1, 20) AS t(n)")
        processes.gateway.running().stop()
        backup = shutil.copy(catalog, tmp_path / "backup.redb")
        processes.gateway.start()
        # Only the second worker gets a row that is not in the backup.
        key = pq.read_table(second.files()[0])["k"][0].as_py()
        processes.sql(f"INSERT INTO nests VALUES ({key})")
        processes.gateway.running().stop()
        second.kill()
        shutil.copy(backup, catalog)
        processes.gateway.start()
        until(lambda: "alive" in processes.nodes("state").values(), "the first worker is known")
        processes.sql("CREATE TABLE others (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
        for key in range(3):
            processes.sql(f"INSERT INTO others VALUES ({key})")
        files = second.files()
        second.start()

        def refused() -> bool:
            with pytest.raises(volary.Error) as error:
                processes.sql("SELECT k FROM nests WHERE k >= 0")
            return "catalog.redb" in str(error.value)

        until(refused, "the second worker is of another history")
        assert second.files() == files


def test_a_worker_that_was_away_while_gateways_started_and_wrote_goes_on(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        _, second = processes.add_worker(), processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 8)")
        processes.sql("INSERT INTO nests SELECT n FROM generate_series(1, 50) AS t(n)")
        second.kill()
        for shards in (1, 2, 3):
            processes.gateway.kill()
            processes.gateway.start()
            until(lambda: "alive" in processes.nodes("state").values(), "the first worker is known")
            processes.sql(f"CREATE TABLE others_{shards} (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = {shards})")
            processes.sql(f"INSERT INTO others_{shards} VALUES (1)")
        second.start()
        until(lambda: len(answered(processes)) == 50, "the second worker is back")
        processes.sql("INSERT INTO nests SELECT n FROM generate_series(51, 60) AS t(n)")
        assert len(answered(processes)) == 60


def test_rows_are_taken_as_soon_as_a_gateway_serves(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "1s"}) as processes:
        processes.add_worker()
        processes.add_worker()
        make_tables(processes)
        for attempt in range(5):
            processes.gateway.running().stop()
            processes.gateway.start()
            processes.sql(f"INSERT INTO nests SELECT n, {attempt} FROM generate_series(1, 20) AS t(n)")
        ((count,),) = processes.sql("SELECT count(*) FROM nests WHERE k > 0")
        assert count == 100


@pytest.fixture
def first_format(tmp_path: Path) -> Iterator[Processes]:
    """A gateway and two workers with directories of a release without checksums and tallies. The workers are not
    started.
    """
    with tarfile.open(FIRST_FORMAT) as archive:
        archive.extractall(tmp_path, filter="data")
    processes = Processes(tmp_path)
    with processes:
        for _ in range(2):
            processes.new_worker()
        yield processes


def test_directories_of_the_first_format_open_and_go_on(first_format: Processes) -> None:
    for worker in first_format.workers:
        worker.start()
    expected = [(500, 124750, 2)]
    assert first_format.sql(QUERIES[0]) == expected
    assert first_format.sql("SELECT c FROM many ORDER BY v") == [(167,), (167,), (166,)]
    first_format.sql("INSERT INTO nests VALUES (500, 0)")
    for node in [first_format.gateway, *first_format.workers]:
        node.kill()
    start(first_format)
    assert first_format.sql(QUERIES[0]) == [(501, 125250, 2)]
    assert first_format.sql("SELECT id, name FROM kinds WHERE id > 0 ORDER BY id") == [(1, "kea"), (2, "takahe")]
    for worker in first_format.workers:
        assert not list(worker.data_dir.glob("tables/*/*/manifest.json"))


def test_a_lost_manifest_of_the_first_format_is_noticed_by_the_number_of_rows(
    first_format: Processes,
) -> None:
    manifest = min(first_format.workers[0].data_dir.glob("tables/1/*/manifest.json"))
    manifest.unlink()
    for worker in first_format.workers:
        worker.start()
    with pytest.raises(volary.Error, match=r"0 of its \d+ acknowledged rows, because store\.redb"):
        first_format.sql(QUERIES[0])
    assert len(list(manifest.parent.glob("*.parquet"))) == 2


def test_a_damaged_manifest_of_the_first_format_is_named_and_nothing_is_upgraded(first_format: Processes) -> None:
    worker = first_format.workers[0]
    manifest = min(worker.data_dir.glob("tables/1/*/manifest.json"))
    whole = manifest.read_bytes()
    truncate(manifest, 0.5)
    with pytest.raises(AssertionError, match=re.escape(str(manifest))):
        worker.start()
    worker.end()
    assert not (worker.data_dir / "store.redb").exists()
    manifest.write_bytes(whole)
    for node in first_format.workers:
        node.start()
    assert first_format.sql(QUERIES[0]) == [(500, 124750, 2)]
