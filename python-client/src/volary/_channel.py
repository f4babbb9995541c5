"""Makes calls over Arrow Flight to one server, which is a gateway or a worker."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto

from pyarrow import flight

from ._answers import Answer, Answers
from ._exchange import Exchange
from ._session import Session, SessionAtWorker
from ._target import Target
from ._traces import trace_headers
from ._translate import PYARROW_ERRORS, translate, translated

NO_TIMEOUT = -1.0
"""The timeout of a call that may take any time, even if the connection has a timeout."""

# Timeout of the login, in seconds. The `timeout` of `connect` is for statements, and the login is none.
_LOGIN_SECONDS = 60.0

_CLOSE_SECONDS = 5.0

# gRPC sends keep-alive pings while a call waits, so that the client notices if the server's machine has failed.
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
]
# By default, all channels of a process to one address share a network connection, and the pauses after it could not be
# made.
_OWN_CONNECTION: list[tuple[str, int | str]] = [*_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]


class Sharing(Enum):
    """Says whether channels to one address may share a network connection."""

    SHARED = auto()
    OWN = auto()
    """The channel has its own connection. It connects again as soon as it is asked to, and a call whose data the server
    does not read holds up no other call.
    """


class Channel:
    """A connection to one server. All threads may use it."""

    def __init__(
        self, uri: str, target: Target, session: Session | SessionAtWorker, sharing: Sharing = Sharing.SHARED
    ) -> None:
        self._headers = target.headers
        self._timeout = target.timeout
        self._answers = Answers()
        self._translated = translated(self._answers.take)
        with self._translated:
            self._client = flight.FlightClient(
                uri,
                tls_root_certs=target.tls_ca,
                cert_chain=target.tls_certificate,
                private_key=target.tls_key,
                middleware=[session, self._answers],
                generic_options=_OPTIONS if sharing is Sharing.SHARED else _OWN_CONNECTION,
            )

    def log_in(self, username: str, password: str) -> None:
        """Exchanges a password for a token. The session keeps the token."""
        options = self._options(_LOGIN_SECONDS, {})
        with self._translated:
            try:
                self._client.authenticate_basic_token(username, password, options)
            except PYARROW_ERRORS as error:
                if "Could not finish writing" not in str(error):
                    raise
                # pyarrow says no more than this if it cannot connect. Another call says why.
                list(self._client.list_actions(options))
                raise

    def exchange(
        self, command: bytes, *, timeout: float | None = None, headers: Mapping[str, str] | None = None
    ) -> Exchange:
        """Starts the call of a statement."""
        descriptor = flight.FlightDescriptor.for_command(command)
        with self._translated:
            writer, reader = self._client.do_exchange(descriptor, self._options(timeout, headers or {}))
        return Exchange(writer, reader, self._answers.take())

    def get(self, ticket: flight.Ticket, *, timeout: float | None = None) -> tuple[flight.FlightStreamReader, Answer]:
        """Returns a reader of the rows of a ticket, and the answer that says more if the reader fails.

        The reader raises pyarrow's own errors. This method raises pyarrow's `FlightUnavailableError` if the server
        cannot be reached, and Volary's errors for everything else.
        """
        try:
            reader = self._client.do_get(ticket, self._options(timeout, {}))
        except flight.FlightUnavailableError:
            raise
        except PYARROW_ERRORS as error:
            raise translate(error, self._answers.take()) from error
        return reader, self._answers.take()

    def act(self, action: str, body: bytes, *, timeout: float | None = None) -> bytes:
        """Runs an action, and returns the first part of its answer, or nothing."""
        with self._translated:
            results = self._client.do_action(flight.Action(action, body), self._options(timeout, {}))
            return next((result.body.to_pybytes() for result in results), b"")

    def end_session(self) -> None:
        """Tells the gateway that the session is no longer needed. A session that is not ended this way expires."""
        with suppress(*PYARROW_ERRORS):
            list(self._client.do_action(flight.Action("CloseSession", b""), self._options(_CLOSE_SECONDS, {})))

    def close(self) -> None:
        """Closes the connection."""
        with suppress(*PYARROW_ERRORS):
            self._client.close()

    def _options(self, timeout: float | None, headers: Mapping[str, str]) -> flight.FlightCallOptions:
        timeout = self._timeout if timeout is None else float(timeout)
        sent = [
            (name.encode(), value.encode()) for name, value in {**trace_headers(), **self._headers, **headers}.items()
        ]
        # pyarrow's type stubs wrongly say that headers are text.
        return flight.FlightCallOptions(timeout=timeout, headers=sent)  # type: ignore[arg-type]
