"""A connection to a gateway, and the life of a statement on it."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import adbc_driver_flightsql as flightsql
import adbc_driver_manager as adbc
import pyarrow as pa

from ._ingest import IngestData, IngestMode, options, to_reader
from ._interrupt import Interruptible
from ._names import quoted
from ._parameters import Parameters, to_batches
from ._parts import PartStream
from ._plan import Plan
from ._result import Result
from ._statistics import StatementLog
from ._stream import BatchStream, Stream
from ._translate import translated
from .errors import InvalidArgumentError

# GetSqlInfo's ids, as ADBC numbers them.
_VENDOR_VERSION = 1
# The header by which a statement is found in the gateway's log.
_TAG = flightsql.StatementOptions.RPC_CALL_HEADER_PREFIX.value + "volary-query-tag"
_TIMEOUTS = (
    flightsql.StatementOptions.TIMEOUT_QUERY.value,
    flightsql.StatementOptions.TIMEOUT_FETCH.value,
    flightsql.StatementOptions.TIMEOUT_UPDATE.value,
)


class Connection:
    """A session on a gateway; made by `volary.connect`.

    Several results may be open at once. Threads that ask at the same time each take a connection of their own.
    """

    def __init__(self, uri: str, options: dict[str, str]) -> None:
        self.uri = uri
        self._interruptible = Interruptible()
        self._open: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._closed = False
        with translated():
            self._database = flightsql.connect(uri, db_kwargs=options)
            try:
                self._connection = adbc.AdbcConnection(self._database)
            except BaseException:
                self._database.close()
                raise
        # The driver connects lazily: ask now, so that a wrong address is an error of connect().
        try:
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
        it bounds each of the statement's calls, also the one that streams the rows.

        A statement without rows has run when this returns; a query runs while its result is read.

        With `direct`, the rows come from the workers themselves where that is possible, over so many `threads` at a
        time, in any order; this machine must reach the workers. Other results come from the gateway all the same. With
        `progress`, a bar shows how far the query is (tqdm draws it: in a terminal, or in a notebook).
        """
        if self._closed:
            raise RuntimeError("the connection is closed")
        batches = to_batches(parameters) if parameters is not None else []
        timeouts = {} if timeout is None else dict.fromkeys(_TIMEOUTS, float(timeout))
        tag = uuid.uuid4().hex
        log = StatementLog(tag, lambda query, values: self.sql(query, values).rows())
        with translated():
            statement = adbc.AdbcStatement(self._connection)
        try:
            with translated():
                statement.set_options(**{_TAG: tag})
                statement.set_options(**timeouts)
            is_query = self._prepare(statement, query)
            rows = sum(batch.num_rows for batch in batches)
            if is_query and batches and rows != 1:
                raise InvalidArgumentError(f"a query takes one row of parameters, not {rows}")
            if batches:
                with translated():
                    statement.bind_stream(pa.Table.from_batches(batches).to_reader())
            affected = None if is_query else self._update(statement)
        except BaseException:
            _free(statement)
            raise
        if not is_query:
            _free(statement)
            return Result(None, affected, log)
        stream: Stream
        if direct or progress:
            stream = PartStream(
                self._database, statement, self._interruptible, threads, timeouts, direct=direct, progress=progress
            )
        else:
            stream = BatchStream(statement, self._interruptible)
        self._open.add(stream)
        return Result(stream, None, log)

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
        if self._closed:
            raise RuntimeError("the connection is closed")
        columns = [sort_key] if isinstance(sort_key, str) else sort_key
        layout = {
            "shard_key": shard_key,
            "shards": None if shards is None else str(shards),
            "sort_key": None if columns is None else ", ".join(columns),
            "reference": "true" if reference else None,
        }
        set_options = options(table, mode, {name: value for name, value in layout.items() if value is not None})
        reader = to_reader(data)
        with translated():
            statement = adbc.AdbcStatement(self._connection)
        try:
            with translated():
                statement.set_options(**set_options)
                if timeout is not None:
                    statement.set_options(**dict.fromkeys(_TIMEOUTS, float(timeout)))
                statement.bind_stream(reader)
            return self._update(statement) or 0
        finally:
            _free(statement)

    def tables(self) -> list[str]:
        """The names of the tables and views, sorted. More about them: `information_schema.tables`."""
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name"
        return [str(name) for (name,) in self.sql(query).rows()]

    def close(self) -> None:
        """Ends all open results and the session. May be called again."""
        if self._closed:
            return
        self._closed = True
        for stream in list(self._open):
            stream.close()
        self._interruptible.close()
        with translated():
            try:
                self._connection.close()
            finally:
                self._database.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<volary.Connection to {self.uri}{' (closed)' if self._closed else ''}>"

    def _ask_version(self) -> str:
        def ask() -> pa.Table:
            return pa.RecordBatchReader.from_stream(self._connection.get_info([_VENDOR_VERSION])).read_all()

        with translated():
            info = self._interruptible.run(ask, self._connection.cancel)
        values = info.column("info_value").to_pylist()
        return str(values[0]) if values else "unknown"

    def _prepare(self, statement: adbc.AdbcStatement, query: str) -> bool:
        """Whether the statement has rows: the server prepares one that has none with a schema of no fields."""
        with translated():
            statement.set_sql_query(query)
            self._interruptible.run(statement.prepare, statement.cancel)
            schema = pa.schema(statement.execute_schema())  # type: ignore[arg-type]  # the stubs lack PyCapsules
        return len(schema) > 0

    def _update(self, statement: adbc.AdbcStatement) -> int | None:
        with translated():
            count: int = self._interruptible.run(statement.execute_update, statement.cancel)
        return count if count >= 0 else None


def _free(statement: adbc.AdbcStatement) -> None:
    """An error here (the server is gone) is of no use to anybody, and would hide what became of the statement."""
    with suppress(adbc.Error):
        statement.close()
