"""Tests `volary.local`: a cluster that ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE_SECONDS, binary, environment, run, until

import volary

pytestmark = pytest.mark.server

FAKE = "#!/bin/sh\n"


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The program that the tests run. Its temporary directories are below `tmp_path`/t."""
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("VOLARY_BIN", str(binary("volary")))
    return binary("volary")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Makes a program that does what a shell script says, and lets VOLARY_BIN name it."""

    def make(script: str) -> Path:
        path = tmp_path / "fake"
        path.write_text(script)
        path.chmod(0o755)
        monkeypatch.setenv("VOLARY_BIN", str(path))
        return path

    return make


def has_ended(pid: int) -> bool:
    """Says whether a process has ended. Its parent may not have asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Script:
    """A Python process that runs `text`. It prints lines, and reads its standard input."""

    def __init__(self, text: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment({}), "VOLARY_BIN": os.environ["VOLARY_BIN"]},
        )
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._stdout, self._stdin = self._process.stdout, self._process.stdin

    def line(self) -> str:
        """Returns the next line that the process prints."""
        return self._stdout.readline().strip()

    def write(self, line: str) -> None:
        """Lets the process read a line."""
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def kill(self) -> None:
        """Ends the process as a crash does."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Waits until the process ends by itself, and returns its exit code."""
        return self._process.wait(PATIENCE_SECONDS)

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._stdin.close()
        self._stdout.close()


@pytest.fixture
def script() -> Iterator[type[Script]]:
    return Script


def test_a_cluster_runs_statements_and_leaves_nothing_behind(tmp_path):
    with volary.local(workers=2) as db:
        db.sql("CREATE TABLE birds (id BIGINT, name VARCHAR) WITH (shard_key = 'id', shards = 4)")
        assert db.sql("INSERT INTO birds VALUES (?, ?)", [1, "kea"]).rows_affected == 1
        assert db.sql("SELECT name FROM birds").rows() == [("kea",)]
        assert db.sql("SELECT count(*) FROM system.nodes WHERE role = 'worker'").rows() == [(2,)]
        assert db.data_dir.is_relative_to(tmp_path / "t")
        assert (db.data_dir / "worker-1").is_dir()
        assert db.data_dir.stat().st_mode & 0o077 == 0
        assert db.uri in repr(db)
        assert "INFO" in db.log()
        pid = db.pid
    assert has_ended(pid)
    assert list((tmp_path / "t").iterdir()) == []


def test_a_given_directory_keeps_its_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with volary.local(2, "kept") as db:
        db.sql("CREATE TABLE birds AS SELECT 1 AS id")
        assert db.data_dir == tmp_path / "kept"
    with volary.local(2, tmp_path / "kept") as db:
        assert db.sql("SELECT id FROM birds").rows() == [(1,)]
    with pytest.raises(volary.InvalidArgumentError, match="holds the data of 2 workers"):
        volary.local(1, tmp_path / "kept")


def test_a_cluster_without_a_block_is_closed_by_hand_or_when_nobody_has_it():
    db = volary.local(workers=1)
    other = db.connect()
    db.sql("CREATE TEMPORARY TABLE mine AS SELECT 1 AS id")
    assert db.sql("SELECT id FROM mine").rows() == [(1,)]
    with pytest.raises(volary.NotFoundError):
        other.sql("SELECT id FROM mine")
    other.close()
    db.close()
    db.close()
    assert has_ended(db.pid)
    assert "(ended)" in repr(db)
    with pytest.raises(RuntimeError, match="closed"):
        db.sql("SELECT 1")
    db = volary.local(workers=1)
    pid = db.pid
    del db
    until(lambda: has_ended(pid), "the cluster has ended")


