"""Kills nodes at random moments while rows are written and read. Acknowledged rows must be there exactly once."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from processes import Processes, until

import volary

ROUNDS = int(os.environ.get("VOLARY_KILL_ROUNDS", "20"))
"""Number of rounds, each with at least one kill. `VOLARY_KILL_ROUNDS=100` is a longer run."""
SEED = int(os.environ.get("VOLARY_KILL_SEED", str(random.SystemRandom().randrange(2**32))))
ROWS = 40
"""Number of rows of a statement, so that each shard gets some."""
SHARDS = 8
# Maximum time in seconds from the restart of the work to the next kill. The time is random.
LONGEST_SECONDS = 0.3


class Writer:
    """Inserts statements of `ROWS` rows, one after another, and remembers which of them were acknowledged."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.acknowledged: set[int] = set()
        self.failed: set[int] = set()
        self._next = 0

    def step(self) -> None:
        statement = self._next
        self._next += 1
        rows = f"SELECT n, {statement} FROM generate_series({statement * ROWS}, {statement * ROWS + ROWS - 1}) AS t(n)"
        try:
            self._processes.sql(f"INSERT INTO eggs {rows}")
        except (volary.Error, OSError):
            self.failed.add(statement)
        else:
            self.acknowledged.add(statement)


class Reader:
    """Reads all rows by statement, and checks that each statement is complete."""

    def __init__(self, processes: Processes, writer: Writer) -> None:
        self._processes = processes
        self._writer = writer
        self.reads = 0

    def step(self) -> None:
        before = set(self._writer.acknowledged)
        try:
            seen = statements(self._processes)
        except (volary.Error, OSError):
            return
        self.reads += 1
        assert before <= seen, f"acknowledged rows are missing: {before - seen}"


def statements(processes: Processes) -> set[int]:
    """Returns the statements whose rows are there. Each of them must have all its rows, and each row once."""
    found = processes.sql("SELECT s, count(*), count(DISTINCT k) FROM eggs WHERE k >= 0 GROUP BY s")
    halves = [row for row in found if row[1:] != (ROWS, ROWS)]
    assert not halves, f"statements are there in halves, or twice: {halves}"
    return {statement for statement, *_ in found}


class Repeated(threading.Thread):
    """A thread that repeats a step until it is stopped or the step fails."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._step = step
        self._stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def test_what_was_acknowledged_is_there_once_whoever_is_killed_when(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"VOLARY_KILL_SEED={SEED}")
    with Processes(tmp_path) as processes:
        for _ in range(2):
            processes.add_worker()
        processes.sql(f"CREATE TABLE eggs (k BIGINT NOT NULL, s BIGINT) WITH (shard_key = 'k', shards = {SHARDS})")
        writer = Writer(processes)
        reader = Reader(processes, writer)
        for _ in range(ROUNDS):
            work = [Repeated(writer.step), Repeated(reader.step)]
            known = len(writer.acknowledged)
            for thread in work:
                thread.start()
            until(lambda known=known: len(writer.acknowledged) > known, "rows are written again")
            time.sleep(chance.uniform(0, LONGEST_SECONDS))
            killed = chance.sample([processes.gateway, *processes.workers], chance.choice([1, 1, 1, 2, 3]))
            for node in killed:
                node.kill()
            # The gateway starts first, because workers wait for it.
            for node in sorted(killed, key=lambda node: node is not processes.gateway):
                node.start()
            for thread in work:
                thread.stop()

        def seen() -> set[int] | None:
            try:
                return statements(processes)
            except volary.Error:
                return None

        until(lambda: seen() is not None, "all nodes are back")
        last = seen() or set()
        assert writer.acknowledged <= last
        assert last <= writer.acknowledged | writer.failed
        assert reader.reads > 0
        # The rows of failed statements do not stay forever.
        held = "SELECT coalesce(sum(rows), 0) FROM system.segments"
        until(lambda: processes.sql(held) == [(len(last) * ROWS,)], "the rows of failed statements are deleted")
        damaged = "SELECT count(*) FROM system.segments WHERE damage IS NOT NULL"
        assert processes.sql(damaged) == [(0,)]
