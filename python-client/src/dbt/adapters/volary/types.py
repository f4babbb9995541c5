"""The SQL names of Arrow's types."""

from __future__ import annotations

import pyarrow as pa

_NAMES = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "REAL"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_decimal, "DECIMAL"),
    (pa.types.is_string, "VARCHAR"),
    (pa.types.is_large_string, "VARCHAR"),
    (pa.types.is_binary, "BYTEA"),
    (pa.types.is_large_binary, "BYTEA"),
    (pa.types.is_fixed_size_binary, "BYTEA"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
)


def sql_name(kind: pa.DataType) -> str:
    """Returns the name of a type without its precision.

    Contracts compare these names. A table has the precision that its contract declares, and values are cast to it.
    """
    for matches, name in _NAMES:
        if matches(kind):
            return name
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{sql_name(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name} {sql_name(field.type)}' for field in kind)}>"
    return str(kind).upper()
