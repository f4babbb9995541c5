"""The result of a statement: the rows of a query, or the number of rows that a statement changed."""

from __future__ import annotations

import html
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._exchange import Note
from ._frames import to_pandas, to_polars
from ._preview import ROWS, preview, preview_html
from ._statistics import Statistics
from ._stream import Stream
from ._value import values_of
from .errors import Error

if TYPE_CHECKING:
    import pandas
    import polars

_NO_COLUMNS = pa.schema([])


class Result:
    """The answer to one statement.

    `to_arrow`, `to_pandas`, `to_polars` and `rows` read all rows. They may be called several times and in any order.
    `batches` and `reader` return each batch once and need bounded memory; after that, the result cannot be read again.
    A result that is not read to its end must be closed, or used as a context manager, because the server works for it
    until then.
    """

    def __init__(
        self,
        stream: Stream | None,
        *,
        query_id: str,
        rows_affected: int | None = None,
        statistics: Note | None = None,
    ) -> None:
        """Creates a result. `statistics` are those of a statement without rows, as a stream has its own."""
        self._stream = stream
        self._query_id = query_id
        self._rows_affected = rows_affected
        self._statistics = statistics
        self._head: list[pa.RecordBatch] = []
        self._table: pa.Table | None = None if stream is not None else _NO_COLUMNS.empty_table()
        self._spent: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows. A statement without rows has no columns."""
        return self._stream.schema if self._stream is not None else _NO_COLUMNS

    @property
    def rows_affected(self) -> int | None:
        """The number of rows that an INSERT or COPY wrote, 0 for DDL, or None for a query."""
        return self._rows_affected

    @property
    def query_id(self) -> str:
        """The id of the statement in logs, errors, `system.query_log` and KILL."""
        return self._query_id

    @property
    def statistics(self) -> Statistics | None:
        """What the statement took: the times of queueing, planning and running, and the numbers of rows, bytes, workers
        and shards.

        None until all rows of the statement are read.
        """
        note = self._statistics if self._stream is None else self._stream.statistics
        return None if note is None else Statistics.of(note)

    def to_arrow(self) -> pa.Table:
        """Returns all rows as an Arrow table."""
        if self._table is None:
            schema = self.schema
            self._table = pa.Table.from_batches(self._read_all(), schema=schema)
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """Returns all rows as a pandas DataFrame. To pass options of pyarrow's conversion, use
        `to_arrow().to_pandas(…)`.
        """
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Returns all rows as a polars DataFrame."""
        return to_polars(self.to_arrow())

    def rows(self) -> list[tuple[Any, ...]]:
        """Returns all rows as tuples of Python values."""
        table = self.to_arrow()
        columns = (values_of(column, field) for column, field in zip(table.columns, table.schema, strict=True))
        return list(zip(*columns, strict=True))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Returns the batches as they arrive, each of them once. Closing the iterator early ends the query on the
        server.
        """
        if self._table is not None:
            return iter(self._table.to_batches())
        if self._spent is not None:
            raise RuntimeError(f"the result {self._spent}; run the statement again")
        self._spent = "was read batch by batch"
        return self._read_once()

    def reader(self) -> pa.RecordBatchReader:
        """Returns the batches as they arrive, for libraries that take a reader (duckdb, polars, pyarrow.dataset)."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def close(self) -> None:
        """Stops the query if it still runs, and frees what the server holds for it. May be called more than once."""
        if self._stream is not None:
            self._stream.close()
        if self._table is None and self._spent is None:
            self._spent = "was closed before it was read"
        self._head.clear()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Implements the Arrow PyCapsule protocol, for `pyarrow.table(result)` and `polars.DataFrame(result)`."""
        return self.reader().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Result:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        """Shows the columns and the first rows. Waits until there are enough of them to show, or no more follow."""
        shown = self._shown()
        return shown if isinstance(shown, str) else preview(*shown)

    def _repr_html_(self) -> str:
        """Shows the columns and the first rows in a notebook. Waits as `repr` does."""
        shown = self._shown()
        return f"<pre>{html.escape(shown)}</pre>" if isinstance(shown, str) else preview_html(*shown)

    def _shown(self) -> tuple[pa.Table, int | None] | str:
        """Returns the first rows and the number of all rows (None if it is not known), or a text if there are none."""
        if self._stream is None:
            return f"<volary.Result: no rows, {self._rows_affected} rows affected>"
        if self._spent is None and self._table is None:
            try:
                self._peek()
            except (Error, RuntimeError) as error:
                return f"<volary.Result: {error}>"
        if self._table is not None:
            return self._table, self._table.num_rows
        if self._spent is not None:
            return f"<volary.Result: {self._spent}; columns {', '.join(self.schema.names)}>"
        return pa.Table.from_batches(self._head, schema=self.schema), None

    def _read_all(self) -> list[pa.RecordBatch]:
        assert self._stream is not None
        if self._spent is not None:
            raise RuntimeError(f"the result {self._spent}; run the statement again")
        try:
            return self._head + self._stream.read_all()
        except BaseException as error:
            self._spent = f"failed with {error}" if isinstance(error, Error) else "was closed before it was read"
            raise
        finally:
            self._stream.close()
            self._head = []

    def _read_once(self) -> Iterator[pa.RecordBatch]:
        assert self._stream is not None
        try:
            while self._head:
                yield self._head.pop(0)
            while (batch := self._stream.read()) is not None:
                yield batch
        except Error as error:
            self._spent = f"failed with {error}"
            raise
        finally:
            self._stream.close()

    def _peek(self) -> None:
        """Reads until there are more rows than a preview shows, or no more follow."""
        assert self._stream is not None
        try:
            while sum(batch.num_rows for batch in self._head) <= ROWS:
                batch = self._stream.read()
                if batch is None:
                    self._table = pa.Table.from_batches(self._head, schema=self.schema)
                    self._head = []
                    return
                self._head.append(batch)
        except Error as error:
            self._spent = f"failed with {error}"
            raise
