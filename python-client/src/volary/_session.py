"""Sends the token and the cookies of a session with every call, and takes new ones from the gateway's answers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any

from pyarrow import flight

from ._answers import Headers

_AUTHORIZATION = "authorization"


class Session(flight.ClientMiddlewareFactory):
    """The bearer token and the cookies of a session.

    Any answer of the gateway may replace the token. The gateway renews a token before it expires, and gives a client
    without a token one that names its session. A token that many clients share names no session. In this case, a cookie
    names the session.
    """

    def __init__(self, token: str | None) -> None:
        self._lock = threading.Lock()
        self._authorization = None if token is None else f"Bearer {token}"
        self._cookies: SimpleCookie = SimpleCookie()
        self._answers: deque[Headers] = deque()

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        """Returns the middleware of one call. It sends the session's headers and collects the headers of the answer."""
        return _Call(self.headers, self._answers.append)

    def authorization(self) -> Headers:
        """Returns the header that identifies the user."""
        with self._lock:
            self._read_answers()
            return {} if self._authorization is None else {_AUTHORIZATION: [self._authorization]}

    def headers(self) -> Headers:
        """Returns the headers that a call sends."""
        headers = self.authorization()
        with self._lock:
            if self._cookies:
                headers["cookie"] = ["; ".join(f"{name}={cookie.value}" for name, cookie in self._cookies.items())]
        return headers

    def _read_answers(self) -> None:
        """Takes over the token and the cookies of the answers since the last call."""
        while self._answers:
            headers = self._answers.popleft()
            for value in headers.get(_AUTHORIZATION, ()):
                self._authorization = str(value)
            for value in headers.get("set-cookie", ()):
                # A malformed cookie names no session and is ignored.
                with suppress(CookieError):
                    self._cookies.load(str(value))


class SessionAtWorker(flight.ClientMiddlewareFactory):
    """Identifies the user to a worker. The answers of a worker change nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        """Returns the middleware of one call, which sends the header that identifies the user."""
        return _Call(self._session.authorization, _nothing.append)


_nothing: deque[Headers] = deque(maxlen=0)


class _Call(flight.ClientMiddleware):
    def __init__(self, sent: Callable[[], Headers], received: Callable[[Headers], None]) -> None:
        super().__init__()
        self._sent = sent
        # This must not be a Python function: a KeyboardInterrupt in a function that C++ calls is lost.
        self.received_headers = received  # type: ignore[method-assign,assignment]

    def sending_headers(self) -> Headers:
        return self._sent()
