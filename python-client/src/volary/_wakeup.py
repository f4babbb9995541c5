"""A thread that notices Ctrl-C while the main thread runs in C++.

Python runs signal handlers in the main thread, between its instructions. But as soon as a signal arrives, Python writes
a byte to a socket. A thread that reads this socket cancels the call. The main thread then returns from C++ and runs the
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

# Signals whose handlers may stop a program's work, for example at a time limit or on behalf of a supervisor.
_NAMES = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGXCPU", "SIGUSR1", "SIGUSR2")
_SIGNALS = [signal.SIGINT, *(getattr(signal, name) for name in _NAMES if hasattr(signal, name))]

# Each statement asks twice for the handlers of all these signals. The public function converts its answers to enums,
# which takes many times as long.
_handler_of: Callable[[int], Any] = signal.getsignal
with suppress(ImportError, AttributeError):
    _handler_of = importlib.import_module("_signal").getsignal


class Wakeup:
    """Cancels calls of the main thread on SIGINT. A process has one instance, which starts its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self._has_cancelled = False
        self._previous_fd = -1
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        threading.Thread(target=self._watch, name="volary-signals", daemon=True).start()

    def run(self, call: Callable[[], _T], cancel: Callable[[], None]) -> _T:
        """Runs `call`, and runs `cancel` in another thread on SIGINT. Returns the result of `call`, or raises its
        error.

        Only the main thread may call this method.
        """
        own = self._sender.fileno()
        others = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
        with self._lock:
            # The descriptor is still our own if Ctrl-C kept an earlier call from restoring the previous one.
            self._previous_fd = others if others != own else self._previous_fd
            self._cancel = cancel
            self._has_cancelled = False
        try:
            return call()
        except BaseException as error:
            # A KeyboardInterrupt is lost if the signal handler runs in a function that C++ has called.
            if self._has_cancelled and not isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
        finally:
            try:
                with self._lock:
                    self._cancel = None
            finally:
                signal.set_wakeup_fd(self._previous_fd, warn_on_full_buffer=False)

    def _watch(self) -> None:
        while signals := self._receiver.recv(64):
            with self._lock:
                cancel, others = self._cancel, self._previous_fd
                if cancel is not None and signal.SIGINT in signals:
                    self._has_cancelled = True
                    with suppress(Exception):
                        cancel()
            if others >= 0:
                # Another component, such as an event loop, may also be woken by signals. The bytes are passed on to it.
                with suppress(OSError):
                    os.write(others, signals)


_wakeup: Wakeup | None = None


def _forget() -> None:
    # A forked process does not have the threads of its parent.
    global _wakeup
    _wakeup = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def wakeup() -> Wakeup:
    """Returns the one instance of the process. Only the main thread may call this function."""
    global _wakeup
    if _wakeup is None:
        _wakeup = Wakeup()
    return _wakeup


class OnCtrlC(Enum):
    """What happens to the main thread when Ctrl-C is pressed while it blocks in C++."""

    NOTHING = auto()
    """The main thread goes on, or the process ends. No Python code runs."""
    RAISES = auto()
    """Python's own handler raises KeyboardInterrupt in the main thread. Another thread must wake the main thread."""
    RUNS = auto()
    """A handler of the program may have to run in the main thread, for SIGINT or for another signal. It must not block
    in C++.
    """


_known: tuple[tuple[Any, ...], OnCtrlC] = ((), OnCtrlC.NOTHING)


def on_ctrl_c() -> OnCtrlC:
    """Returns what Ctrl-C does with the signal handlers that are set now."""
    global _known
    handlers = tuple(map(_handler_of, _SIGNALS))
    known, then = _known
    if handlers != known:
        then = _effect_of(*handlers)
        _known = (handlers, then)
    return then


def _effect_of(of_sigint: Any, *others: Any) -> OnCtrlC:
    if any(map(callable, others)):
        return OnCtrlC.RUNS
    if of_sigint in (signal.SIG_IGN, signal.SIG_DFL):
        return OnCtrlC.NOTHING
    # The wake-up byte needs a socket that is a file descriptor. Sockets on Windows are not.
    is_pythons = of_sigint is signal.default_int_handler and sys.platform != "win32"
    return OnCtrlC.RAISES if is_pythons else OnCtrlC.RUNS
