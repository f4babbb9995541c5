"""Statistics of a statement."""

from __future__ import annotations

from dataclasses import dataclass, fields

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

    @classmethod
    def of(cls, note: Note) -> Statistics:
        """Returns the statistics of a note. Unknown values, which a newer gateway may send, are ignored."""
        return cls(**{field.name: int(note.get(field.name, 0)) for field in fields(cls)})
