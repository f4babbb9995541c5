"""Collects the headers of answers. If a call fails, they have the SQLSTATE code and the time after which to try again,
which pyarrow's errors lack.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, TypeAlias

from pyarrow import flight

Headers: TypeAlias = dict[str, list[str] | list[bytes]]

_SQLSTATE = "volary-sqlstate"
_RETRY_AFTER_MS = "grpc-retry-pushback-ms"


class Answer:
    """The headers of the answer to one call, as far as they have arrived."""

    def __init__(self) -> None:
        self.headers: deque[Headers] = deque()

    def sqlstate(self) -> str | None:
        """Returns the SQLSTATE code of the error that the call has ended with, or None if the server named none."""
        return self._first(_SQLSTATE)

    def retry_after(self) -> float | None:
        """Returns how long the server asks to wait before the call is repeated, in seconds, or None if it does not
        say.
        """
        text = self._first(_RETRY_AFTER_MS)
        # A negative number, with which gRPC forbids another attempt, is no time to wait.
        return int(text) / 1000 if text is not None and text.isdecimal() else None

    def _first(self, name: str) -> str | None:
        return next((str(value) for headers in self.headers for value in headers.get(name, ())), None)


class Answers(flight.ClientMiddlewareFactory):
    """Collects the headers of each answer of a channel. pyarrow calls `start_call` in the thread of the call."""

    def __init__(self) -> None:
        super().__init__()
        self._of_thread = threading.local()

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        """Returns the middleware of one call, which collects the headers of its answer."""
        answer = self._of_thread.answer = Answer()
        return _Call(answer)

    def take(self) -> Answer:
        """Returns the answer to the last call of this thread, but only once. After that, returns an empty answer."""
        answer: Answer = getattr(self._of_thread, "answer", None) or Answer()
        self._of_thread.answer = None
        return answer


class _Call(flight.ClientMiddleware):
    def __init__(self, answer: Answer) -> None:
        super().__init__()
        # These must not be Python functions: a KeyboardInterrupt in a function that C++ calls is lost.
        self.sending_headers = dict  # type: ignore[method-assign]
        self.received_headers = answer.headers.append  # type: ignore[method-assign,assignment]
