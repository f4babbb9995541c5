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

from .errors import CancelledError

_T = TypeVar("_T")

# A signal that arrives just before the main thread blocks, or in another thread, or on Windows, does not wake it.
_WAKE_SECONDS = 0.05


class Cancellation:
    """Lets one thread cancel the call that another one waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._is_cancelled = False

    def run(self, work: Callable[[], _T]) -> _T:
        """Does `work`, whose blocking calls can be cancelled meanwhile."""
        _of_thread.cancellation = self
        try:
            return work()
        finally:
            _of_thread.cancellation = None

    def cancel(self) -> None:
        """Cancels what is waited for, and what would be waited for next."""
        with self._lock:
            self._is_cancelled = True
            cancel = self._cancel
        if cancel is not None:
            with suppress(Exception):
                cancel()

    def waits(self, call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
        """Returns or raises what `call` does."""
        with self._lock:
            if self._is_cancelled:
                raise CancelledError("the task was cancelled")
            self._cancel = cancel
        try:
            return call()
        finally:
            with self._lock:
                self._cancel = None


class _OfThread(threading.local):
    cancellation: Cancellation | None = None


_of_thread = _OfThread()


def cancellable(call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
    """Does what waits in Python, where KeyboardInterrupt arrives by itself; this thread's `Cancellation` ends it."""
    cancellation = _of_thread.cancellation
    return call() if cancellation is None else cancellation.waits(call, cancel)


class Interruptible:
    """Runs blocking calls so that KeyboardInterrupt cancels them. Starts its one thread when it first needs it."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="volary")

    def run(self, call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
        """Returns or raises what `call` does; on KeyboardInterrupt runs `cancel`, and raises when `call` has ended."""
        if threading.current_thread() is not threading.main_thread():
            return cancellable(call, cancel)
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
