"""Helpers that press Ctrl-C in tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from processes import PATIENCE_SECONDS

Handler = Callable[[int, FrameType | None], Any]


def own_handler(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, as Python's own handler does. The client takes it for a handler of the program."""
    raise KeyboardInterrupt


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Sets a handler for SIGINT, and no handler for SIGALRM.

    A process that a shell has started in the background ignores SIGINT. The plugin that limits a test's time handles
    SIGALRM.
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
    """Presses Ctrl-C when the event is set."""

    def press() -> None:
        assert event.wait(timeout=PATIENCE_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        yield
    finally:
        presser.join()
