"""The deadline of a statement."""

from __future__ import annotations

import time

from ._translate import TIMEOUT_PASSED
from .errors import DeadlineExceededError


class Deadline:
    """The common deadline of all calls of one statement. Each call may take the time that earlier calls have left."""

    def __init__(self, seconds: float | None) -> None:
        """Creates a deadline that is `seconds` from now. None means that there is no deadline."""
        self._at = None if seconds is None else time.monotonic() + float(seconds)

    def seconds_left(self) -> float | None:
        """Returns the timeout for a call that begins now. Raises `DeadlineExceededError` if the deadline has passed."""
        if self._at is None:
            return None
        left = self._at - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError(TIMEOUT_PASSED)
        return left
