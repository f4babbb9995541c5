"""A thread that learns of Ctrl-C while the main thread is in C++.

Python's handlers of signals run in the main thread, between its instructions. When a signal comes, a byte is written to
a socket at once, of which a thread learns that waits there: it cancels the call, and the main thread comes back to its
handlers.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, TypeVar

_T = TypeVar("_T")

# Whose handlers end what a program does: a limit of time, a supervisor.
_NAMES = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGXCPU", "SIGUSR1", "SIGUSR2")
_SIGNALS = [signal.SIGINT, *(getattr(signal, name) for name in _NAMES if hasattr(signal, name))]

# Each statement asks twice for all of them: the public function makes enums of its answers, which takes many times as
# long.
_handler_of: Callable[[int], Any] = signal.getsignal
with suppress(ImportError, AttributeError):
    _handler_of = importlib.import_module("_signal").getsignal


class Wakeup:
    """Cancels calls of the main thread on SIGINT. There is one in a process; it starts its thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._has_cancelled = False
        self._others = -1
        self._told, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        threading.Thread(target=self._watch, name="volary-signals", daemon=True).start()

    def cancels(self, call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
        """Returns or raises what `call` does; `cancel` runs in another thread. For the main thread alone."""
        own = self._tells.fileno()
        others = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
        with self._lock:
            # It is still set if Ctrl-C came while it was being set back.
            self._others = others if others != own else self._others
            self._cancel = cancel
            self._has_cancelled = False
        try:
            return call()
        except BaseException as error:
            # A KeyboardInterrupt is lost if the signal's handler was run in a function that C++ has called.
            if self._has_cancelled and not isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
        finally:
            try:
                with self._lock:
                    self._cancel = None
            finally:
                signal.set_wakeup_fd(self._others, warn_on_full_buffer=False)

    def _watch(self) -> None:
        while signals := self._told.recv(64):
            with self._lock:
                cancel, others = self._cancel, self._others
                if cancel is not None and signal.SIGINT in signals:
                    self._has_cancelled = True
                    with suppress(Exception):
                        cancel()
            if others >= 0:
                # Whoever is woken by signals otherwise, such as an event loop, is to know them, too.
                with suppress(OSError):
                    os.write(others, signals)


_wakeup: Wakeup | None = None


def _forget() -> None:
    # Of the parent's threads, a forked process has none.
    global _wakeup
    _wakeup = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def wakeup() -> Wakeup:
    """The process's own. For the main thread alone."""
    global _wakeup
    if _wakeup is None:
        _wakeup = Wakeup()
    return _wakeup


class OnCtrlC(Enum):
    """What becomes of the main thread when it blocks in C++ and Ctrl-C is pressed."""

    NOTHING = auto()
    """It goes on, or the process ends: nothing of Python's runs."""
    RAISES = auto()
    """Python's own handler raises KeyboardInterrupt in it: somebody has to wake it."""
    RUNS = auto()
    """A handler of the program's runs in it, or another signal's may have to: it must not block."""


_known: tuple[tuple[Any, ...], OnCtrlC] = ((), OnCtrlC.NOTHING)


def on_ctrl_c() -> OnCtrlC:
    """As the handlers of signals are now."""
    global _known
    handlers = tuple(map(_handler_of, _SIGNALS))
    known, then = _known
    if handlers != known:
        then = _with_handlers(*handlers)
        _known = (handlers, then)
    return then


def _with_handlers(of_sigint: Any, *others: Any) -> OnCtrlC:
    if any(map(callable, others)):
        return OnCtrlC.RUNS
    if of_sigint in (signal.SIG_IGN, signal.SIG_DFL):
        return OnCtrlC.NOTHING
    # The sockets of Windows are no files.
    is_pythons = of_sigint is signal.default_int_handler and sys.platform != "win32"
    return OnCtrlC.RAISES if is_pythons else OnCtrlC.RUNS
