"""Ctrl-C, as a program meets it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


def own_handler(number: int, frame: FrameType | None) -> None:
    """A program's own one that does what Python's does."""
    raise KeyboardInterrupt


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """With a handler of SIGINT, and none of other signals.

    A process that a shell has started in the background ignores SIGINT, and what limits a test's time handles SIGALRM.
    """
    before = signal.signal(signal.SIGINT, handler)
    limit = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGALRM, limit)


@contextmanager
def pressed_when(event: threading.Event) -> Iterator[None]:
    """Somebody presses Ctrl-C when the event is set."""

    def press() -> None:
        assert event.wait(timeout=10)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        yield
    finally:
        presser.join()
