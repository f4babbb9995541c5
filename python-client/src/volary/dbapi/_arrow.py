"""Reads Arrow data of any library as a stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def is_arrow(data: Any) -> bool:
    """Returns whether the object is Arrow data of any library."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def to_reader(data: Any) -> pa.RecordBatchReader:
    """Returns the rows of Arrow data, of a dataset or of a list of record batches. Raises `TypeError` for anything
    else.
    """
    if hasattr(data, "scanner"):
        data = data.scanner()
    if hasattr(data, "to_reader"):
        data = data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)]).to_reader()
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        return pa.Table.from_batches(list(data)).to_reader()
    raise TypeError(f"the data is not Arrow data, but {type(data).__name__}")