def test_a_cluster_with_an_open_result_is_closed_too(tmp_path):
    db = volary.local(workers=1)
    with db.connect() as other:
        result = other.sql("SELECT value FROM generate_series(1, 9000000000000000000)")
        batches = result.batches()
        assert next(batches).num_rows > 0
        db.close()
        assert has_ended(db.pid)
        with pytest.raises(volary.Error):
            for _ in batches:
                pass
    assert list((tmp_path / "t").iterdir()) == []


def test_settings_are_those_of_the_arguments_alone(tmp_path, monkeypatch):
    (tmp_path / "volary.toml").write_text("[nonsense]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOLARY_CONFIG", "nowhere.toml")
    monkeypatch.setenv("VOLARY_GATEWAY__NONSENSE", "1")
    settings = {
        "gateway.query.max_running": 77,
        "gateway.query.memory": "64MiB",
        "gateway.load.allowed_roots": [tmp_path / "with, a comma", 'and "quotes"'],
        "worker.storage.scrub": False,
    }
    (tmp_path / "with, a comma").mkdir()
    (tmp_path / "with, a comma" / "birds.csv").write_text("id\n1\n")
    with volary.local(1, memory="512MiB", settings=settings) as db:
        question = "SELECT DISTINCT setting, allowed FROM system.limits WHERE setting IN (?, ?) ORDER BY setting"
        names = ["gateway.query.max_running", "gateway.query.memory"]
        assert db.sql(question, names).rows() == [(names[0], 77), (names[1], 64 << 20)]
        db.sql("CREATE TABLE birds (id BIGINT)")
        db.sql(f"COPY birds FROM '{tmp_path}/with, a comma/birds.csv'")
        assert db.sql("SELECT id FROM birds").rows() == [(1,)]


def test_copy_reads_below_the_allowed_roots_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("allowed", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "birds.csv").write_text("id\n1\n")
    with volary.local(1, allow_roots=["allowed", "https://example.com/data"]) as db:
        db.sql("CREATE TABLE birds (id BIGINT)")
        db.sql(f"COPY birds FROM '{tmp_path}/allowed/birds.csv'")
        with pytest.raises(volary.PermissionDeniedError, match="allowed_roots"):
            db.sql(f"COPY birds FROM '{tmp_path}/other/birds.csv'")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gateway.query.memroy": "1GiB"}, "there is no setting gateway.query.memroy"),
        ({"gateway.query.timeout": "soon"}, "gateway.query.timeout"),
        ({"GATEWAY__QUERY": 1}, "write, for example, gateway.query.memory"),
        ({"gateway.query": {"memory": "1GiB"}}, "a setting is a text, a number"),
        ({"gateway.query.batch_rows": 0}, "gateway.query.batch_rows"),
        ({"local.workers": 8}, "local.workers is not a setting here: give workers"),
    ],
)
def test_a_wrong_setting_is_named(settings, said):
    with pytest.raises(volary.InvalidArgumentError, match=said):
        volary.local(settings=settings)


def test_an_address_in_use_is_named(cluster):
    address = cluster.uri.removeprefix("grpc://")
    with pytest.raises(volary.Error, match=address):
        volary.local(1, listen=address)


def test_ctrl_c_in_a_terminal_is_not_for_the_cluster():
    with volary.local(1) as db:
        assert os.getpgid(db.pid) != os.getpgid(0)


def test_a_cluster_outlives_the_thread_that_started_it():
    started: list[volary.LocalCluster] = []
    thread = threading.Thread(target=lambda: started.append(volary.local(1)))
    thread.start()
    thread.join()
    with started[0] as db:
        assert db.sql("SELECT 1").rows() == [(1,)]


def test_a_cluster_ends_with_a_killed_process_and_its_temporary_directory_goes(script, tmp_path):
    text = """
        import volary
        db = volary.local(1)
        db.sql("CREATE TABLE birds AS SELECT 1 AS id")
        print(db.pid, flush=True)
        input()
    """
    with script(text) as process:
        pid = int(process.line())
        process.kill()
        until(lambda: has_ended(pid), "the cluster has ended")
    assert list((tmp_path / "t").iterdir()) == []


