"""Converts keys to Arrow arrays."""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from .._value import array_of
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas
    import polars

Keys: TypeAlias = "Iterable[Any] | pa.Array[Any] | pa.ChunkedArray[Any] | pandas.Series[Any] | polars.Series"
"""The keys that are looked up: Python values, an Arrow array, a numpy array, or a pandas or polars Series."""

# What pyarrow raises for a value that it cannot convert.
_NO_TYPE = (pa.ArrowException, OverflowError, TypeError, ValueError)
_MOST_DIGITS = 38


def to_array(keys: Keys) -> pa.Array[Any]:
    """Returns the keys as one array.

    Raises `TypeError` for a single value, and `InvalidArgumentError` for values without a common Arrow type and for
    None, which finds no row.
    """
    converted = _array_of(keys)
    if converted.null_count:
        position = converted.is_null().index(pa.scalar(True)).as_py()
        raise InvalidArgumentError(f"the key at position {position} is None, which finds no row; leave it out")
    # Each type of keys has a call of its own, so there should be few.
    if pa.types.is_decimal128(converted.type) and converted.type.precision != _MOST_DIGITS:
        converted = converted.cast(pa.decimal128(_MOST_DIGITS, converted.type.scale))
    return converted


def to_single_key(key: Any) -> pa.Array[Any]:
    """Returns an array with the one key. Raises `InvalidArgumentError` for a value that cannot be a key."""
    try:
        return to_array(array_of(str(key) if isinstance(key, uuid.UUID) else key))
    except _NO_TYPE as error:
        raise InvalidArgumentError(f"the key {key!r} has no Arrow type: {error}") from error


def _array_of(keys: Any) -> pa.Array[Any]:
    if isinstance(keys, pa.Array):
        return keys
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a list, an Arrow array or another sequence of keys, not {type(keys).__name__}")
    if hasattr(keys, "__arrow_c_stream__"):
        return _joined(pa.chunked_array(keys))
    # numpy and pandas know the type of their values.
    if not hasattr(keys, "__array__"):
        keys = [str(key) if isinstance(key, uuid.UUID) else key for key in keys]
        if set(map(type, keys)) == {int} and (integers := _integers(keys)) is not None:
            return integers
    try:
        converted = pa.array(keys)
    except _NO_TYPE as error:
        raise InvalidArgumentError(f"the keys have no common Arrow type: {error}") from error
    return _joined(converted) if isinstance(converted, pa.ChunkedArray) else converted


def _integers(keys: list[int]) -> pa.Array[Any] | None:
    """Returns the keys as an array, or None if one of them is too large. `pa.array` would import pandas first."""
    try:
        values = array("q", keys)
    except OverflowError:
        return None
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _joined(chunks: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    joined: pa.Array[Any] = pa.concat_arrays(chunks.chunks) if chunks.num_chunks else pa.array([], chunks.type)
    return joined
