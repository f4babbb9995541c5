"""What a query took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Statistics:
    """What a statement took, as the gateway counted it. It does not count rows that came from the workers directly."""

    query_id: str
    """By what logs, errors and `system.query_log` name it."""
    outcome: str
    """`finished`, `failed`, `cancelled` …, as `system.query_log` says."""
    planning_us: int
    """Time of planning, in microseconds."""
    queued_us: int
    """Time in which it waited for a place, in microseconds."""
    running_us: int
    """Time from its start to its last row, in microseconds."""
    rows: int
    """Rows that it gave."""
    sent_bytes: int
    """Bytes of these rows, as they were sent."""
    workers: int
    """Workers that were asked."""
    shards: int
    """Shards that were read."""
    segments: int
    """Segments that were open."""
    scanned_rows: int
    """Rows that the workers read."""
    scanned_bytes: int
    """Bytes that the workers read from disk."""


class StatementLog:
    """What a gateway has noted of one statement, which it finds by the statement's tag."""

    def __init__(self, tag: str, ask: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]) -> None:
        self._tag = tag
        self._ask = ask
        self._query_id: str | None = None

    def query_id(self) -> str | None:
        """By what logs and errors name it; None if it is not noted any more."""
        if self._query_id is None:
            tagged = "SELECT query_id, started FROM system.{} WHERE query_tag = ?"
            both = f"{tagged.format('queries')} UNION ALL {tagged.format('query_log')}"
            rows = self._ask(f"SELECT query_id FROM ({both}) ORDER BY started DESC LIMIT 1", [self._tag, self._tag])
            self._query_id = str(rows[0][0]) if rows else None
        return self._query_id

    def statistics(self) -> Statistics | None:
        """What it took; None as long as it runs, and if it is not noted any more."""
        columns = ", ".join(field.name for field in fields(Statistics))
        query = f"SELECT {columns} FROM system.query_log WHERE query_id = ? ORDER BY started DESC LIMIT 1"
        query_id = self.query_id()
        rows = [] if query_id is None else self._ask(query, [query_id])
        return Statistics(*rows[0]) if rows else None
