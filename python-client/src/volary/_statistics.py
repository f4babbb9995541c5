"""Statistics of a statement."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from ._exchange import Note


@dataclass(frozen=True)
class Statistics:
    """What a statement took, as counted by the gateway. Rows that came directly from the workers are not counted."""

    planning_us: int
    """Time of planning, in microseconds."""
    queued_us: int
    """Time that the statement waited in the queue, in microseconds."""
    running_us: int
    """Time from the statement's start to its last row, in microseconds."""
    rows: int
    """Number of rows that the statement returned or wrote."""
    sent_bytes: int
    """Number of bytes of the rows, as they were sent."""
    workers: int
    """Number of workers that took part. A worker counts once for each gather of the plan."""
    shards: int
    """Number of shards that were read. A shard counts once for each scan of the plan."""
    segments: int
    """Number of segments of these shards, including those that the query could skip."""
    scanned_rows: int
    """Number of rows that the scans of the workers produced."""
    scanned_bytes: int
    """Number of bytes that the scans of the workers read from storage."""
    parsing_us: int | None = None
    """Time of parsing the statement's text, in microseconds. 0 if its plan was found."""
    plan_found: bool | None = None
    """Whether the query used a plan that was made earlier (a generic plan). None if the statement is no query."""
    worker_queued_us: int | None = None
    """Time in which the workers' parts of the query waited for a place and a thread, in microseconds. This and the
    other times of workers are sums over the workers, and None if no worker took part.
    """
    worker_bind_us: int | None = None
    """Time in which workers decoded their part of the plan and opened what it reads, in microseconds."""
    worker_index_us: int | None = None
    """Time in which workers looked keys up in their indexes, in microseconds."""
    worker_read_us: int | None = None
    """Time in which scans read and decoded, or waited for storage, in microseconds."""
    worker_compute_us: int | None = None
    """Time in which the workers' other operators computed, in microseconds."""
    worker_encode_us: int | None = None
    """Time in which workers converted and encoded rows, in microseconds."""
    wire_us: int | None = None
    """Time in which the gateway waited for workers that had nothing to do for the query, in microseconds."""
    encode_us: int | None = None
    """Time in which the gateway converted and encoded rows for the client, in microseconds. None if the statement is
    no query.
    """
    client_wait_us: int | None = None
    """Time in which rows were ready and the client asked for none, in microseconds. None if the statement is no
    query.
    """

    @classmethod
    def of(cls, note: Note) -> Statistics:
        """Returns the statistics of a note. Unknown values, which a newer gateway may send, are ignored. Values that
        an older gateway does not send are 0 or None.
        """
        known = {field.name: (0 if field.default is MISSING else None) for field in fields(cls)}
        values: dict[str, Any] = {name: note.get(name, default) for name, default in known.items()}
        return cls(**values)
