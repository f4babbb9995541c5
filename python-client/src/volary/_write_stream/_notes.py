"""The notes of a stream: JSON in the `app_metadata` of messages.

The client numbers its batches, and marks the messages of a batch that continue in the next message. The gateway first
says what it knows of the producer, and then answers each batch in order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .._exchange import Note
from ..errors import ERROR_CLASSES, Error, ErrorCode, InternalError


@dataclass(frozen=True, slots=True)
class Opened:
    """The first note of the gateway."""

    query_id: str
    last_sequence: int
    """The last batch of the producer that the gateway has answered, in any stream, or 0."""
    window_bytes: int | None
    """How much the gateway reads ahead of its answers, or None if it does not say."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch whose rows are in the table."""

    sequence: int
    rows: int
    is_duplicate: bool
    window_bytes: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A batch that was not written."""

    sequence: int
    error: Error
    window_bytes: int | None


def batch_note(sequence: int, *, is_last_message: bool) -> bytes:
    """Encodes the note of one message of a batch."""
    return b'{"sequence":%d}' % sequence if is_last_message else b'{"sequence":%d,"more":true}' % sequence


def parse_opened(note: Note) -> Opened:
    """Parses the first note. Raises `InternalError` for anything else."""
    try:
        return Opened(str(note["query_id"]), int(note["last_sequence"]), _window(note))
    except (KeyError, TypeError, ValueError):
        raise _unreadable(note) from None


def parse_answer(note: Note) -> Committed | Refused | None:
    """Parses the answer to a batch. Returns None for other notes, such as those of later releases."""
    if "outcome" not in note:
        return None
    try:
        sequence, outcome = int(note["sequence"]), note["outcome"]
        if outcome == "refused":
            error: dict[str, Any] = note["error"]
            kind = ERROR_CLASSES[ErrorCode(error["code"])]
            after_ms = error.get("retry_after_ms")
            refusal = kind(
                str(error["message"]),
                sqlstate=error.get("sqlstate"),
                retry_after=None if after_ms is None else int(after_ms) / 1000,
            )
            return Refused(sequence, refusal, _window(note))
        if outcome in ("committed", "duplicate"):
            return Committed(sequence, int(note["rows"]), outcome == "duplicate", _window(note))
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise _unreadable(note)


def _window(note: Note) -> int | None:
    size = note.get("window")
    return None if size is None else int(size)


def _unreadable(note: Note) -> InternalError:
    return InternalError(
        f"the gateway's note {json.dumps(note)} does not belong to a stream; does the gateway have another version?"
    )
