"""Keys that were sent, and the rows for which the program waits."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future
from typing import Any, TypeAlias

import pyarrow as pa

from .._interrupt import cancellable
from .._translate import CANCELLED_HERE
from ..errors import CancelledError, DeadlineExceededError, Error, UnauthenticatedError
from ._answer import Answer
from ._batch import NOT_SENT

Send: TypeAlias = "Callable[[pa.Array[Any], float], tuple[Future[Answer], Callable[[], bool]]]"
"""Sends keys until a time of the monotonic clock. Returns the future of their answer, and what says whether their call
has ended.
"""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class PendingLookup:
    """The answer to a batch of keys that was sent. `volary.Lookup.submit` returns it."""

    def __init__(
        self,
        keys: pa.Array[Any],
        send: Send,
        log_in_again: Callable[[], bool],
        seconds: float,
        *,
        until: float = math.inf,
        lookup: object = None,
    ) -> None:
        """Sends the keys. They are sent again if the connection is lost, as long as `seconds` have not passed.

        This waits no longer than `until`, a time of the monotonic clock. `lookup` is what must not be closed before the
        keys are answered.
        """
        self._keys = keys
        self._send = send
        self._log_in_again = log_in_again
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        # A lookup to which nobody refers is closed.
        self._lookup = lookup
        self._future, self._has_call_ended = send(keys, min(self._deadline, until))

    def get(self, *, positions: str | None = None) -> pa.Table:
        """Waits for the rows: see `volary.Lookup.get`."""
        return self.answer().table(positions)

    def contains(self) -> pa.BooleanArray:
        """Waits, and returns whether each key has a row: see `volary.Lookup.contains`."""
        return self.answer().are_present()

    def answer(self, until: float = math.inf) -> Answer:
        """Waits for the answer. Sends the keys again if the connection was lost.

        `until` is a time of the monotonic clock. If it is earlier than the end of the timeout, `TimeoutError` is raised
        then, and another thread may go on waiting.
        """
        pause = _FIRST_PAUSE_SECONDS
        may_log_in = True
        while True:
            try:
                return cancellable(lambda: self._wait(until), self._give_up)
            except FutureCancelledError:
                raise CancelledError("the task was cancelled") from None
            except UnauthenticatedError:
                # The session's token may have expired since the last call was opened.
                if not may_log_in or not self._log_in_again():
                    raise
                may_log_in = False
            except Error as error:
                left = self._deadline - time.monotonic()
                wait = max(error.retry_after or 0.0, random.uniform(0, pause))
                if not self._may_repeat(error) or wait >= left:
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                _pause(wait, until)
            self._future, self._has_call_ended = self._send(self._keys, min(self._deadline, until))

    def _give_up(self) -> None:
        self._future.cancel()

    def _wait(self, until: float) -> Answer:
        left = min(self._deadline, until) - time.monotonic()
        try:
            return self._future.result(max(0.0, left))
        except TimeoutError:
            if until < self._deadline:
                raise
            self._future.cancel()
            raise DeadlineExceededError(
                f"the keys were not answered within {self._seconds:g} s, which is the timeout of the lookup"
            ) from None

    def _may_repeat(self, error: Error) -> bool:
        """Says whether the same keys may find their rows if they are sent again. Reading twice changes nothing."""
        if isinstance(error, DeadlineExceededError):
            # The gateway has just ended the call because nobody used it, or the thread that sent the keys had less
            # time. Otherwise the lookup itself took too long.
            may_repeat = self._has_call_ended() or error.message == NOT_SENT
            return may_repeat and time.monotonic() < self._deadline
        # Nobody has cancelled the call here, so something on its way has reset it.
        was_reset = isinstance(error, CancelledError) and error.message == CANCELLED_HERE
        return error.retryable or was_reset


def _pause(seconds: float, until: float) -> None:
    """Waits. Raises `TimeoutError` at `until`, a time of the monotonic clock."""
    given_up = threading.Event()
    left = until - time.monotonic()
    cancellable(lambda: given_up.wait(max(0.0, min(seconds, left))), given_up.set)
    if left < seconds:
        raise TimeoutError
