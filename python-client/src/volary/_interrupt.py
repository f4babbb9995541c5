"""Ctrl-C while pyarrow waits for the server.

pyarrow blocks in C++, where Python's signal handlers do not run: a query that takes an hour would hold a notebook for
an hour. So the main thread, the only one that receives KeyboardInterrupt, is woken by another one (`_wakeup`). Where
the program has handlers of its own, which may not want the call to end, it hands blocking calls to a helper thread, and
waits in Python.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ._wakeup import OnCtrlC, on_ctrl_c, wakeup
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


class _Job(Generic[_T]):
    """A call that another thread makes. A `Future` does as much, and takes longer, twice for each statement."""

    def __init__(self, call: Callable[[], _T], thread: threading.Thread) -> None:
        self.has_ended = False
        self._call = call
        self.thread = thread
        self.wake = threading.Lock()
        self.wake.acquire()
        self.returned: _T
        self.error: BaseException | None = None

    def make(self) -> None:
        """Makes the call; on that other thread."""
        try:
            self.returned = self._call()
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self.wake.release()


def _result(job: _Job[_T]) -> _T:
    """Waits; handlers of signals run meanwhile. Raises what the call has raised, or `RuntimeError` after `close`."""
    # Whoever was interrupted here may have taken the lock.
    while not job.has_ended:
        job.wake.acquire(timeout=_WAKE_SECONDS)
        if not job.thread.is_alive() and not job.has_ended:
            raise RuntimeError("the connection is closed")
    error, job.error = job.error, None
    if error is None:
        return job.returned
    try:
        raise error
    finally:
        # It knows this frame.
        del error


def _make_all(jobs: queue.SimpleQueue[Any]) -> None:
    while (job := jobs.get()) is not None:
        job.make()
        # What was returned is not to be held until the next job comes.
        del job


class Interruptible:
    """Runs blocking calls so that KeyboardInterrupt cancels them. Starts its one thread when it first needs it."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # The thread knows the queue alone, so that one that is forgotten ends, too.
        self._end = weakref.finalize(self, self._jobs.put, None)

    def run(self, call: Callable[[], _T], cancel: Callable[[], None] | None) -> _T:
        """Returns or raises what `call` does; on KeyboardInterrupt runs `cancel`, and raises when `call` has ended.

        What cannot be cancelled is left alone. Raises `RuntimeError` after `close`.
        """
        if threading.current_thread() is not threading.main_thread():
            return call() if cancel is None else cancellable(call, cancel)
        if cancel is not None and (then := on_ctrl_c()) is not OnCtrlC.RUNS:
            return wakeup().cancels(call, cancel) if then is OnCtrlC.RAISES else cancellable(call, cancel)
        if self._thread is None:
            self._thread = threading.Thread(target=_make_all, args=(self._jobs,), name="volary", daemon=True)
            self._thread.start()
        job = _Job(call, self._thread)
        self._jobs.put(job)
        try:
            return _result(job)
        except KeyboardInterrupt:
            if cancel is not None and not job.has_ended:
                with suppress(Exception):
                    cancel()
                with suppress(Exception):
                    _result(job)
            raise

    def close(self) -> None:
        """Ends the thread."""
        self._end()
