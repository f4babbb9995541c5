"""Converts Arrow data to pandas, from which Ibis makes the frame of an expression."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ._results import conform

_MICROSECONDS = pa.duration("us")


def to_frame(rows: pa.Table, schema: pa.Schema) -> Any:
    """Returns a pandas DataFrame of rows that should have the names and types of `schema`."""
    import pandas

    # pandas has durations in microseconds, where Ibis counts seconds or days.
    fields = [
        field.with_type(_MICROSECONDS) if _is_duration(field.type, column) else field
        for field, column in zip(schema, rows.columns, strict=True)
    ]
    table = conform(rows, pa.schema(fields))
    return pandas.DataFrame(dict(zip(table.column_names, map(_series, table.columns), strict=True)))


def _is_duration(wanted: pa.DataType, column: Any) -> bool:
    """Says whether a column of intervals has no months, whose length differs."""
    if not (pa.types.is_interval(wanted) or pa.types.is_duration(wanted)):
        return False
    return not pa.types.is_interval(column.type) or not any(value and value.months for value in column.to_pylist())


def _series(column: Any) -> Any:
    import pandas

    if pa.types.is_nested(column.type):
        # pyarrow would turn lists into arrays of numpy, and integers among NULL into floating-point numbers.
        return pandas.Series(column.to_pylist(), dtype="object")
    # Timestamps of Python have microseconds.
    has_nanoseconds = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return column.to_pandas(timestamp_as_object=not has_nanoseconds, date_as_object=True)
