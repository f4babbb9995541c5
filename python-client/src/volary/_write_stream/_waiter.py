"""A wait that has a deadline, and that Ctrl-C or another thread may end."""

from __future__ import annotations

import threading
import time

from ..errors import CancelledError

# Interval at which a waiting thread looks for signals. A signal does not wake the main thread if it arrives in another
# thread, or on Windows.
_WAKE_SECONDS = 0.05


class Waiter:
    """One call of the program that waits for a stream."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._is_cancelled = False

    @property
    def is_late(self) -> bool:
        """Says whether the deadline has passed."""
        return time.monotonic() >= self._deadline

    def cancel(self) -> None:
        """Lets the waiting thread raise `CancelledError`. Another thread calls this."""
        self._is_cancelled = True

    def wait(self, condition: threading.Condition) -> None:
        """Waits for the condition, but not for long. The caller must check in a loop what it waits for, and whether the
        waiter is late. Raises `CancelledError` after `cancel`.
        """
        if self._is_cancelled:
            raise CancelledError("the task was cancelled")
        condition.wait(min(_WAKE_SECONDS, max(0.0, self._deadline - time.monotonic())))
