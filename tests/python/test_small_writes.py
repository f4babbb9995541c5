"""Tests small writes, whose rows are in the log of a worker until segments have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flight_sql import statement
from processes import Processes, until
from pyarrow import flight

import volary

SMALL_LOG = {"VOLARY_WORKER__STORAGE__LOG": "16MiB"}
# Rows of this many texts are a megabyte or so, which is a small write on each of several workers.
FILLER = "SELECT n, repeat('x', 50) FROM generate_series({0}, {0} + 7999) AS t(n)"
TYPES = """
    k BIGINT NOT NULL, v VARCHAR, d DOUBLE, dec DECIMAL(12, 3), day DATE, at TIMESTAMP, flag BOOLEAN, raw BYTEA,
    span INTERVAL, list BIGINT[], id UUID
"""
ROWS = (
    "(1, 'kea', 0.5, 1.250, DATE '2020-02-29', TIMESTAMP '2020-02-29 12:00:00.000001', true, '\\x00ff',"
    " INTERVAL '1 month 2 days 3 seconds', [1, 2], '67e55044-10b1-426f-9247-bb680e5fe0c8')",
    "(2, NULL, 'NaN', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(3, '', -0.0, -7, DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59', false, '', INTERVAL '0', [], NULL)",
)
QUERIES = (
    "SELECT * FROM kinds ORDER BY k",
    "SELECT k, span, list FROM kinds WHERE k >= 2 ORDER BY k",
    "SELECT count(*), count(v), sum(dec), min(day), max(at) FROM kinds",
    "SELECT k FROM kinds WHERE v = 'kea' OR flag = false ORDER BY k",
    "SELECT day, count(*) FROM kinds GROUP BY day ORDER BY day",
    "SELECT a.k, b.v FROM kinds AS a JOIN kinds AS b ON a.k = b.k WHERE a.k < 3 ORDER BY a.k",
    "SELECT k FROM kinds ORDER BY d DESC LIMIT 2",
)


def answers(processes: Processes) -> list[list[tuple[Any, ...]]]:
    return [[tuple(map(str, row)) for row in processes.sql(query)] for query in QUERIES]


def make_kinds(processes: Processes) -> None:
    processes.sql(f"CREATE TABLE kinds ({TYPES}) WITH (shard_key = 'k', shards = 4)")
    for row in ROWS:
        processes.sql(f"INSERT INTO kinds VALUES {row}")


def files(processes: Processes) -> int:
    return sum(len(worker.files()) for worker in processes.workers)


def test_rows_of_all_types_are_the_same_in_the_log_and_in_segments(tmp_path: Path) -> None:
    found = []
    for name, size in (("log", "1MiB"), ("segments", "1B")):
        directory = tmp_path / name
        directory.mkdir()
        with Processes(directory, {"VOLARY_WORKER__STORAGE__LOGGED_WRITE": size}) as processes:
            processes.add_worker()
            processes.add_worker()
            make_kinds(processes)
            found.append(answers(processes))
            assert (files(processes) == 0) == (name == "log")
            for worker in processes.workers:
                worker.kill()
                worker.start()
            found.append(answers(processes))
    assert found == [found[0]] * 4


def test_small_writes_survive_the_death_of_every_node_and_make_no_files(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, v VARCHAR) WITH (shard_key = 'k', shards = 8)")
        for number in range(60):
            processes.sql(f"INSERT INTO nests VALUES ({number}, 'nest'), ({1000 + number}, NULL)")
            if number % 20 == 19:
                for node in (worker, processes.gateway):
                    node.kill()
                    node.start()
        totals = "SELECT count(*), count(v), sum(k), min(k), max(k) FROM nests WHERE k >= 0"
        expected = [(120, 60, 2 * sum(range(60)) + 60_000, 0, 1059)]
        until(lambda: processes.nodes("state").get("w1") == "alive", "the worker is known again")
        assert processes.sql(totals) == expected
        assert processes.sql("SELECT v FROM nests WHERE k = 7") == [("nest",)]
        assert files(processes) == 0
        with pytest.raises(volary.Error):
            processes.sql("INSERT INTO nests SELECT 5, 1 / (n - 5) FROM generate_series(1, 9) AS t(n)")
        worker.kill()
        worker.start()
        assert processes.sql(totals) == expected


def test_a_flush_changes_no_answer_not_even_of_a_query_that_began_before_it(tmp_path: Path) -> None:
    with Processes(tmp_path, SMALL_LOG) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, v VARCHAR) WITH (shard_key = 'k', shards = 2)")
        query = "SELECT count(*) AS c, sum(k) AS s, min(v) AS v FROM nests WHERE k >= 0"
        client = flight.connect(f"grpc://{processes.gateway.address}")
        begun = []
        rows = 0
        while worker.files() == [] or rows < 100_000:
            if rows <= 64_000:
                info = client.get_flight_info(statement(query))
                keys = rows * (rows - 1) // 2 if rows else None
                begun.append((info.endpoints[0].ticket, (rows, keys, "x" * 50 if rows else None)))
            processes.sql(f"INSERT INTO nests {FILLER.format(rows)}")
            rows += 8000
        for ticket, expected in begun:
            (row,) = client.do_get(ticket).read_all().to_pylist()
            assert (row["c"], row["s"], row["v"]) == expected
        assert processes.sql(query) == [(rows, rows * (rows - 1) // 2, "x" * 50)]
        # Some of the rows were in segments, and are not read a second time from the log.
        worker.kill()
        worker.start()
        for ticket, expected in begun:
            (row,) = client.do_get(ticket).read_all().to_pylist()
            assert (row["c"], row["s"], row["v"]) == expected
        assert processes.sql(query) == [(rows, rows * (rows - 1) // 2, "x" * 50)]


def test_a_damaged_log_is_named_and_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
        for key in range(3):
            processes.sql(f"INSERT INTO nests VALUES ({key})")
        worker.kill()
        (log, *_) = sorted((worker.data_dir / "log").iterdir())
        whole = log.read_bytes()
        flipped = bytearray(whole)
        flipped[4096 + 60] ^= 1
        log.write_bytes(bytes(flipped))
        with pytest.raises(AssertionError, match=rf"{log.name}, at byte 4096: frame 1 is damaged"):
            worker.start()
        worker.end()
        # A frame that was being written when the worker died is no damage.
        end = len(whole.rstrip(b"\0")) // 8 * 8 + 512
        log.write_bytes(whole[:end] + b"\x07" * 300 + whole[end + 300 :])
        worker.start()
        assert sorted(processes.sql("SELECT k FROM nests WHERE k >= 0")) == [(0,), (1,), (2,)]
        processes.sql("INSERT INTO nests VALUES (3)")
        worker.kill()
        worker.start()
        assert len(processes.sql("SELECT k FROM nests WHERE k >= 0")) == 4