def test_a_cluster_ends_with_the_interpreter(script, tmp_path):
    with script("import volary; db = volary.local(1); print(db.pid, flush=True)") as process:
        pid = int(process.line())
        assert process.wait() == 0
        assert has_ended(pid)
    assert list((tmp_path / "t").iterdir()) == []


def test_a_forked_process_neither_ends_a_cluster_nor_keeps_it(script):
    # The first child ends as a program does, and runs what Python runs then. The second one outlives the parent.
    text = """
        import os, signal, sys, volary
        db = volary.local(1)
        if (first := os.fork()) == 0:
            sys.exit()
        os.waitpid(first, 0)
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            signal.pause()
        input()
        print(db.sql("SELECT 1").rows(), db.pid, flush=True)
        input()
    """
    with script(text) as process:
        child = int(process.line())
        try:
            process.write("go on")
            rows, pid = process.line().rsplit(" ", 1)
            assert rows == "[(1,)]"
            process.kill()
            until(lambda: has_ended(int(pid)), "the cluster has ended")
            assert not has_ended(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_missing_program_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("VOLARY_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("volary._binary._beside_this_package", lambda: iter(()))
    with pytest.raises(volary.NotFoundError, match=r"not installed: install a wheel.*VOLARY_BIN.*PATH"):
        volary.local()


def test_a_program_in_the_path_is_found(monkeypatch, program):
    monkeypatch.delenv("VOLARY_BIN")
    monkeypatch.setenv("PATH", str(program.parent))
    with volary.local(1) as db:
        assert db.sql("SELECT 1").rows() == [(1,)]


@pytest.mark.parametrize("content", [None, "neither a program nor a script"])
def test_a_wrong_volary_bin_is_named(monkeypatch, fake, tmp_path, content):
    path = tmp_path / "nothing" if content is None else fake(content)
    monkeypatch.setenv("VOLARY_BIN", str(path))
    with pytest.raises(volary.InvalidArgumentError, match=str(path)):
        volary.local()


def test_a_program_that_is_too_old_is_named_with_its_version(fake):
    path = fake(
        FAKE + '[ "$1" = --version ] && { echo "volary 0.0.1"; exit; }\n'
        "echo \"error: unexpected argument '--stop-with-stdin' found\" >&2; exit 2"
    )
    with pytest.raises(volary.UnimplementedError, match=f"{path} is volary 0.0.1, which is too old"):
        volary.local()


def test_the_log_of_a_cluster_that_does_not_start_is_shown(fake):
    fake(FAKE + "for line in $(seq 100); do echo line $line >&2; done; exit 7")
    with pytest.raises(volary.UnavailableError, match="ended with 7") as raised:
        volary.local()
    assert str(raised.value).splitlines()[-1].strip() == "line 100"
    assert "line 80" not in str(raised.value)
    fake(FAKE + "exit 1")
    with pytest.raises(volary.UnavailableError, match="its log is empty"):
        volary.local()


def test_a_cluster_that_never_serves_is_ended_at_the_deadline(fake, tmp_path):
    fake(FAKE + f"echo $$ >{tmp_path}/pid; echo waits >&2; exec cat")
    with pytest.raises(volary.DeadlineExceededError, match=r"(?s)within 5 s.*waits"):
        volary.local(start_timeout=5)
    assert has_ended(int((tmp_path / "pid").read_text()))


def test_a_temporary_cluster_has_no_directory_of_the_user(tmp_path):
    ended = run("volary", "local", "--temporary", f"--data-dir={tmp_path / 'kept'}")
    assert ended.code == 2
    assert "cannot be used with" in ended.err


def test_a_cluster_of_the_command_line_stops_with_its_standard_input(tmp_path):
    ended = run("volary", "local", "--temporary", "--stop-with-stdin", "--listen=127.0.0.1:0", "--workers=1")
    assert ended.code == 0, ended.err
    assert list((tmp_path / "t").iterdir()) == []
