"""Tests the shell of `volary sql` at a terminal: completion, paging, history, commands and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import LocalCluster
from processes import PATIENCE_SECONDS, binary, environment, until
from pyarrow import parquet as pq

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def aviary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A worker with the table `birds`."""
    with LocalCluster(tmp_path_factory.mktemp("aviary"), workers=1) as cluster:
        with cluster.connect() as connection:
            connection.sql("CREATE TABLE birds (k BIGINT, name VARCHAR) WITH (shard_key = 'k', shards = 4)")
            connection.sql("INSERT INTO birds VALUES (1, 'kea')")
        yield cluster


class Terminal:
    """Runs `volary sql` at its own terminal, types for it, and reads what it shows."""

    def __init__(self, cluster: LocalCluster, home: Path, **settings: str) -> None:
        self._keyboard, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 100, 0, 0))
        given = {"TERM": "xterm", "HOME": str(home), "VOLARY_URI": cluster.uri} | settings
        self._shell = subprocess.Popen(
            [binary("volary"), "sql"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment(given),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def until(self, *words: str) -> str:
        """Reads from the terminal until all words were shown, and returns what was read."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        shown = ""
        while not all(word in shown for word in words):
            assert time.monotonic() < deadline, f"{words} were not shown, but: {shown!r}"
            if select.select([self._keyboard], [], [], 0.1)[0]:
                shown += os.read(self._keyboard, 1 << 16).decode(errors="replace")
        return shown

    def leave(self) -> None:
        self.type("\\q\r")
        try:
            assert self._shell.wait(PATIENCE_SECONDS) == 0
        finally:
            self.kill()

    def kill(self) -> None:
        self._shell.kill()
        self._shell.wait()
        with suppress(OSError):
            os.close(self._keyboard)


@pytest.fixture
def terminal(aviary: LocalCluster, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(aviary, tmp_path, VOLARY_PAGER="cat -n")
    terminal.until("\\? shows help", "volary> ")
    yield terminal
    terminal.kill()


def test_names_complete_themselves(terminal: Terminal) -> None:
    terminal.type("sel\t count(*) as number_of_birds from bir\t;\r")
    # Each key moves the cursor, so the shown statement is in pieces. The answer shows that the statement was complete.
    terminal.until("\nnumber_of_birds\r\n", "(1 row)")
    terminal.type("CREATE TABLE ostriches (feathers BIGINT);\r")
    terminal.until("(done)")
    terminal.type("SELECT feat\t FROM ostr\t;\r")
    terminal.until("\nfeathers\r\n", "(0 rows)")
    terminal.type("DROP TABLE ostriches;\r")
    terminal.until("(done)")
    terminal.leave()


def test_keys_that_are_typed_ahead_wait_for_their_turn(terminal: Terminal) -> None:
    terminal.type("SELECT 1 AS first_line;\rSELECT 2 AS second_line;\r\\timing\r")
    terminal.until("\nfirst_line\r\n", "\nsecond_line\r\n", "Timing is on.")
    terminal.leave()


def test_ctrl_c_ends_the_statement_and_not_the_shell(terminal: Terminal, aviary: LocalCluster) -> None:
    series = "generate_series(1, 10000000) a(x), generate_series(1, 10000000) b(y)"
    endless = f"SELECT count(*) FROM {series} WHERE x % 7 = y % 5"

    def running() -> int:
        listed = "SELECT count(*) FROM system.queries WHERE statement LIKE '%y % 5%'"
        with aviary.connect() as connection:
            return connection.sql(listed + " AND statement NOT LIKE '%system.queries%'").rows()[0][0]

    terminal.type(f"{endless};\r")
    until(lambda: running() == 1, "the query runs")
    terminal.type("\x03")
    terminal.until("CANCELLED: Ctrl-C cancelled the statement", "volary> ")
    until(lambda: running() == 0, "the query has ended")
    terminal.type("SELECT 40 + 2 AS answer;\r")
    terminal.until("42", "(1 row)")
    terminal.leave()


def test_what_a_screen_does_not_hold_goes_through_the_pager(terminal: Terminal) -> None:
    terminal.type("SELECT n FROM generate_series(1, 50) t(n) ORDER BY n;\r")
    assert "    52\t50" in terminal.until("(50 rows)")
    terminal.type("SELECT n FROM generate_series(1, 3) t(n) ORDER BY n;\r")
    assert "\t3" not in terminal.until("(3 rows)")
    terminal.type("\\pager\r")
    terminal.until("The pager is off.")
    terminal.type("SELECT n FROM generate_series(1, 50) t(n) ORDER BY n;\r")
    assert "\t50" not in terminal.until("(50 rows)")
    terminal.leave()


def test_the_history_is_there_the_next_time_and_without_passwords(aviary: LocalCluster, tmp_path: Path) -> None:
    first = Terminal(aviary, tmp_path)
    first.until("volary> ")
    first.type("SELECT 'remembered' AS word;\r")
    first.until("(1 row)")
    first.type("ALTER USER nobody PASSWORD 'of the user';\r")
    first.until("nobody")
    first.leave()
    assert "of the user" not in (tmp_path / ".volary_history").read_text()
    second = Terminal(aviary, tmp_path)
    second.until("volary> ")
    second.type("\x1b[A\x1b[A\r")
    assert "remembered" in second.until("(1 row)")
    second.leave()


def test_the_commands_of_the_shell(terminal: Terminal, tmp_path: Path) -> None:
    rows, script = tmp_path / "rows.parquet", tmp_path / "script.sql"
    script.write_text("SELECT 11 AS a; SELECT 22 AS b")
    for typed, *shown in (
        ("\\d", "birds"),
        ("\\d birds", "name", "is_nullable"),
        ("\\dn", "gateway", "alive"),
        ("\\dq", "definition", "(0 rows)"),
        ("\\dr", "running_ms", "(1 row)"),
        (f"\\i {script}", "11", "22"),
        ("\\x",),
        ("SELECT 1 AS one;", "── row 1", "one  1"),
        ("\\x",),
        (f"\\o {rows}",),
        ("SELECT 5 AS five;", f"(1 row in {rows})"),
        ("SELECT 6 AS six;", "six"),
        ("\\format csv",),
        ("SELECT 1 AS a, 2 AS b;", "a,b\r\n1,2"),
        ("\\format parquet", "a terminal cannot show it"),
        ("\\format table",),
        ("\\timing", "Timing is on."),
        ("SELECT name FROM birds WHERE k = 1;", "1 worker, 1 shard", "planned in"),
        ("\\progress", "The progress bar is o"),
        ("\\conninfo", "Connected to grpc://"),
        ("\\?", "Tab completes names", "\\timing"),
        ("\\nothing", "There is no command \\nothing"),
    ):
        terminal.type(f"{typed}\r")
        terminal.until(*shown, "volary> ")
    assert pq.read_table(rows).to_pylist() == [{"five": 5}]
    terminal.leave()
