"""Converts Arrow data to the exact types that an expression of Ibis has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NANOSECONDS_OF_DAY = 24 * 3600 * 10**9


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the table with the names and types of `schema`, by position.

    The gateway computes some columns in other types: 8-bit integers as 64-bit integers, for example. Raises
    `pyarrow.ArrowInvalid` for a value that the wanted type cannot hold.
    """
    columns = [_column(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    if not columns:
        return table
    return pa.Table.from_arrays(columns, schema=schema)


def conform_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches with the names and types of `schema`, each with at most `rows` rows."""
    for batch in batches:
        table = conform(pa.Table.from_batches([batch]), schema)
        yield from table.to_batches(max_chunksize=rows)


def _column(column: Any, wanted: pa.DataType) -> Any:
    if column.type == wanted:
        return column
    if pa.types.is_null(wanted):
        return pa.chunked_array([pa.nulls(len(column))])
    if pa.types.is_duration(wanted) and pa.types.is_interval(column.type):
        return pa.chunked_array([_durations(chunk, wanted) for chunk in column.chunks], wanted)
    if pa.types.is_interval(wanted) and pa.types.is_duration(column.type):
        nanoseconds = column.cast(pa.duration("ns")).cast(pa.int64())
        values = [None if value is None else (0, *_days(value)) for value in nanoseconds.to_pylist()]
        return pa.chunked_array([pa.array(values, wanted)])
    # Ibis counts seconds where the gateway counts microseconds. Nothing else may be lost.
    options: Any = pc.CastOptions(wanted, allow_time_truncate=True)
    return column.cast(options=options)


def _days(nanoseconds: int) -> tuple[int, int]:
    days, rest = divmod(nanoseconds, _NANOSECONDS_OF_DAY)
    return days, rest


def _durations(chunk: Any, wanted: Any) -> Any:
    """Converts intervals to durations. Raises `pyarrow.ArrowInvalid` for months, whose length differs."""
    values = []
    for interval in chunk.to_pylist():
        if interval is not None and interval.months:
            raise pa.ArrowInvalid(f"an interval of {interval.months} months has no length in days")
        nanoseconds = None if interval is None else interval.days * _NANOSECONDS_OF_DAY + interval.nanoseconds
        values.append(None if nanoseconds is None else nanoseconds // _NANOSECONDS[wanted.unit])
    return pa.array(values, pa.int64()).cast(wanted)
