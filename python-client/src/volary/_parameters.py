"""Converts the values for the `?` of a statement to record batches."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from ._value import array_of
from .errors import InvalidArgumentError

Parameters: TypeAlias = Sequence[Any] | pa.RecordBatch | pa.Table
"""One value for each `?`, in order, or Arrow columns in that order. Arrow data has one row for each run of the
statement.
"""

# What pyarrow raises for a value that it cannot convert.
_NO_TYPE = (pa.ArrowException, OverflowError, TypeError, ValueError)


def to_batches(parameters: Parameters) -> list[pa.RecordBatch]:
    """Returns the parameters as record batches. An empty sequence gives no batch. The names of the columns do not
    matter.

    Raises `TypeError` for anything that is neither a sequence nor Arrow data. Raises `InvalidArgumentError` for a value
    without an Arrow type and for Arrow data without rows.
    """
    if isinstance(parameters, (pa.RecordBatch, pa.Table)):
        if parameters.num_rows == 0:
            raise InvalidArgumentError("the parameters have no rows")
        return [parameters] if isinstance(parameters, pa.RecordBatch) else parameters.to_batches()
    if isinstance(parameters, (str, bytes)) or not isinstance(parameters, Sequence):
        raise TypeError(
            f"parameters must be a list or tuple with one value per ?, or Arrow data, not {type(parameters).__name__}"
        )
    if not parameters:
        return []
    columns = [_column(position, value) for position, value in enumerate(parameters, start=1)]
    return [pa.RecordBatch.from_arrays(columns, names=[str(index) for index in range(len(columns))])]


def rows_to_batches(rows: Sequence[Sequence[Any]]) -> list[pa.RecordBatch]:
    """Returns many rows of parameters as record batches. Each position of the rows is a column with one type.

    Raises `InvalidArgumentError` for rows of different lengths, and for values without a common Arrow type.
    """
    width = len(rows[0])
    if width == 0:
        raise InvalidArgumentError("the rows of parameters have no values")
    if set(map(len, rows)) != {width}:
        number, row = next(found for found in enumerate(rows, start=1) if len(found[1]) != width)
        raise InvalidArgumentError(f"row {number} has {len(row)} values, and row 1 has {width}")
    # With many rows, `zip` would take many times as long.
    columns = [_many(index + 1, [row[index] for row in rows]) for index in range(width)]
    # A table, because a column with more than 2 GiB of text becomes several arrays.
    return pa.table(columns, names=[str(index) for index in range(width)]).to_batches()


def _column(position: int, value: Any) -> pa.Array[Any]:
    # The column may have the type UUID, or hold UUIDs as texts. A text can be compared with both.
    if isinstance(value, uuid.UUID):
        value = str(value)
    try:
        return array_of(value)
    except _NO_TYPE as error:
        raise InvalidArgumentError(f"parameter {position} ({value!r}) has no Arrow type: {error}") from error


def _many(position: int, values: Sequence[Any]) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    first = next((value for value in values if value is not None), None)
    if isinstance(first, uuid.UUID):
        values = [None if value is None else str(value) for value in values]
    try:
        column: pa.Array[Any] | pa.ChunkedArray[Any] = pa.array(values)
        return column
    except _NO_TYPE as error:
        raise InvalidArgumentError(f"the values of parameter {position} have no common Arrow type: {error}") from error
