"""Calls a function at a time that can be brought forward."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

_NAME = "volary-lookup-deadlines"
# A lock takes no longer timeout than a few centuries.
LONGEST_WAIT_SECONDS = 3600.0


class Alarm:
    """Calls a function in a thread of its own, which starts when the alarm is set for the first time. The thread
    usually sleeps for as long as the timeout of a lookup, however many batches are sent meanwhile.

    The lock is that of what is watched. It must be held for each call of a method, and is held while the function runs.
    """

    def __init__(self, lock: threading.RLock, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._due = math.inf
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition(lock)

    def set(self, due: float) -> None:
        """Lets the alarm ring at this time of the monotonic clock, or earlier."""
        if due >= self._due or self._is_stopped:
            return
        # A KeyboardInterrupt may come between any two calls. The time is set last, so that the next call tries again.
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
            thread.start()
            self._thread = thread
        self._changed.notify_all()
        self._due = due

    def stop(self) -> None:
        """Ends the thread. The alarm does not ring again."""
        self._is_stopped = True
        self._changed.notify_all()

    def _run(self) -> None:
        with self._changed:
            while not self._is_stopped:
                left = self._due - time.monotonic()
                if left > 0:
                    self._changed.wait(min(left, LONGEST_WAIT_SECONDS) if self._due < math.inf else None)
                else:
                    self._due = math.inf
                    self._ring()
