"""A session on a gateway: runs statements in calls of its own, and ends them."""

from __future__ import annotations

import base64
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyarrow import flight

from ._channel import Channel, Sharing
from ._deadline import Deadline
from ._exchange import Exchange, Note
from ._flight_sql import get_sql_info
from ._interrupt import Interruptible
from ._names import quoted_table
from ._parts import PartStream
from ._progress import QueryBar
from ._result import Result
from ._session import Session, SessionAtWorker
from ._stream import BatchStream, Stream
from ._target import Target
from .errors import Error, InvalidArgumentError, UnavailableError, with_message

# Streams are imported when they are used: see `batch_status`.
if TYPE_CHECKING:
    from ._write_stream import BatchStatus

# The id of the server's version in GetSqlInfo.
_SERVER_VERSION = 1
# Timeout for a gateway that accepts the connection but does not answer, in seconds.
_CONNECT_SECONDS = 60.0
_LONGEST_BATCH_ID = 64


class Ends(Protocol):
    """Something that ends with the session."""

    def cancel(self) -> None:
        """Ends it at once. May be called more than once."""


OnStart = Callable[[Exchange], None]
"""Gets the call of a statement before the gateway has answered, so that another thread can cancel it."""


class Gateway:
    """A session on a gateway. `volary.Connection` and `volary.dbapi.Connection` run their statements in it.

    Several threads may use it. All statements share one network connection.
    """

    def __init__(self, target: Target) -> None:
        """Connects and logs in. Raises Volary's errors."""
        self.uri = target.uri
        self._target = target
        self._interruptible = Interruptible()
        self._lock = threading.Lock()
        # `_waiting` holds the calls that a thread waits for. `_open` holds the streams whose rows may still be read.
        self._waiting: set[Exchange] = set()
        self._open: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._owned: weakref.WeakSet[Ends] = weakref.WeakSet()
        self._workers: dict[str, Channel] = {}
        self._closed = False
        self._session = Session(target.token)
        self._channel = Channel(target.uri, target, self._session)
        # gRPC connects lazily. Asking for the version now makes a wrong address an error of connect().
        try:
            if (username := target.username) is not None:
                self._interruptible.run(lambda: self._channel.log_in(username, target.password or ""), None)
            self.server_version = self._ask_version()
        except BaseException as error:
            self.close()
            if isinstance(error, UnavailableError):
                raise with_message(error, f"no gateway answers at {target.uri}: {error.message}") from error
            raise

    @property
    def is_closed(self) -> bool:
        """Says whether the session was closed."""
        return self._closed

    @property
    def timeout(self) -> float | None:
        """The timeout of each statement, in seconds."""
        return self._target.timeout

    def run(
        self,
        query: str,
        batches: Iterable[pa.RecordBatch] = (),
        schema: pa.Schema | None = None,
        *,
        timeout: float | None = None,
        direct: bool = False,
        threads: int | None = None,
        progress: bool = False,
        batch_id: str | None = None,
        on_start: OnStart | None = None,
    ) -> Result:
        """Runs one statement. A statement without rows has finished when this method returns.

        `batches` are the rows of its parameters. If they can be iterated only once, `schema` must be given. The other
        arguments are those of `volary.Connection.sql`.
        """
        deadline = self._deadline(timeout)
        headers = _batch_header(batch_id)
        if direct:
            headers["volary-direct-results"] = "on"
        bar = QueryBar() if progress else None
        if bar is not None:
            headers["volary-progress"] = "on"
        try:
            exchange, begin, columns = self._begin(
                query.encode(), batches, schema, deadline=deadline, headers=headers, on_start=on_start
            )
            return self._result(exchange, begin, columns, bar, threads, deadline)
        except BaseException:
            if bar is not None:
                bar.close()
            raise

    def write(
        self,
        command: bytes,
        rows: pa.RecordBatchReader,
        *,
        timeout: float | None = None,
        batch_id: str | None = None,
        on_start: OnStart | None = None,
    ) -> int:
        """Sends rows to a command that writes them. Returns the number of rows."""
        deadline, headers = self._deadline(timeout), _batch_header(batch_id)
        exchange, begin, _ = self._begin(
            command, rows, rows.schema, deadline=deadline, headers=headers, on_start=on_start
        )
        self._end(exchange)
        return int(begin["rows_affected"])

    def metadata(self, command: bytes, *, timeout: float | None = None) -> pa.Table | None:
        """Returns the answer to a command that asks for metadata, or None if it has no rows."""
        self._check_open()
        exchange = self._channel.exchange(command, timeout=timeout)
        batches: list[pa.RecordBatch] = []
        try:
            exchange.send(())
            while isinstance(rows := self._interruptible.run(exchange.read, exchange.cancel), pa.RecordBatch):
                batches.append(rows)
        finally:
            exchange.close()
        return pa.Table.from_batches(batches) if any(batch.num_rows for batch in batches) else None

    def act(self, action: str, body: bytes) -> bytes:
        """Runs an action of the gateway, and returns its answer."""
        self._check_open()
        timeout = self._target.timeout or _CONNECT_SECONDS
        return self._interruptible.run(lambda: self._channel.act(action, body, timeout=timeout), None)

    def batch_status(self, table: str, producer: str, sequence: int | None, *, schema: str | None) -> BatchStatus:
        """Asks what the gateway knows of a batch. The arguments are those of `volary.Connection.batch_status`."""
        # Importing streams takes a fifth as long as importing all else.
        from ._write_stream import STATUS_ACTION, parse_status, status_question

        question = status_question(quoted_table(table, schema), producer, sequence)
        return parse_status(self.act(STATUS_ACTION, question))

    def new_channel(self) -> Channel:
        """Returns a channel of the session that has its own network connection. The caller closes it."""
        self._check_open()
        return Channel(self._target.uri, self._target, self._session, Sharing.OWN)

    @contextmanager
    def exchange(self, command: bytes, *, timeout: float | None) -> Iterator[Exchange]:
        """Starts a call, and ends it at the end of the block. `close` cancels it."""
        self._check_open()
        exchange = self._channel.exchange(command, timeout=timeout)
        try:
            with self._lock:
                self._check_open()
                self._waiting.add(exchange)
            yield exchange
        finally:
            self._end(exchange)

    def interruptibly(self, call: Callable[[], None], cancel: Callable[[], None]) -> None:
        """Runs a call that blocks in C++. Ctrl-C runs `cancel`, which ends it."""
        self._interruptible.run(call, cancel)

    def log_in_again(self) -> bool:
        """Logs in with the password of the target, and says whether it has one. The session gets a new token."""
        if self._target.username is None:
            return False
        self._channel.log_in(self._target.username, self._target.password or "")
        return True

    def end_with_session(self, ends: Ends) -> None:
        """Lets `close` end something that uses the session."""
        with self._lock:
            is_closed = self._closed
            if not is_closed:
                self._owned.add(ends)
        if is_closed:
            ends.cancel()
            raise RuntimeError("the connection is closed")

    def close(self) -> None:
        """Ends all statements, open results and the session. May be called more than once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting, streams, owned = list(self._waiting), list(self._open), list(self._owned)
            channels = [*self._workers.values(), self._channel]
        for exchange in waiting:
            exchange.cancel()
        for stream in streams:
            stream.close()
        for ends in owned:
            ends.cancel()
        self._channel.end_session()
        self._interruptible.close()
        for channel in channels:
            channel.close()

    def _ask_version(self) -> str:
        info = self.metadata(get_sql_info(_SERVER_VERSION), timeout=self._target.timeout or _CONNECT_SECONDS)
        return "unknown" if info is None else str(info.column("value")[0].as_py())

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the connection is closed")

    def _deadline(self, timeout: float | None) -> Deadline:
        """Returns the deadline of a statement that begins now."""
        return Deadline(self._target.timeout if timeout is None else timeout)

    def _begin(
        self,
        command: bytes,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema | None = None,
        *,
        deadline: Deadline,
        headers: dict[str, str] | None = None,
        on_start: OnStart | None = None,
    ) -> tuple[Exchange, Note, pa.Schema | None]:
        """Sends a statement with its rows. Waits for the first note, and for the columns of the result if rows follow.

        Until the call has ended or a stream has taken it over, `close` cancels it.
        """
        self._check_open()
        if schema is None:
            schema = next((batch.schema for batch in batches), pa.schema([]))
        exchange = self._channel.exchange(command, timeout=deadline.seconds_left(), headers=headers)
        try:
            with self._lock:
                self._check_open()
                self._waiting.add(exchange)
            if on_start is not None:
                on_start(exchange)
            return exchange, *self._interruptible.run(lambda: exchange.begin(batches, schema), exchange.cancel)
        except BaseException:
            self._end(exchange)
            raise

    def _end(self, exchange: Exchange) -> None:
        with self._lock:
            self._waiting.discard(exchange)
        exchange.close()

    def _result(
        self,
        exchange: Exchange,
        begin: Note,
        schema: pa.Schema | None,
        bar: QueryBar | None,
        threads: int | None,
        deadline: Deadline,
    ) -> Result:
        """Returns the result of a statement that has begun. Ends `exchange` if no rows come over it."""
        query_id = str(begin["query_id"])
        stream: Stream
        if schema is not None:
            stream = BatchStream(exchange, schema, self._interruptible, bar)
        else:
            statistics = self._read_statistics(exchange)
            if bar is not None:
                bar.close()
            if "rows_affected" in begin:
                return Result(None, query_id=query_id, rows_affected=int(begin["rows_affected"]), statistics=statistics)
            stream = PartStream(
                flight.FlightInfo.deserialize(base64.b64decode(begin["flight_info"])),
                self._channel_to,
                threads=threads,
                deadline=deadline,
                statistics=statistics,
                progress=bar is not None,
            )
        with self._lock:
            self._waiting.discard(exchange)
            is_closed = self._closed
            if not is_closed:
                self._open.add(stream)
        if is_closed:
            stream.close()
            raise RuntimeError("the connection is closed")
        return Result(stream, query_id=query_id)

    def _read_statistics(self, exchange: Exchange) -> Note | None:
        """Returns the statistics of a statement whose rows do not come over this call, and ends the call.

        The statement has already been run or planned, so it has not failed if its statistics are missing.
        """
        try:
            end = self._interruptible.run(exchange.read, exchange.cancel)
        except (Error, RuntimeError):
            return None
        finally:
            self._end(exchange)
        return end.get("statistics") if isinstance(end, dict) else None

    def _channel_to(self, uri: str | None) -> Channel:
        """Returns the channel to a worker, or to the gateway if `uri` is None.

        Raises `ValueError` if the channel would send credentials without encryption although the gateway encrypts.
        """
        if uri is None:
            return self._channel
        if self._target.is_encrypted and not uri.startswith("grpc+tls:"):
            raise ValueError(f"{uri} is not encrypted, but the connection to the gateway is")
        with self._lock:
            self._check_open()
            if uri not in self._workers:
                self._workers[uri] = Channel(uri, self._target, SessionAtWorker(self._session))
            return self._workers[uri]


def _batch_header(batch_id: str | None) -> dict[str, str]:
    """Returns the header that names a write. Raises `InvalidArgumentError` for an id that no header can have."""
    if batch_id is None:
        return {}
    # A program without type checks easily passes a `uuid.UUID`.
    is_text = isinstance(batch_id, str)
    if not (is_text and batch_id.isascii() and batch_id.isprintable() and 1 <= len(batch_id) <= _LONGEST_BATCH_ID):
        raise InvalidArgumentError(
            f"batch_id must be 1 to {_LONGEST_BATCH_ID} printable ASCII characters, such as a UUID, not {batch_id!r}"
        )
    return {"volary-batch-id": batch_id}
