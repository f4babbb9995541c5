"""What names a session to the gateway with every call, and what the gateway's answers make of that."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias

from pyarrow import flight

Headers: TypeAlias = dict[str, list[str] | list[bytes]]

_AUTHORIZATION = "authorization"


class Session(flight.ClientMiddlewareFactory):
    """A bearer token, and cookies.

    Any answer may replace the token: before it expires, or to name the session of a client that has shown none. A token
    that many clients share names no session: then a cookie does.
    """

    def __init__(self, token: str | None) -> None:
        self._lock = threading.Lock()
        self._authorization = None if token is None else f"Bearer {token}"
        self._cookies: SimpleCookie = SimpleCookie()
        self._answers: deque[Headers] = deque()

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        """What a call sends and receives."""
        return _Call(self.sent, self._answers.append)

    def authorization(self) -> Headers:
        """The header that shows who this is."""
        with self._lock:
            self._read_answers()
            return {} if self._authorization is None else {_AUTHORIZATION: [self._authorization]}

    def sent(self) -> Headers:
        """The headers of a call."""
        headers = self.authorization()
        with self._lock:
            if self._cookies:
                headers["cookie"] = ["; ".join(f"{name}={cookie.value}" for name, cookie in self._cookies.items())]
        return headers

    def _read_answers(self) -> None:
        """What the headers of answers have said since the last call."""
        while self._answers:
            headers = self._answers.popleft()
            for value in headers.get(_AUTHORIZATION, ()):
                self._authorization = str(value)
            for value in headers.get("set-cookie", ()):
                # One that is no cookie names nothing.
                with suppress(CookieError):
                    self._cookies.load(str(value))


class SessionAtWorker(flight.ClientMiddlewareFactory):
    """Shows a worker who this is. What a worker answers changes nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        """What a call sends."""
        return _Call(self._session.authorization, _nothing.append)


_nothing: deque[Headers] = deque(maxlen=0)


class _Call(flight.ClientMiddleware):
    def __init__(self, sent: Callable[[], Headers], received: Callable[[Headers], None]) -> None:
        super().__init__()
        self._sent = sent
        # No Python function: a KeyboardInterrupt in one that is called by C++ is lost.
        self.received_headers = received  # type: ignore[method-assign,assignment]

    def sending_headers(self) -> Headers:
        return self._sent()
