"""A connection to a gateway, and the life of a statement on it."""

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

# GetSqlInfo's id.
_SERVER_VERSION = 1
# A gateway that has accepted the connection, and says nothing.
_CONNECT_SECONDS = 60.0


class Connection:
    """A session on a gateway; made by `volary.connect`.

    Several results may be open at once, and threads may share it: all statements go over one connection of the network.
    """

    def __init__(self, target: Target) -> None:
        self.uri = target.uri
        self._target = target
        self._interruptible = Interruptible()
        self._lock = threading.Lock()
        # Calls that somebody waits for, and streams of those whose rows somebody may read.
        self._waiting: set[Exchange] = set()
        self._open: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._workers: dict[str, Channel] = {}
        self._closed = False
        self._session = Session(target.token)
        self._gateway = Channel(target.uri, target, self._session)
        # gRPC connects lazily: ask now, so that a wrong address is an error of connect().
        try:
            if (username := target.username) is not None:
                self._interruptible.run(lambda: self._gateway.log_in(username, target.password or ""), None)
            self._server_version = self._ask_version()
        except BaseException:
            self.close()
            raise

    @property
    def server_version(self) -> str:
        """The version of the gateway that answered."""
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

        `parameters` are the values for its `?`, in order: a list or tuple, or Arrow data with one row (INSERT …
        VALUES: any number of rows, which are one write). `timeout`, in seconds, replaces that of the connection;
        it bounds the whole statement, the reading of its rows included.

        A statement without rows has run when this returns; a query runs while its result is read.

        With `direct`, the rows come from the workers themselves where that is possible, over so many `threads` at a
        time, in any order; this machine must reach the workers. Other results come from the gateway all the same. With
        `progress`, a bar shows how far the query is (tqdm draws it: in a terminal, or in a notebook).
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
        """A whole table, or these columns of it, from all workers at the same time, its rows in any order.

        `table` is the name as it is, in the schema public. What does not fit into memory is read batch by batch:
        `sql(…, direct=True).batches()`.
        """
        wanted = "*" if columns is None else ", ".join(map(quoted, columns))
        query = f"SELECT {wanted} FROM {quoted(table)}"
        return self.sql(query, direct=True, threads=threads, progress=progress).to_arrow()

    def explain(self, query: str, parameters: Parameters | None = None, *, analyze: bool = False) -> Plan:
        """How a query is run; with `analyze` it is run, and the plan says what each operator and the workers did."""
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
        """Writes rows into a table, all of them or none, and returns how many there were.

        `data` is Arrow data, a pandas or polars DataFrame, or the path of a Parquet file or directory, or several.
        Columns are found by name, and no value is changed: 1.5 does not go into a BIGINT. `table` is the name as it is,
        in the schema public. `shard_key`, `shards`, `sort_key` and `reference` are those of CREATE TABLE … WITH, for a
        table that is made; without a shard key its rows are in any shard.
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
        """The names of the tables and views, sorted. More about them: `information_schema.tables`."""
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name"
        return [str(name) for (name,) in self.sql(query).rows()]

    def close(self) -> None:
        """Ends all statements, open results and the session. May be called again."""
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
        """That of a statement which begins now."""
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
        """Sends a statement with its rows, and waits for the first note, and for the columns if rows follow.

        `close` cancels the call until it is ended, or a stream takes its place.
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
        """What a statement answers that has begun; it ends `exchange` if that does not go on."""
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
        """The last note of a statement whose rows do not follow, and ends the call.

        The statement is done, or planned: that nobody says any more what it took is no failure of it.
        """
        try:
            end = self._interruptible.run(exchange.read, exchange.cancel)
        except (Error, RuntimeError):
            return None
        finally:
            self._end(exchange)
        return end.get("statistics") if isinstance(end, dict) else None

    def _channel_to(self, uri: str | None) -> Channel:
        """The channel to the gateway, or to a worker. Raises `ValueError` if a token would go there unencrypted."""
        if uri is None:
            return self._gateway
        if self._target.is_encrypted and not uri.startswith("grpc+tls:"):
            raise ValueError(f"{uri} does not encrypt, and the gateway does")
        with self._lock:
            if self._closed:
                raise RuntimeError("the connection is closed")
            if uri not in self._workers:
                self._workers[uri] = Channel(uri, self._target, SessionAtWorker(self._session))
            return self._workers[uri]
