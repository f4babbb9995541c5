"""Maps the types of Arrow to types of SQLAlchemy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlalchemy import types as sqltypes

from ._types import DOUBLE, MAP, STRUCT, TIME, TIMESTAMP

_Double: Any = getattr(sqltypes, "DOUBLE", DOUBLE)
# The digits of the second, by the unit of a type. Those of microseconds are the default.
_DIGITS = {"s": 0, "ms": 3, "ns": 9}


def column_type(arrow: pa.DataType) -> Any:
    """Returns the SQLAlchemy type for a type of Arrow that the gateway sends."""
    types = pa.types
    if types.is_boolean(arrow):
        return sqltypes.BOOLEAN()
    if types.is_int64(arrow) or types.is_uint32(arrow):
        return sqltypes.BIGINT()
    if types.is_int8(arrow) or types.is_int16(arrow) or types.is_uint8(arrow):
        return sqltypes.SMALLINT()
    if types.is_integer(arrow):
        return sqltypes.INTEGER()
    if types.is_float64(arrow):
        return _Double()
    if types.is_floating(arrow):
        return sqltypes.REAL()
    if types.is_decimal(arrow):
        return sqltypes.DECIMAL(arrow.precision, arrow.scale)
    if types.is_date(arrow):
        return sqltypes.DATE()
    if types.is_time(arrow):
        return TIME(precision=_DIGITS[arrow.unit]) if arrow.unit in _DIGITS else sqltypes.TIME()
    if types.is_timestamp(arrow):
        has_zone = arrow.tz is not None
        if arrow.unit in _DIGITS:
            return TIMESTAMP(timezone=has_zone, precision=_DIGITS[arrow.unit])
        return sqltypes.TIMESTAMP(timezone=has_zone)
    if types.is_string(arrow) or types.is_large_string(arrow):
        return sqltypes.VARCHAR()
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
        return sqltypes.LargeBinary()
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        item = column_type(arrow.value_type)
        if isinstance(item, sqltypes.ARRAY):
            return sqltypes.ARRAY(item.item_type, dimensions=(item.dimensions or 1) + 1)
        return sqltypes.ARRAY(item)
    if types.is_struct(arrow):
        fields = (arrow.field(position) for position in range(arrow.num_fields))
        return STRUCT({field.name: column_type(field.type) for field in fields})
    if types.is_map(arrow):
        return MAP(column_type(arrow.key_type), column_type(arrow.item_type))
    return sqltypes.NullType()
