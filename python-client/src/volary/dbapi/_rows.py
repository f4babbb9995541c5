"""Reads the rows of a query as they are needed, as Python values or as Arrow data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa

from .._result import Result
from .._value import values_of
from ..errors import CancelledError
from ._errors import DataError, ProgrammingError, translated

Row: TypeAlias = tuple[Any, ...]

# Number of rows of a batch that are converted to Python values at once. It grows, because programs that fetch single
# rows want either one of them or many.
_FIRST_ROWS = 16
_MOST_ROWS = 4096


class Rows:
    """The rows of one query that are not fetched yet. Keeps at most one record batch of them."""

    def __init__(self, result: Result) -> None:
        self.schema = result.schema
        self.rownumber = 0
        self._result = result
        self._batches = result.batches()
        self._has_failed = False
        self._is_cancelled = False
        # `_next` is the row of `_batch` that is fetched next. `_ready` has the rows from there on that are converted.
        self._batch: pa.RecordBatch | None = None
        self._next = 0
        self._ready: Iterator[Row] = iter(())
        self._at_once = _FIRST_ROWS

    def fetch_one(self) -> Row | None:
        """Returns the next row, or None after the last one."""
        row = next(self._ready, None)
        if row is None:
            if not self._convert(self._at_once):
                return None
            self._at_once = min(2 * self._at_once, _MOST_ROWS)
            row = next(self._ready)
        self._next += 1
        self.rownumber += 1
        return row

    def fetch_many(self, size: int) -> list[Row]:
        """Returns the next rows. They are fewer than `size` only if no more follow."""
        rows: list[Row] = []
        while (missing := size - len(rows)) > 0:
            fetched = list(islice(self._ready, missing))
            if not fetched and not self._convert(max(missing, self._at_once)):
                break
            rows += fetched
            self._next += len(fetched)
            self.rownumber += len(fetched)
        return rows

    def table(self) -> pa.Table:
        """Returns the remaining rows."""
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the remaining rows as they arrive."""
        batch, start = self._batch, self._next
        self._batch, self._ready = None, iter(())
        if batch is not None and start < batch.num_rows:
            self.rownumber += batch.num_rows - start
            yield batch.slice(start)
        while (batch := self._read()) is not None:
            self.rownumber += batch.num_rows
            yield batch

    def close(self) -> None:
        """Ends the query if it still runs."""
        self._result.close()

    def cancel(self) -> None:
        """Ends the query. The thread that reads rows gets an error that says so. Any thread may call this method."""
        self._is_cancelled = True
        self._result.close()

    def _convert(self, count: int) -> bool:
        """Converts up to `count` of the rows that come next. Returns False if there are none."""
        while self._batch is None or self._next == self._batch.num_rows:
            self._batch, self._next = self._read(), 0
            if self._batch is None:
                return False
        part = self._batch.slice(self._next, count)
        try:
            columns = [values_of(column, field) for column, field in zip(part.columns, part.schema, strict=True)]
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise DataError(
                f"a value cannot be a Python value: {error}; fetch_arrow_table returns all values"
            ) from error
        self._ready = zip(*columns, strict=True) if columns else iter([()] * part.num_rows)
        return True

    def _read(self) -> pa.RecordBatch | None:
        """Returns the next batch, or None at the end. After an error, the next call does not take it for the end."""
        if self._has_failed:
            raise ProgrammingError("an error or an interrupt has ended the query; run the statement again")
        self._has_failed = True
        with translated:
            try:
                batch = next(self._batches, None)
            except RuntimeError as error:
                if self._is_cancelled:
                    raise CancelledError("the statement was cancelled by this client") from error
                raise
        self._has_failed = False
        return batch
