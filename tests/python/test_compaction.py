"""Tests merges of segments: in the background, by OPTIMIZE, with all types of columns, and while rows are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE_SECONDS, Processes, until
from test_small_writes import ROWS, TYPES, answers

import volary

# All rows go to segments at once, and the worker looks for segments to merge all the time.
EAGER = {
    "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B",
    "VOLARY_WORKER__STORAGE__COMPACTION_INTERVAL": "10ms",
}


def segments(processes: Processes, table: str) -> int:
    return int(processes.sql(f"SELECT count(*) FROM system.segments WHERE table_name = '{table}'")[0][0])


def test_rows_of_all_types_are_the_same_after_a_merge(tmp_path: Path) -> None:
    settings = {"VOLARY_WORKER__STORAGE__COMPACTION": "false"}
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        processes.add_worker()
        processes.sql(f"CREATE TABLE kinds ({TYPES}) WITH (shard_key = 'k', shards = 2)")
        for row in ROWS:
            processes.sql(f"INSERT INTO kinds VALUES {row}")
            processes.sql("OPTIMIZE kinds")
        processes.sql("INSERT INTO kinds SELECT * FROM kinds")
        before = answers(processes)
        processes.sql("OPTIMIZE TABLE kinds")
        assert answers(processes) == before
        assert segments(processes, "kinds") == 2
        for worker in processes.workers:
            worker.kill()
            worker.start()
        assert answers(processes) == before


def test_the_background_keeps_the_number_of_segments_low_while_rows_are_written_and_read(
    tmp_path: Path, background: Callable[..., Future[Any]]
) -> None:
    with Processes(tmp_path, EAGER) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE sums (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 4)")
        processes.sql("CREATE TABLE copied (k BIGINT) WITH (reference = true)")
        writes = 120

        def write() -> None:
            with processes.connect() as connection:
                for number in range(writes):
                    # The rows of each write add up to nothing.
                    rows = ", ".join(f"({number * 8 + i}, {number * (-1) ** i})" for i in range(8))
                    connection.sql(f"INSERT INTO sums VALUES {rows}")
                    connection.sql(f"INSERT INTO copied VALUES ({number})")

        writing = background(write)
        seen = 0
        with processes.connect() as connection:
            while not writing.done():
                ((count, total),) = connection.sql("SELECT count(*), coalesce(sum(v), 0) FROM sums").rows()
                assert count % 8 == 0
                assert total == 0
                assert count >= seen
                seen = count
        writing.result()
        until(lambda: segments(processes, "sums") <= 4 * 7, "segments are merged")
        until(lambda: segments(processes, "copied") <= 7, "segments of the reference table are merged")
        assert processes.sql("SELECT count(*), count(DISTINCT k), sum(v) FROM sums")[0] == (writes * 8, writes * 8, 0)
        assert processes.sql("SELECT count(*), count(DISTINCT k) FROM copied")[0] == (writes, writes)
        state = "SELECT merges > 0, compacted_bytes > 0, error, last_failure FROM system.storage"
        assert processes.sql(state) == [(True, True, None, None)]
        processes.sql("OPTIMIZE sums")
        assert segments(processes, "sums") == 4
        # Merged segments are read like others that are as small, once their metadata are known.
        processes.sql("SELECT sum(v) FROM sums")
        plan = str(processes.sql("EXPLAIN ANALYZE VERBOSE SELECT sum(v) FROM sums"))
        assert sum(map(int, re.findall(r"small_segments=(\d+)", plan))) > 0


def test_optimize_waits_for_merges_and_can_be_cancelled_and_refused(tmp_path: Path) -> None:
    settings = {**EAGER, "VOLARY_WORKER__STORAGE__COMPACTION": "false", "VOLARY_WORKER__STORAGE__COMPACTION_RATE": "1B"}
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE slow (k BIGINT) WITH (shard_key = 'k', shards = 1)")
        for number in range(3):
            processes.sql(f"INSERT INTO slow VALUES ({number})")
        # At one byte per second, this takes far longer than anybody waits.
        with processes.connect() as connection:
            connection.sql("SET statement_timeout = '500ms'")
            with pytest.raises(volary.DeadlineExceededError):
                connection.sql("OPTIMIZE slow")
        assert segments(processes, "slow") == 3
        assert processes.sql("SELECT sum(k) FROM slow") == [(3,)]
        processes.workers[0].kill()
        with pytest.raises(volary.UnavailableError):
            processes.sql("OPTIMIZE slow")
        storage = processes.sql("SELECT segments, error FROM system.storage")
        assert storage[0][0] is None
        assert "w1" in storage[0][1]


def test_writes_are_refused_while_the_disk_is_nearly_full_and_queries_go_on(tmp_path: Path) -> None:
    with Processes(tmp_path, {}) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE kept (k BIGINT) WITH (shard_key = 'k')")
        processes.sql("INSERT INTO kept VALUES (1)")
        worker = processes.workers[0]
        worker.kill()
        worker.variables = {"VOLARY_WORKER__STORAGE__MIN_FREE": "1048576GiB"}
        worker.start()
        with pytest.raises(volary.ResourceExhaustedError, match=r"worker\.storage\.min_free") as caught:
            processes.sql("INSERT INTO kept VALUES (2)")
        assert caught.value.retry_after == 5
        with processes.connect() as connection:
            # The worker asks to wait for longer than the stream may, so the stream ends at once.
            stream = connection.stream("kept", retry_timeout=1)
            refused = stream.write([{"k": 2}]).exception(timeout=PATIENCE_SECONDS)
            stream.close()
        assert isinstance(refused, volary.ResourceExhaustedError)
        assert refused.retry_after == 5
        assert processes.sql("SELECT k FROM kept") == [(1,)]
        processes.sql("DROP TABLE kept")
