"""What a query took."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ._exchange import Note


@dataclass(frozen=True)
class Statistics:
    """What a statement took, as the gateway counted it. It does not count rows that came from the workers directly."""

    planning_us: int
    """Time of planning, in microseconds."""
    queued_us: int
    """Time in which it waited for a place, in microseconds."""
    running_us: int
    """Time from its start to its last row, in microseconds."""
    rows: int
    """Rows that it gave, or wrote."""
    sent_bytes: int
    """Bytes of the rows, as they were sent."""
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

    @classmethod
    def of(cls, note: Note) -> Statistics:
        """What the gateway says; a newer one may say more."""
        return cls(**{field.name: int(note.get(field.name, 0)) for field in fields(cls)})
