"""A connection to a gateway, which runs statements."""

from __future__ import annotations

import base64
import threading
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyarrow import flight

from ._channel import Channel
from ._deadline import Deadline
from ._exchange import Exchange, Note
from ._flight_sql import IngestMode, get_sql_info, statement_ingest
from ._ingest import IngestData, to_reader
from ._interrupt import Interruptible
from ._names import quoted
from ._parameters import Parameters, to_batches
from ._parts import PartStream
from ._plan import Plan
from ._progress import QueryBar
from ._result import Result
from ._session import Session, SessionAtWorker
from ._stream import BatchStream, Stream
from ._target import Target
from .errors import Error

# The id of the server's version in GetSqlInfo.
_SERVER_VERSION = 1
# Timeout for a gateway that accepts the connection but does not answer, in seconds.
_CONNECT_SECONDS = 60.0


class Connection:
    """A session on a gateway. `volary.connect` creates it.

    Several results may be open at the same time, and several threads may use one connection. All statements share one
    network connection.
    """

    def __init__(self, target: Target) -> None:
        self.uri = target.uri
        self._target = target
        self._interruptible = Interruptible()
        self._lock = threading.Lock()
        # `_waiting` holds the calls that a thread waits for. `_open` holds the streams whose rows may still be read.
        self._waiting: set[Exchange] = set()
        self._open: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._workers: dict[str, Channel] = {}
        self._closed = False
        self._session = Session(target.token)
        self._gateway = Channel(target.uri, target, self._session)
        # gRPC connects lazily. Asking for the version now makes a wrong address an error of connect().
        try:
            if (username := target.username) is not None:
                self._interruptible.run(lambda: self._gateway.log_in(username, target.password or ""), None)
            self._server_version = self._ask_version()
        except BaseException:
            self.close()
            raise

    @property
    def server_version(self) -> str:
        """The version of the gateway."""
        return self._server_version

    def sql(
        self,
        query: str,
        parameters: Parameters | None = None,
        *,
        timeout: float | None = None,
        direct: bool = False,
        threads: int | None = None,
        progress: bool = False,
    ) -> Result:
        """Runs one statement.

        `parameters` are the values for the `?` of the statement, in order. They are a list or tuple, or Arrow data with
        one row. For INSERT … VALUES, Arrow data may have any number of rows, which a single write inserts. `timeout`,
        in seconds, replaces the timeout of the connection. It limits the whole statement, including the time for
        reading its rows.

        A statement without rows has finished when this method returns. A query runs while its result is read.

        With `direct`, the rows come directly from the workers where that is possible, in any order. `threads` is the
        number of threads that read from the workers at the same time. This machine must be able to reach the workers.
        Results that cannot be read from the workers come from the gateway. With `progress`, a bar shows the progress of
        the query. It is drawn by tqdm, in a terminal or in a notebook.
        """
        deadline = self._deadline(timeout)
        batches = to_batches(parameters) if parameters is not None else []
        headers = {}
        if direct:
            headers["volary-direct-results"] = "on"
        bar = QueryBar() if progress else None
        if bar is not None:
            headers["volary-progress"] = "on"
        try:
            exchange, begin, schema = self._begin(query.encode(), batches, deadline=deadline, headers=headers)
            return self._result(exchange, begin, schema, bar, threads, deadline)
        except BaseException:
            if bar is not None:
                bar.close()
            raise

    def call(self, query: str, *arguments: Any, **named: Any) -> Result:
        """Calls a saved query (CREATE QUERY), with arguments by position and by name."""
        places = ["?"] * len(arguments) + [f"{quoted(name)} => ?" for name in named]
        return self.sql(f"CALL {quoted(query)}({', '.join(places)})", [*arguments, *named.values()])

    def read_table(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> pa.Table:
        """Returns a whole table, or the given columns of it. All workers send their rows at the same time, so the rows
        come in any order.

        `table` is the exact name of a table in the schema public, without quotes. To read a table that does not fit
        into memory, read it batch by batch with `sql(…, direct=True).batches()`.
        """
        wanted = "*" if columns is None else ", ".join(map(quoted, columns))
        query = f"SELECT {wanted} FROM {quoted(table)}"
        return self.sql(query, direct=True, threads=threads, progress=progress).to_arrow()

    def explain(self, query: str, parameters: Parameters | None = None, *, analyze: bool = False) -> Plan:
        """Returns the plan of a query. With `analyze`, the query is run, and the plan shows what each operator and each
        worker did.
        """
        rows = self.sql(f"EXPLAIN {'ANALYZE ' if analyze else ''}{query}", parameters).rows()
        return Plan({str(kind): str(text) for kind, text in rows})

    def ingest(
        self,
        table: str,
        data: IngestData,
        *,
        mode: IngestMode = "create_append",
        shard_key: str | None = None,
        shards: int | None = None,
        sort_key: str | Sequence[str] | None = None,
        reference: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Writes rows into a table, either all of them or none, and returns the number of rows.

        `data` is Arrow data, a pandas or polars DataFrame, the path of a Parquet file or directory, or several such
        paths. Columns are matched by name. No value is changed: for example, 1.5 is refused for a BIGINT column.
        `table` is the exact name of a table in the schema public, without quotes. `shard_key`, `shards`, `sort_key` and
        `reference` are the options of CREATE TABLE … WITH. They are used if the table is created. A table without a
        shard key keeps its rows in any shard.
        """
        deadline = self._deadline(timeout)
        columns = [sort_key] if isinstance(sort_key, str) else sort_key
        layout = {
            "shard_key": shard_key,
            "shards": None if shards is None else str(shards),
            "sort_key": None if columns is None else ", ".join(columns),
            "reference": "true" if reference else None,
        }
        given = {name: value for name, value in layout.items() if value is not None}
        command = statement_ingest(table, mode, given)
        rows = to_reader(data)
        exchange, begin, _ = self._begin(command, rows, rows.schema, deadline=deadline)
        self._end(exchange)
        return int(begin["rows_affected"])

    def tables(self) -> list[str]:
        """Returns the names of the tables and views, sorted. `information_schema.tables` has more information about
        them.
        """
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name"
        return [str(name) for (name,) in self.sql(query).rows()]

    def close(self) -> None:
        """Ends all statements, open results and the session. May be called more than once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting, streams = list(self._waiting), list(self._open)
            channels = [*self._workers.values(), self._gateway]
        for exchange in waiting:
            exchange.cancel()
        for stream in streams:
            stream.close()
        self._gateway.end_session()
        self._interruptible.close()
        for channel in channels:
            channel.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<volary.Connection to {self.uri}{' (closed)' if self._closed else ''}>"

    def _ask_version(self) -> str:
        timeout = self._target.timeout or _CONNECT_SECONDS
        exchange = self._gateway.exchange(get_sql_info(_SERVER_VERSION), timeout=timeout)
        try:
            exchange.send(())
            info = self._interruptible.run(exchange.read, exchange.cancel)
        finally:
            exchange.close()
        if not isinstance(info, pa.RecordBatch) or info.num_rows == 0:
            return "unknown"
        return str(info.column("value")[0].as_py())

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
    ) -> tuple[Exchange, Note, pa.Schema | None]:
        """Sends a statement with its rows. Waits for the first note, and for the columns of the result if rows follow.

        Until the call has ended or a stream has taken it over, `close` cancels it.
        """
        if self._closed:
            raise RuntimeError("the connection is closed")
        if schema is None:
            schema = next((batch.schema for batch in batches), pa.schema([]))
        exchange = self._gateway.exchange(command, timeout=deadline.seconds_left(), headers=headers)
        try:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the connection is closed")
                self._waiting.add(exchange)
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
            return self._gateway
        if self._target.is_encrypted and not uri.startswith("grpc+tls:"):
            raise ValueError(f"{uri} is not encrypted, but the connection to the gateway is")
        with self._lock:
            if self._closed:
                raise RuntimeError("the connection is closed")
            if uri not in self._workers:
                self._workers[uri] = Channel(uri, self._target, SessionAtWorker(self._session))
            return self._workers[uri]
