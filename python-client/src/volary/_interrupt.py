"""Handles Ctrl-C while pyarrow waits for the server.

pyarrow blocks in C++, where Python's signal handlers do not run. Without help, a query that takes an hour would block a
notebook for an hour. Only the main thread receives KeyboardInterrupt, so another thread wakes it (`_wakeup`). If the
program has signal handlers of its own, they must run, and may let the call go on. The main thread then gives blocking
calls to a helper thread and waits in Python.
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

# Interval at which the main thread looks for signals. A signal does not wake the main thread if it arrives just before
# that thread blocks, if it arrives in another thread, or on Windows.
_WAKE_SECONDS = 0.05


class Cancellation:
    """Lets one thread cancel the call that another thread waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._is_cancelled = False

    def run(self, work: Callable[[], _T]) -> _T:
        """Runs `work`. Its blocking calls can be cancelled while it runs."""
        _of_thread.cancellation = self
        try:
            return work()
        finally:
            _of_thread.cancellation = None

    def cancel(self) -> None:
        """Cancels the call that the thread waits for. Its later calls within `run` raise `CancelledError`."""
        with self._lock:
            self._is_cancelled = True
            cancel = self._cancel
        if cancel is not None:
            with suppress(Exception):
                cancel()

    def run_call(self, call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
        """Runs `call`, which `cancel` can end. Returns the result of `call`, or raises its error."""
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
    """Runs a call that the `Cancellation` of this thread can end. Does nothing about KeyboardInterrupt."""
    cancellation = _of_thread.cancellation
    return call() if cancellation is None else cancellation.run_call(call, cancel)


class _Job(Generic[_T]):
    """A call that another thread makes.

    A `Future` could do the same, but it takes longer, and each statement makes two calls.
    """

    def __init__(self, call: Callable[[], _T], thread: threading.Thread) -> None:
        self.has_ended = False
        self._call = call
        self.thread = thread
        self.wake = threading.Lock()
        self.wake.acquire()
        self.returned: _T
        self.error: BaseException | None = None

    def make(self) -> None:
        """Makes the call. The helper thread runs this method."""
        try:
            self.returned = self._call()
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self.wake.release()


def _result(job: _Job[_T]) -> _T:
    """Waits for the job, while signal handlers can run. Raises the error of the call, or RuntimeError after `close`."""
    # If this thread was interrupted here before, it may already hold the lock, so the loop checks `has_ended`.
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
        # The error refers to this frame, which would be a reference cycle.
        del error


def _make_all(jobs: queue.SimpleQueue[Any]) -> None:
    while (job := jobs.get()) is not None:
        job.make()
        # The returned value must not be held until the next job comes.
        del job


class Interruptible:
    """Runs blocking calls so that KeyboardInterrupt cancels them. Starts its helper thread when it first needs it."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # The thread holds a reference to the queue only. It therefore also ends if this object is dropped without
        # `close`.
        self._end = weakref.finalize(self, self._jobs.put, None)

    def run(self, call: Callable[[], _T], cancel: Callable[[], None] | None) -> _T:
        """Returns the result of `call`, or raises its error. On KeyboardInterrupt, it runs `cancel`, and raises when
        `call` has ended.

        Without `cancel`, an interrupted call goes on in the helper thread. Raises `RuntimeError` after `close`.
        """
        if threading.current_thread() is not threading.main_thread():
            return call() if cancel is None else cancellable(call, cancel)
        if cancel is not None and (then := on_ctrl_c()) is not OnCtrlC.RUNS:
            return wakeup().run(call, cancel) if then is OnCtrlC.RAISES else cancellable(call, cancel)
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
        """Ends the helper thread."""
        self._end()
