"""The cursors of PEP 249, which run statements."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import pyarrow as pa

from .._exchange import Exchange
from .._flight_sql import IngestMode, statement_ingest
from .._frames import to_pandas, to_polars
from .._gateway import Gateway
from .._names import quoted
from .._parameters import rows_to_batches, to_batches
from ._arrow import is_arrow, to_reader
from ._errors import NotSupportedError, ProgrammingError, translated
from ._rows import Row, Rows

if TYPE_CHECKING:
    import pandas
    import polars

    from ._connection import Connection

Column: TypeAlias = tuple[str, pa.DataType, None, None, None, None, None]


class Cursor:
    """Runs statements, one after another, and holds the rows of the last one. `Connection.cursor` creates it.

    Rows are read from the gateway as they are fetched. Closing the cursor ends a query whose rows are not all fetched.
    """

    lastrowid: None = None
    """PEP 249: the id of the last inserted row. Rows have no ids."""

    def __init__(self, connection: Connection, gateway: Gateway) -> None:
        self.arraysize = 1
        self._connection = connection
        self._gateway = gateway
        self._rows: Rows | None = None
        self._rowcount = -1
        self._query_id: str | None = None
        self._exchange: Exchange | None = None
        self._is_closed = False

    @property
    def connection(self) -> Connection:
        """The connection of the cursor."""
        return self._connection

    @property
    def description(self) -> list[Column] | None:
        """The columns of the rows: for each of them its name, its type, and five times None. None without rows."""
        if self._rows is None:
            return None
        return [(field.name, field.type, None, None, None, None, None) for field in self._rows.schema]

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement has written, 0 for DDL, or -1 for a query."""
        return self._rowcount

    @property
    def rownumber(self) -> int | None:
        """The number of rows that are fetched already, or None without rows."""
        return None if self._rows is None else self._rows.rownumber

    def execute(self, operation: str, parameters: Any = None, *, batch_id: str | None = None) -> Self:
        """Runs a statement. A statement without rows has finished when this method returns.

        `parameters` are the values for its `?`, in order, or Arrow data with one row. For INSERT … VALUES, Arrow data
        may have many rows. `batch_id` is an extension of PEP 249. It names a statement that writes, so that the
        statement can be repeated if its answer was lost: see `volary.Connection.sql`.
        """
        self._begin()
        with translated:
            if parameters is None:
                self._run(operation, batch_id=batch_id)
            elif not is_arrow(parameters):
                self._run(operation, to_batches(_values(parameters)), batch_id=batch_id)
            elif not self._run_for_each(operation, parameters, batch_id):
                raise ProgrammingError("the parameters have no rows")
        return self

    def executemany(self, operation: str, seq_of_parameters: Any, *, batch_id: str | None = None) -> None:
        """Runs a statement that returns no rows, once for each row of parameters.

        The parameters are sequences, or Arrow data. An INSERT … VALUES inserts all rows as one write. If its values
        contain a subquery, or compute with a parameter that must be cast, each row is its own write. Without rows,
        nothing is run. With None, the statement is run once, as in the ADBC driver.

        `batch_id` names the write, as in `execute`. With it, a statement whose rows are separate writes is refused.
        """
        self._begin()
        with translated:
            if seq_of_parameters is None:
                self._run(operation, batch_id=batch_id)
            elif is_arrow(seq_of_parameters):
                self._run_for_each(operation, seq_of_parameters, batch_id)
            elif rows := [_values(row) for row in seq_of_parameters]:
                self._run(operation, rows_to_batches(rows), batch_id=batch_id)
            else:
                self._rowcount = 0
        if self._rows is not None:
            self._clear()
            raise ProgrammingError("executemany returns no rows; use execute for a query")

    def callproc(self, procname: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        """Calls a saved query (CREATE QUERY). Its rows can be fetched. Returns the parameters."""
        self.execute(f"CALL {quoted(procname)}({', '.join('?' for _ in parameters)})", parameters)
        return parameters

    def fetchone(self) -> Row | None:
        """Returns the next row, or None after the last one."""
        return self._fetched().fetch_one()

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Returns the next `size` rows, or `arraysize` rows. They are fewer only if no more follow."""
        return self._fetched().fetch_many(self.arraysize if size is None else size)

    def fetchall(self) -> list[Row]:
        """Returns the remaining rows."""
        return self._fetched().fetch_many(sys.maxsize)

    def nextset(self) -> NoReturn:
        """Raises `NotSupportedError`, because a statement has one result."""
        raise NotSupportedError("a statement has one result")

    def setinputsizes(self, sizes: object) -> None:
        """Does nothing, because the values of parameters say their sizes."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Does nothing, because values are never cut."""

    def close(self) -> None:
        """Ends the statement if it still runs. The cursor cannot be used any more. May be called more than once."""
        self._is_closed = True
        self._clear()

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    next = __next__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def query_id(self) -> str | None:
        """The id by which `system.query_log` lists the last statement. None before the first one and after an ingest.

        This is an extension of PEP 249.
        """
        return self._query_id

    # Extensions, with the names that the ADBC driver gives them

    def fetch_arrow_table(self) -> pa.Table:
        """Returns the remaining rows as an Arrow table."""
        return self._fetched().table()

    fetchallarrow = fetch_arrow_table

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        """Returns a reader of the remaining rows, which reads them as they arrive."""
        rows = self._fetched()
        return pa.RecordBatchReader.from_batches(rows.schema, rows.batches())

    fetch_arrow = fetch_record_batch

    def fetch_df(self) -> pandas.DataFrame:
        """Returns the remaining rows as a pandas DataFrame."""
        return to_pandas(self._fetched().table())

    def fetch_polars(self) -> polars.DataFrame:
        """Returns the remaining rows as a polars DataFrame."""
        return to_polars(self._fetched().table())

    def adbc_ingest(
        self,
        table_name: str,
        data: Any,
        mode: IngestMode = "create",
        *,
        catalog_name: str | None = None,
        db_schema_name: str | None = None,
        temporary: bool = False,
        batch_id: str | None = None,
    ) -> int:
        """Writes Arrow data into a table, either all of its rows or none, and returns their number.

        `data` is Arrow data of any library, a list of record batches, or a dataset of pyarrow. Columns are matched by
        name. The only catalog is `volary`. The default of `db_schema_name` is the current schema of the session. A
        `temporary` table belongs to the session: only this connection finds it, and it ends with the session.
        `batch_id` names the write, as in `execute`. With it, a write that creates or replaces its table is refused. The
        ADBC driver does not have this argument.
        """
        self._begin()
        command = statement_ingest(
            table_name, mode, {}, catalog=catalog_name, schema=db_schema_name, temporary=temporary
        )
        with translated:
            self._rowcount = self._gateway.write(command, to_reader(data), batch_id=batch_id, on_start=self._note_start)
        return self._rowcount

    def adbc_cancel(self) -> None:
        """Cancels the statement that runs, whose thread gets an `OperationalError`. Any thread may call this."""
        exchange, rows = self._exchange, self._rows
        if exchange is not None:
            exchange.cancel()
        # The rows may come directly from the workers, in other calls.
        if rows is not None:
            rows.cancel()

    def _begin(self) -> None:
        self._check_open()
        self._clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProgrammingError("the cursor is closed")
        if self._gateway.is_closed:
            raise ProgrammingError("the connection is closed")

    def _clear(self) -> None:
        rows, self._rows, self._exchange, self._rowcount = self._rows, None, None, -1
        self._query_id = None
        if rows is not None:
            rows.close()

    def _fetched(self) -> Rows:
        self._check_open()
        if self._rows is None:
            raise ProgrammingError("there are no rows to fetch: first execute a statement that returns rows")
        return self._rows

    def _run(
        self,
        operation: str,
        batches: Iterable[pa.RecordBatch] = (),
        schema: pa.Schema | None = None,
        *,
        batch_id: str | None,
    ) -> None:
        if not isinstance(operation, str):
            raise ProgrammingError(f"a statement is text, not {type(operation).__name__}")
        result = self._gateway.run(operation, batches, schema, batch_id=batch_id, on_start=self._note_start)
        self._query_id = result.query_id
        if result.rows_affected is None:
            self._rows, self._rowcount = Rows(result), -1
        else:
            self._rowcount = result.rows_affected

    def _run_for_each(self, operation: str, data: Any, batch_id: str | None) -> bool:
        """Runs the statement with Arrow data, which is sent as it is read. Returns False if the data has no rows."""
        reader = to_reader(data)
        batches = (batch for batch in reader if batch.num_rows)
        first = next(batches, None)
        if first is None:
            self._rowcount = 0
            return False
        self._run(operation, chain((first,), batches), reader.schema, batch_id=batch_id)
        return True

    def _note_start(self, exchange: Exchange) -> None:
        self._exchange = exchange


def _values(parameters: Any) -> Sequence[Any]:
    """Returns the values of one row of parameters."""
    if type(parameters) in (tuple, list):
        row: Sequence[Any] = parameters
        return row
    if isinstance(parameters, (str, bytes, Mapping)) or not isinstance(parameters, Iterable):
        raise ProgrammingError(f"parameters are sequences with one value for each ?, not {type(parameters).__name__}")
    return tuple(parameters)
