"""Looks up any number of keys at once, in one snapshot."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._exchange import Exchange
from .._interrupt import cancellable
from ..errors import CancelledError, DeadlineExceededError
from ._answer import Answer
from ._call import Call, Interruptibly

# Number of keys in a batch, and of batches that are sent before the first of them is answered.
_BATCH_KEYS = 65_536
_MOST_UNANSWERED = 4


def look_up_all(
    exchange: Exchange,
    keys: pa.Array[Any],
    positions: str | None,
    *,
    seconds: float | None,
    interruptibly: Interruptibly,
) -> pa.Table:
    """Returns the rows of all keys, in the order of the keys: see `volary.Connection.lookup`. Ends `exchange`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    call = Call(keys.type, interruptibly)
    call.use(exchange)
    sent: deque[tuple[int, Future[Answer]]] = deque()
    tables: list[pa.Table] = []

    def take() -> None:
        start, future = sent.popleft()
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            answer = cancellable(lambda: future.result(left), lambda: _give_up(future))
        except TimeoutError:
            raise DeadlineExceededError(f"the keys were not answered within {seconds:g} s, the timeout") from None
        except FutureCancelledError:
            raise CancelledError("the task was cancelled") from None
        table = answer.table(positions)
        if positions is not None and start > 0:
            table = table.set_column(0, positions, pc.add(table.column(0), start))
        tables.append(table)

    try:
        for start in range(0, max(len(keys), 1), _BATCH_KEYS):
            if len(sent) == _MOST_UNANSWERED:
                take()
            sent.append((start, call.send(keys.slice(start, _BATCH_KEYS))))
        call.finish()
        while sent:
            take()
    finally:
        call.cancel(CancelledError("the lookup has ended"))
        call.close()
    return pa.concat_tables(tables)


def _give_up(future: Future[Answer]) -> None:
    future.cancel()
