"""Converts values between Python and Arrow.

`array_of` gives the same result as `pa.array`, but does not call it for the usual types.

`pa.array` imports pandas before it looks at a value, if pandas is installed. The first parameter of a program would
then take many times as long as its first query.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

# The key in the metadata of a column for the name of its SQL type.
_TYPE_NAME = b"ARROW:FLIGHT:SQL:TYPE_NAME"

_FIRST_DAY = date(1970, 1, 1)
_FIRST_INSTANT = datetime(1970, 1, 1)


def array_of(value: Any) -> pa.Array[Any]:
    """Returns an array with the one value. Raises what `pa.array` raises for a value without an Arrow type."""
    # The type must match exactly, because pyarrow may convert a subclass in another way.
    build = _BUILDERS.get(type(value))
    # A value that does not fit this type may fit another one, so `pa.array` gets it.
    with suppress(struct.error):
        if build is not None and (array := build(value)) is not None:
            return array
    converted: pa.Array[Any] = pa.array([value])
    return converted


def values_of(column: pa.Array[Any] | pa.ChunkedArray[Any], field: pa.Field[Any]) -> list[Any]:
    """Returns the values of a column of a result as Python values. UUIDs arrive as texts with a mark."""
    values: list[Any] = column.to_pylist()
    if field.type == pa.string() and (field.metadata or {}).get(_TYPE_NAME) == b"UUID":
        return [None if value is None else uuid.UUID(value) for value in values]
    return values


def _fixed(kind: pa.DataType, layout: str, value: Any) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(struct.pack(layout, value))])


def _variable(kind: pa.DataType, data: bytes) -> pa.Array[Any]:
    offsets = struct.pack("=ii", 0, len(data))
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _timestamp(value: datetime) -> pa.Array[Any] | None:
    """Returns None for a value with a time zone, because there are many kinds of time zones."""
    if value.tzinfo is not None:
        return None
    return _fixed(pa.timestamp("us"), "=q", (value - _FIRST_INSTANT) // timedelta(microseconds=1))


_BUILDERS: dict[type, Callable[[Any], pa.Array[Any] | None]] = {
    type(None): lambda _: pa.nulls(1),
    bool: lambda value: _fixed(pa.bool_(), "=?", value),
    int: lambda value: _fixed(pa.int64(), "=q", value),
    float: lambda value: _fixed(pa.float64(), "=d", value),
    str: lambda value: _variable(pa.string(), value.encode()),
    bytes: lambda value: _variable(pa.binary(), value),
    date: lambda value: _fixed(pa.date32(), "=i", (value - _FIRST_DAY).days),
    datetime: _timestamp,
}
