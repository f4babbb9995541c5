"""The pauses between attempts to reach a gateway."""

from __future__ import annotations

import random
import time

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0


class Backoff:
    """Computes pauses that double from attempt to attempt, up to a limit for the time without a connection.

    Each pause is random, so that the clients of a gateway that has restarted do not all return at the same moment.
    """

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._longest = _FIRST_SECONDS
        self._spent_seconds = 0.0
        self._lost_at: float | None = None

    def note_connected(self) -> None:
        """Stops the clock. What was spent still counts: a connection that breaks at once each time is no success."""
        if self._lost_at is not None:
            self._spent_seconds += time.monotonic() - self._lost_at
            self._lost_at = None

    def reset(self) -> None:
        """Begins anew, because the gateway has answered a batch."""
        self._longest = _FIRST_SECONDS
        self._spent_seconds = 0.0
        self._lost_at = None

    def next_pause(self, at_least: float = 0.0) -> float | None:
        """Returns the seconds until the next attempt, or None if there is no time left for one.

        `at_least` is the pause that the gateway asks for. An attempt before its end would probably be refused.
        """
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
        left = self.limit_seconds - self._spent_seconds - (now - self._lost_at)
        if left <= 0 or at_least > left:
            return None
        pause = max(at_least, random.uniform(0, self._longest))
        self._longest = min(2 * self._longest, _LONGEST_SECONDS)
        return min(pause, left)
