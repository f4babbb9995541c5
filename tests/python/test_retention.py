"""Tests rows that expire: queries leave them out at once, and workers delete them later."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from processes import Processes, until

import volary

# A ticket is valid for a short time, so workers may soon delete what has expired.
HASTY = {
    "VOLARY_GATEWAY__QUERY__TICKET_LIFETIME": "1s",
    "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "100ms",
    "VOLARY_WORKER__STORAGE__COMPACTION_INTERVAL": "10ms",
}
CREATE = (
    "CREATE TABLE readings (k BIGINT, at {type}, v BIGINT) "
    "WITH (shard_key = 'k', shards = 4, retention = '7 days', time_column = 'at')"
)
SEEN = "SELECT k, v FROM readings ORDER BY k, v"


def expired_rows(processes: Processes) -> int:
    return int(processes.sql("SELECT sum(expired_rows) FROM system.storage")[0][0] or 0)


def segments(processes: Processes) -> int:
    return int(processes.sql("SELECT count(*) FROM system.segments WHERE table_name = 'readings'")[0][0])


def insert(processes: Processes, ages: list[timedelta | None], v: int) -> None:
    """Writes one row for each age, with the keys 0, 1, …"""
    now = datetime.now(UTC).replace(tzinfo=None)
    times = ["NULL" if age is None else f"'{now - age}'" for age in ages]
    processes.sql("INSERT INTO readings VALUES " + ", ".join(f"({k}, {at}, {v})" for k, at in enumerate(times)))


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP(9)", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP(0)"])
@pytest.mark.parametrize("logged", ["1B", "64KiB"])
def test_expired_rows_are_not_seen_and_are_deleted_later(tmp_path: Path, kind: str, logged: str) -> None:
    settings = {**HASTY, "VOLARY_WORKER__STORAGE__LOGGED_WRITE": logged}
    day = timedelta(days=1)
    with Processes(tmp_path, settings) as processes:
        for _ in range(2):
            processes.add_worker()
        processes.sql(CREATE.format(type=kind))
        insert(processes, [8 * day] * 20, 1)
        insert(processes, [3 * age * day for age in range(16)], 2)
        insert(processes, [None, 30 * day, -3 * day], 3)
        expected = sorted([(k, 2) for k in range(3)] + [(0, 3), (2, 3)])

        def check() -> None:
            assert processes.sql(SEEN) == expected
            assert processes.sql("SELECT count(*), max(v) FROM readings") == [
                (len(expected), max(v for _, v in expected))
            ]
            assert processes.sql("SELECT v FROM readings WHERE k = 12") == []
            assert processes.sql("SELECT count(*) FROM readings WHERE v = 1") == [(0,)]
            # Joins and windows see no more.
            joined = processes.sql("SELECT count(*) FROM readings a JOIN readings b USING (k)")
            assert joined == [(sum(count**2 for count in Counter(k for k, _ in expected).values()),)]

        # Most rows are in the log at first, if it takes them.
        check()
        processes.sql("OPTIMIZE readings")
        check()
        until(lambda: expired_rows(processes) == 20 + 13 + 1, "expired rows are deleted")
        check()
        for worker in processes.workers:
            worker.kill()
            worker.start()
        check()
        assert expired_rows(processes) == 34
        # Rows that come too late are not seen, either.
        insert(processes, [9 * day, 2 * day], 4)
        expected = sorted([*expected, (1, 4)])
        check()
        assert processes.sql("SELECT retention, time_column FROM system.tables WHERE name = 'readings'") == [
            ("7days", "at")
        ]


def test_a_segment_whose_rows_have_all_expired_is_deleted_without_reading_it(
    tmp_path: Path,
) -> None:
    settings = {
        **HASTY,
        "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B",
        "VOLARY_WORKER__STORAGE__COMPACTION": "false",
    }
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        processes.sql(CREATE.format(type="DATE"))
        for number in range(3):
            insert(processes, [timedelta(days=20 + number)] * 8, number)
        insert(processes, [timedelta(days=1)] * 8, 9)
        until(lambda: segments(processes) == 4, "the segments of expired rows are deleted")
        assert processes.sql("SELECT merged_bytes, expired_rows FROM system.storage") == [(0, 24)]
        files = list(processes.workers[0].data_dir.glob("tables/*/*.parquet"))
        until(
            lambda: len([file for file in files if file.exists()]) == 4,
            "their files are deleted",
        )
        assert processes.sql("SELECT count(*), min(v) FROM readings") == [(8, 9)]


def test_a_retention_can_be_changed_and_removed(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_WORKER__STORAGE__COMPACTION": "false"}) as processes:
        processes.add_worker()
        processes.sql(CREATE.format(type="TIMESTAMP"))
        insert(processes, [timedelta(days=days) for days in range(0, 60, 2)], 1)
        with processes.connect() as connection:

            def count(least: int = 0) -> int:
                # A statement with parameters, whose plan is kept.
                ((rows,),) = connection.sql("SELECT count(*) FROM readings WHERE v >= ?", [least]).rows()
                return int(rows)

            for _ in range(4):
                assert count() == 4
            connection.sql("ALTER TABLE readings SET (retention = '31 days')")
            assert count() == 16
            connection.sql("ALTER TABLE readings SET (retention = 'forever')")
            assert count() == 30
            connection.sql("ALTER TABLE readings SET (retention = '1 hour', time_column = 'at')")
            assert count() == 1
        # Nothing was deleted: a ticket may be an hour old.
        assert expired_rows(processes) == 0
        processes.sql("TRUNCATE readings")
        insert(processes, [timedelta(days=2), timedelta(0)], 2)
        assert processes.sql(SEEN) == [(1, 2)]


def test_a_reference_table_can_have_a_retention(tmp_path: Path) -> None:
    with Processes(tmp_path, HASTY) as processes:
        for _ in range(2):
            processes.add_worker()
        processes.sql(
            "CREATE TABLE readings (k BIGINT, at TIMESTAMP NOT NULL, v BIGINT) "
            "WITH (reference = true, retention = '36 hours', time_column = 'at')"
        )
        insert(processes, [timedelta(days=2), timedelta(days=1)], 1)
        assert processes.sql(SEEN) == [(1, 1)]
        processes.sql("OPTIMIZE readings")
        until(lambda: expired_rows(processes) == 2, "both copies lose the expired row")
        assert processes.sql(SEEN) == [(1, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("retention = '30 days'", "add time_column = 'column'"),
        ("time_column = 'at'", "add retention = '30 days'"),
        ("retention = 'soon', time_column = 'at'", "'soon' is not a time"),
        (
            "retention = '0s', time_column = 'at'",
            "rows are kept for a microsecond to a thousand years",
        ),
        (
            "retention = '2000 years', time_column = 'at'",
            "rows are kept for a microsecond to a thousand years",
        ),
        ("retention = '30 days', time_column = 'when'", "its columns are k, at"),
        (
            "retention = '30 days', time_column = 'k'",
            "a column of type Int64 has no times",
        ),
    ],
)
def test_a_retention_that_cannot_be_is_refused(connection: volary.Connection, options: str, message: str) -> None:
    with pytest.raises(volary.Error, match=message):
        connection.sql(f"CREATE TABLE never (k BIGINT, at TIMESTAMP) WITH (shard_key = 'k', {options})")
