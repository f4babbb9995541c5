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


def _column(position: int, value: Any) -> pa.Array[Any]:
    # The server has no type for UUIDs. It compares their text.
    if isinstance(value, uuid.UUID):
        value = str(value)
    try:
        return array_of(value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"parameter {position} ({value!r}) has no Arrow type: {error}") from error
