"""A connection to a gateway, and the life of a statement on it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

import adbc_driver_flightsql as flightsql
import adbc_driver_manager as adbc
import pyarrow as pa

from ._ingest import IngestData, IngestMode, options, to_reader
from ._interrupt import Interruptible
from ._parameters import Parameters, to_batches
from ._result import Result
from ._stream import BatchStream
from ._translate import translated
from .errors import InvalidArgumentError

# GetSqlInfo's ids, as ADBC numbers them.
_VENDOR_VERSION = 1
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
        self._open: weakref.WeakSet[BatchStream] = weakref.WeakSet()
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

    def sql(self, query: str, parameters: Parameters | None = None, *, timeout: float | None = None) -> Result:
        """Runs one statement.

        `parameters` are the values for its `?`, in order: a list or tuple, or Arrow data with one row (INSERT …
        VALUES: any number of rows, which are one write). `timeout`, in seconds, replaces that of the connection;
        it bounds each of the statement's calls, also the one that streams the rows.

        A statement without rows has run when this returns; a query runs while its result is read.
        """
        if self._closed:
            raise RuntimeError("the connection is closed")
        batches = to_batches(parameters) if parameters is not None else []
        with translated():
            statement = adbc.AdbcStatement(self._connection)
        try:
            if timeout is not None:
                with translated():
                    statement.set_options(**dict.fromkeys(_TIMEOUTS, float(timeout)))
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
            return Result(None, affected)
        stream = BatchStream(statement, self._interruptible)
        self._open.add(stream)
        return Result(stream, None)

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
