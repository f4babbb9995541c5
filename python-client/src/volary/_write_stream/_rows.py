"""Converts what a program writes to the messages of one batch."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from .._exchange import MESSAGE_BYTES, cut
from .._ingest import to_reader
from .._translate import PYARROW_ERRORS, translate
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas
    import polars

StreamData: TypeAlias = "pa.RecordBatch | pa.Table | pandas.DataFrame | polars.DataFrame | Sequence[Mapping[str, Any]]"
"""The rows of one batch: Arrow data, a DataFrame, or a list with a dictionary for each row."""

ColumnTypes: TypeAlias = Mapping[str, pa.DataType]

# Memory of the objects that belong to a batch of one row. Without it, the window would hold tens of thousands of them.
_OVERHEAD_BYTES = 2048

# What pyarrow raises for a value that it cannot convert.
_NO_TYPE = (pa.ArrowException, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one batch, cut into messages."""

    schema: pa.Schema
    messages: list[pa.RecordBatch]
    count: int
    size_bytes: int
    """Memory of the rows and of the objects around them."""


def is_list_of_rows(data: StreamData) -> bool:
    """Says whether the data is a list of dictionaries, whose values have no Arrow types yet."""
    return isinstance(data, Sequence) and not isinstance(data, str | bytes)


def to_rows(data: StreamData, types: ColumnTypes) -> Rows:
    """Returns the rows as messages. `types` are those of the table's columns. A list of dictionaries gets them as far
    as its values allow.

    Raises `TypeError` for data of an unsupported type, and `InvalidArgumentError` for data that Arrow cannot represent.
    """
    return _cut(_batches(data, types))


def _batches(data: Any, types: ColumnTypes) -> list[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if is_list_of_rows(data):
        table = _table_of(data, types)
    elif isinstance(data, pa.Table):
        table = data
    elif hasattr(data, "__dataframe__") or hasattr(data, "__arrow_c_stream__"):
        if type(data).__module__.split(".")[0] == "pandas":
            # Arrow shares the memory of a pandas frame. The batch may be sent later, and twice, but the program may
            # change the frame as soon as `write` returns.
            data = data.copy()
        table = to_reader(data).read_all()
    else:
        raise TypeError(
            "a batch is Arrow data, a pandas or polars DataFrame, or a list of dictionaries, "
            f"not {type(data).__name__}; Connection.ingest also takes files"
        )
    # Without rows, a table may have no batch, but each batch of a stream needs a message.
    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def _cut(batches: list[pa.RecordBatch]) -> Rows:
    schema = batches[0].schema
    has_dictionaries = any(pa.types.is_dictionary(field.type) for field in schema)
    messages: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        try:
            # This also finds what Arrow's format cannot represent. The caller gets the error, and the stream goes on.
            size = pa.ipc.get_record_batch_size(batch)
        except PYARROW_ERRORS as error:
            raise translate(error) from error
        total += batch.nbytes if has_dictionaries else size
        messages.extend(cut(batch) if size > MESSAGE_BYTES else [batch])
    size_bytes = total + _OVERHEAD_BYTES * len(messages)
    return Rows(schema, messages, sum(batch.num_rows for batch in batches), size_bytes)


def _table_of(rows: Sequence[Any], types: ColumnTypes) -> pa.Table:
    if not rows:
        raise InvalidArgumentError("the list has no rows, so it has no columns; write nothing instead")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {number} must be a dictionary with a value for each column, not {type(row).__name__}")
        # A column that is left out gets its default, so a missing value must not become NULL.
        if row.keys() != rows[0].keys():
            found, first = ", ".join(map(str, row)), ", ".join(map(str, rows[0]))
            raise InvalidArgumentError(
                f"row {number} has the columns {found}, and row 1 has {first}; "
                "write rows with other columns as another batch"
            )
    names = list(map(str, rows[0]))
    columns = [_column(str(name), [row[name] for row in rows], types) for name in rows[0]]
    return pa.table(columns, names=names)


def _column(name: str, values: list[Any], types: ColumnTypes) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    """Returns the values with the type of the column if that changes none of them, or else with a type of their own,
    which the gateway may accept.
    """
    # The column may have the type UUID, or hold UUIDs as texts.
    if any(isinstance(value, uuid.UUID) for value in values):
        values = [str(value) if isinstance(value, uuid.UUID) else value for value in values]
    kind = types.get(name)
    has_booleans = any(isinstance(value, bool) for value in values)
    if kind is not None and ((_is_exact(kind) and not has_booleans) or all(value is None for value in values)):
        with suppress(*_NO_TYPE):
            return pa.array(values, type=kind)
    try:
        column: pa.Array[Any] | pa.ChunkedArray[Any] = pa.array(values)
        return column
    except _NO_TYPE as error:
        raise InvalidArgumentError(f"the values of column {name} have no common Arrow type: {error}") from error


def _is_exact(kind: pa.DataType) -> bool:
    """Says whether pyarrow converts values to the type unchanged or not at all.

    Of most types it cuts values: 1.5 to an integer, or a datetime to a date. Of these types, values also have different
    types of their own, such as those of `[1]` and `[1.5]`.
    """
    if pa.types.is_list(kind):
        return _is_exact(kind.value_type)
    return pa.types.is_float64(kind) or pa.types.is_decimal(kind)
