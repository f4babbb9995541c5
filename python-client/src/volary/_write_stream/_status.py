"""Asks a gateway what it knows of a batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..errors import InternalError

BatchOutcome: TypeAlias = Literal["committed", "refused", "unknown"]

STATUS_ACTION = "volary.batch_status"


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """What a gateway knows of a producer and of one of its batches."""

    last_sequence: int
    """The last batch of the producer that is committed, or that was refused and left out. 0 if nothing is known of the
    producer.
    """
    sequence: int
    """The number of the batch in question."""
    outcome: BatchOutcome
    """"committed" if its rows are in the table. "refused" if they are not, and never will be. "unknown" if they are
    not, but the batch may still be under way.
    """
    rows: int | None
    """Number of rows of the batch, if it is one of the last 16 of its producer."""


def status_question(table: str, producer: str, sequence: int | None) -> bytes:
    """Encodes the question. `table` is the name of the table as SQL writes it."""
    question: dict[str, object] = {"table": table, "producer": producer}
    if sequence is not None:
        question["sequence"] = sequence
    return json.dumps(question).encode()


def parse_status(answer: bytes) -> BatchStatus:
    """Parses the answer. Raises `InternalError` if it is none."""
    try:
        status = json.loads(answer)
        outcome: BatchOutcome = status["status"]
        rows = status.get("rows")
        return BatchStatus(
            int(status["last_sequence"]), int(status["sequence"]), outcome, None if rows is None else int(rows)
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InternalError(f"the gateway's status of a batch, {answer!r}, cannot be read") from None
