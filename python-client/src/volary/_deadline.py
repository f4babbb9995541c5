"""When a statement must have ended."""

from __future__ import annotations

import time

from ._translate import TIMEOUT_PASSED
from .errors import DeadlineExceededError


class Deadline:
    """One for all calls of a statement: each may take what the ones before it have left."""

    def __init__(self, seconds: float | None) -> None:
        """So many seconds from now; None: never."""
        self._at = None if seconds is None else time.monotonic() + float(seconds)

    def seconds_left(self) -> float | None:
        """The timeout of a call that begins now. Raises `DeadlineExceededError` if it is too late for one."""
        if self._at is None:
            return None
        left = self._at - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError(TIMEOUT_PASSED)
        return left
