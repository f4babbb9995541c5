"""Estimates what a query costs, from the plan of its EXPLAIN."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_SCAN = re.compile(
    r"ShardScanExec: table=(?P<table>.+?), columns=\[.*?\]"
    r"(?:, reference|, shards=(?P<shards>\d+)/(?P<of>\d+) workers=(?P<workers>\d+)/\d+)"
)
_SIZES = "SELECT schema_name, name, rows, bytes FROM system.tables"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True)
class _Scan:
    table: str
    shards: int
    of: int
    workers: int


def estimate(cursor: Any, statement: str) -> dict[str, Any]:
    """Returns which tables the query reads, and how many shards, rows and bytes of them. The query is not run.

    The rows of a table are assumed to be spread evenly over its shards. Which of them a scan leaves out by the minimum
    and maximum of segments is known only when it runs, so it may read less.
    """
    cursor.execute(f"EXPLAIN {statement}")
    scans = [scan for _, plan in cursor.fetchall() for scan in _scans(plan)]
    cursor.execute(_SIZES)
    sizes = {
        # Plans write the names of tables in `public` without it.
        name if schema == "public" else f"{schema}.{name}": (int(rows or 0), int(bytes_ or 0))
        for schema, name, rows, bytes_ in cursor.fetchall()
    }
    rows = size = 0.0
    for scan in scans:
        table_rows, table_bytes = sizes.get(scan.table, (0, 0))
        rows += table_rows * scan.shards / scan.of
        size += table_bytes * scan.shards / scan.of
    return {
        "tables": sorted({scan.table for scan in scans}),
        "shards": sum(scan.shards for scan in scans),
        "shards_of": sum(scan.of for scan in scans),
        "workers": max((scan.workers for scan in scans), default=0),
        "rows": round(rows),
        "bytes": round(size),
    }


def described(cost: dict[str, Any]) -> dict[str, str]:
    """Returns an estimate as it is shown."""
    return {
        "Tables": ", ".join(cost["tables"]) or "none",
        "Shards": f"{cost['shards']} of {cost['shards_of']}",
        "Workers": str(cost["workers"]),
        "Rows": f"up to {cost['rows']:,}",
        "Stored bytes": f"up to {_size(cost['bytes'])}",
    }


def _scans(plan: str) -> list[_Scan]:
    # A copy of a reference table is read as a whole, by one worker.
    return [
        _Scan(found["table"], int(found["shards"] or 1), int(found["of"] or 1), int(found["workers"] or 1))
        for found in _SCAN.finditer(plan)
    ]


def _size(number: float) -> str:
    for unit in _UNITS[:-1]:
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_UNITS[-1]}"
