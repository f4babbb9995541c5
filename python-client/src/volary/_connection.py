"""A connection to a gateway, which runs statements."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._flight_sql import IngestMode, get_tables, lookup_request, statement_ingest
from ._gateway import Gateway
from ._ingest import IngestData, to_reader
from ._names import quoted, quoted_table
from ._parameters import Parameters, to_batches
from ._plan import Plan
from ._result import Result
from ._target import Target
from .errors import InvalidArgumentError

# Streams are imported when they are used, because that takes a fifth as long as importing all else.
if TYPE_CHECKING:
    from ._lookup import Keys, Lookup
    from ._write_stream import BatchStatus, ColumnTypes, WriteStream

_LONGEST_PRODUCER = 64
# The defaults of a stream, in seconds.
_STREAM_TIMEOUT = 300.0
_RETRY_TIMEOUT = 60.0
# The default of a lookup, in seconds.
_LOOKUP_TIMEOUT = 60.0
_LONGEST_JOIN_WINDOW = 10.0


class Connection:
    """A session on a gateway. `volary.connect` creates it.

    Several results may be open at the same time, and several threads may use one connection. All statements share one
    network connection.
    """

    def __init__(self, target: Target) -> None:
        self.uri = target.uri
        self._gateway = Gateway(target)

    @property
    def server_version(self) -> str:
        """The version of the gateway."""
        return self._gateway.server_version

    def sql(
        self,
        query: str,
        parameters: Parameters | None = None,
        *,
        timeout: float | None = None,
        direct: bool = False,
        threads: int | None = None,
        progress: bool = False,
        batch_id: str | None = None,
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

        `batch_id` names a statement that writes. A statement of the same name and content that was committed before, in
        the last 24 hours, is not run again, and returns the same number of rows. So a statement whose answer was lost
        can be repeated. Other content under the same name raises `AlreadyExistsError`.
        """
        batches = to_batches(parameters) if parameters is not None else []
        return self._gateway.run(
            query, batches, timeout=timeout, direct=direct, threads=threads, progress=progress, batch_id=batch_id
        )

    def call(self, query: str, *arguments: Any, **named: Any) -> Result:
        """Calls a saved query (CREATE QUERY), with arguments by position and by name."""
        places = ["?"] * len(arguments) + [f"{quoted(name)} => ?" for name in named]
        return self.sql(f"CALL {quoted(query)}({', '.join(places)})", [*arguments, *named.values()])

    def read_table(
        self,
        table: str,
        *,
        schema: str | None = None,
        columns: Sequence[str] | None = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> pa.Table:
        """Returns a whole table, or the given columns of it. All workers send their rows at the same time, so the rows
        come in any order.

        `table` is the exact name of a table, without quotes. `schema` is that of its schema, by default the current
        schema of the session (USE). To read a table that does not fit into memory, read it batch by batch with
        `sql(…, direct=True).batches()`.
        """
        wanted = "*" if columns is None else ", ".join(map(quoted, columns))
        query = f"SELECT {wanted} FROM {quoted_table(table, schema)}"
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
        schema: str | None = None,
        mode: IngestMode = "create_append",
        shard_key: str | None = None,
        shards: int | None = None,
        sort_key: str | Sequence[str] | None = None,
        reference: bool = False,
        temporary: bool = False,
        timeout: float | None = None,
        batch_id: str | None = None,
    ) -> int:
        """Writes rows into a table, either all of them or none, and returns the number of rows.

        `data` is Arrow data, a pandas or polars DataFrame, the path of a Parquet file or directory, or several such
        paths. Columns are matched by name. No value is changed: for example, 1.5 is refused for a BIGINT column.
        `table` is the exact name of a table, without quotes. `schema` is that of its schema, by default the current
        schema of the session (USE). `shard_key`, `shards`, `sort_key` and `reference` are the options of
        CREATE TABLE … WITH. They are used if the table is created. A table without a shard key keeps its rows in any
        shard. A `temporary` table belongs to the session: only this connection finds it, and it ends with the session.
        `batch_id` names the write, so that it can be repeated if its answer was lost: see `sql`.
        """
        columns = [sort_key] if isinstance(sort_key, str) else sort_key
        layout = {
            "shard_key": shard_key,
            "shards": None if shards is None else str(shards),
            "sort_key": None if columns is None else ", ".join(columns),
            "reference": "true" if reference else None,
        }
        given = {name: value for name, value in layout.items() if value is not None}
        command = statement_ingest(table, mode, given, schema=schema, temporary=temporary)
        return self._gateway.write(command, to_reader(data), timeout=timeout, batch_id=batch_id)

    def stream(
        self,
        table: str,
        *,
        schema: str | None = None,
        producer: str | None = None,
        continue_on_error: bool = False,
        window: int | None = None,
        timeout: float | None = None,
        retry_timeout: float = _RETRY_TIMEOUT,
    ) -> WriteStream:
        """Opens a stream that writes batches of rows to a table, in a `with` block. Each batch is acknowledged when it
        is durable and visible, and the next ones can be written before that.

        `table` is the exact name of a table that exists, without quotes. `schema` is that of its schema, by default the
        current schema of the session (USE). After a lost connection, the stream connects again and goes on. After an
        error with `retry_after`, it waits that long before it sends again. If it cannot go on within `retry_timeout`
        seconds, it ends with the last error. An error that is not `retryable` ends it at once, and so does one whose
        `retry_after` is longer than the time that is left.

        The gateway remembers for 7 days what a `producer` has written, so a new stream of the same producer can go on
        after `last_sequence`, even in another process. Without a name, a stream is a producer of its own. Only one
        stream of a producer can be open. With `continue_on_error`, the stream goes on after a refused batch, without
        it. `window` is the number of bytes that may be unacknowledged, about 2 KiB for each batch included. The gateway
        names its default. `timeout`, in seconds, limits each wait of the program for the stream; by default that of the
        connection, or else 300.
        """
        from ._write_stream import Route, WriteStream

        if producer is not None and not (producer.isprintable() and 1 <= len(producer) <= _LONGEST_PRODUCER):
            raise InvalidArgumentError(f"producer must be 1 to {_LONGEST_PRODUCER} characters, not {producer!r}")
        if window is not None and window <= 0:
            raise InvalidArgumentError(f"window must be a number of bytes, not {window}")
        # After a restart of the gateway, the session has no current schema any more.
        schema = self._schema_of(table) if schema is None else schema
        producer = str(uuid.uuid4()) if producer is None else producer
        options = {"stream": "true", "producer": producer}
        if continue_on_error:
            options["continue"] = "true"
        route = Route(
            self._gateway,
            statement_ingest(table, "append", options, schema=schema),
            table=quoted_table(table, schema),
            producer=producer,
            continue_on_error=continue_on_error,
            retry_seconds=retry_timeout,
        )
        stream = WriteStream(
            route,
            lambda: self._column_types(table, schema),
            window_bytes=window,
            timeout=self._gateway.timeout or _STREAM_TIMEOUT if timeout is None else timeout,
        )
        self._gateway.end_with_session(stream)
        return stream

    def lookup(
        self,
        table: str,
        keys: Keys,
        *,
        columns: Sequence[str] | None = None,
        schema: str | None = None,
        positions: str | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Returns the rows of a table whose shard key is one of `keys`, in the order of the keys.

        A key without a row is left out, a key with several rows has all of them, and a key that is asked for twice has
        its rows twice. `positions` is the name of an additional first column, which says at which position among
        `keys`, from 0, the key of each row is. `columns` are the columns of the table that are wanted, by default all.
        There may be any number of keys. All of them are looked up in the same state of the table.

        `table` is the exact name of a table with a shard key, without quotes. `schema` is that of its schema, by
        default the current schema of the session (USE). `timeout`, in seconds, replaces the timeout of the connection.
        """
        from ._lookup import look_up_all, to_array

        array = to_array(keys)
        command = lookup_request(table, _wanted(columns), schema=schema, one_snapshot=True)
        seconds = self._gateway.timeout if timeout is None else timeout
        with self._gateway.exchange(command, timeout=seconds) as exchange:
            return look_up_all(exchange, array, positions, seconds=seconds, interruptibly=self._gateway.interruptibly)

    def lookups(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        schema: str | None = None,
        timeout: float | None = None,
        join_window: float | None = None,
    ) -> Lookup:
        """Returns an object that looks up rows of one table by its shard key, for a program that asks often. Use it in
        a `with` block.

        The arguments are those of `lookup`, except `join_window`: the number of seconds for which `Lookup.one` waits
        for other threads that ask for a single key, too. Their keys are then sent as one batch. `timeout`, in seconds,
        limits the time until keys are answered; by default it is that of the connection, or else 60.
        """
        from ._lookup import Lookup, Route

        if join_window is not None and not 0 <= join_window <= _LONGEST_JOIN_WINDOW:
            raise InvalidArgumentError(f"join_window must be 0 to {_LONGEST_JOIN_WINDOW:g} seconds, not {join_window}")
        # After a restart of the gateway, the session has no current schema any more.
        schema = self._schema_of(table) if schema is None else schema
        route = Route(
            self._gateway, lookup_request(table, _wanted(columns), schema=schema), table=quoted_table(table, schema)
        )
        timeout = self._gateway.timeout or _LOOKUP_TIMEOUT if timeout is None else timeout
        lookup = Lookup(route, timeout=timeout, join_window=join_window)
        self._gateway.end_with_session(lookup)
        return lookup

    def batch_status(
        self, table: str, producer: str, sequence: int | None = None, *, schema: str | None = None
    ) -> BatchStatus:
        """Returns whether a batch was committed: the batch `sequence` of a producer, or its last batch.

        The id of a statement (`batch_id`) is a producer whose only batch has number 1. `table` is the exact name of the
        table, without quotes. Raises `NotFoundError` if there is no such table. A producer of which nothing is known is
        no error.
        """
        return self._gateway.batch_status(table, producer, sequence, schema=schema)

    def tables(self, *, schema: str | None = None) -> list[str]:
        """Returns the names of the tables and views of a schema, sorted. By default, it is the current schema of the
        session. `information_schema.tables` has more information about them.
        """
        place, values = ("current_schema()", None) if schema is None else ("?", [schema])
        query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = {place} ORDER BY table_name"
        return [str(name) for (name,) in self.sql(query, values).rows()]

    def close(self) -> None:
        """Ends all statements, open results and the session. May be called more than once."""
        self._gateway.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _schema_of(self, table: str) -> str:
        """Returns the schema in which the session finds a table: that of its temporary tables, or the current one."""
        temporary = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'pg_temp' AND table_name = ?"
        ((current, count),) = self.sql(f"SELECT current_schema(), ({temporary})", [table]).rows()
        return "pg_temp" if count else str(current)

    def _column_types(self, table: str, schema: str) -> ColumnTypes:
        """Returns the types of a table's columns, or nothing for a table that the user may not see."""
        found = self._gateway.metadata(get_tables(schema, table))
        if found is None:
            return {}
        columns = pa.ipc.read_schema(found.column("table_schema")[0].as_buffer())
        return {field.name: field.type for field in columns}

    def __repr__(self) -> str:
        return f"<volary.Connection to {self.uri}{' (closed)' if self._gateway.is_closed else ''}>"


def _wanted(columns: Sequence[str] | None) -> Sequence[str]:
    """Returns the columns of a request for keys, which asks for all of them if it names none."""
    if columns is None:
        return []
    if isinstance(columns, str) or not columns:
        raise InvalidArgumentError(f"columns must be a list of one or more names, not {columns!r}")
    return columns
