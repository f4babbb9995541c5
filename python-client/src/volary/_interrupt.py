"""Ctrl-C while the driver waits for the server.

The driver blocks in Go, where Python's signal handlers do not run: a query that takes an hour would hold a notebook for
an hour. So the main thread, the only one that receives KeyboardInterrupt, hands blocking calls to a helper thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")

# A signal that arrives just before the main thread blocks, or in another thread, or on Windows, does not wake it.
_WAKE_SECONDS = 0.05


class Interruptible:
    """Runs blocking calls so that KeyboardInterrupt cancels them. Starts its one thread when it first needs it."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="volary")

    def run(self, call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
        """Returns or raises what `call` does; on KeyboardInterrupt runs `cancel`, and raises when `call` has ended."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        future = self._executor.submit(call)
        try:
            while not wait([future], timeout=_WAKE_SECONDS).done:
                pass
            return future.result()
        except KeyboardInterrupt:
            if not future.done():
                with suppress(Exception):
                    cancel()
                with suppress(Exception):
                    future.result()
            raise

    def close(self) -> None:
        """Ends the thread."""
        self._executor.shutdown(wait=False)
