"""Converts the types of Ibis to the types of SQL, and those of Arrow to the types of Ibis."""

from __future__ import annotations

from typing import Any

import ibis.common.exceptions as com
import ibis.expr.datatypes as dt
import ibis.expr.schema as sch
import pyarrow as pa
import sqlglot.expressions as sge
from ibis.backends.sql.datatypes import DataFusionType
from ibis.formats.pyarrow import PyArrowType

_TYPES = sge.DataType.Type


class VolaryType(DataFusionType):
    """The names of types in SQL."""

    dialect = "volary"

    @classmethod
    def _from_ibis_String(cls, dtype: Any) -> Any:
        return sge.DataType(this=_TYPES.VARCHAR)

    # Values of these types are texts for Ibis, which keeps the type of the expression. A column of the server's type
    # UUID is read as text, too.
    _from_ibis_JSON = _from_ibis_UUID = _from_ibis_INET = _from_ibis_MACADDR = _from_ibis_String

    @classmethod
    def _from_ibis_Timestamp(cls, dtype: Any) -> Any:
        code = _TYPES.TIMESTAMP if dtype.timezone is None else _TYPES.TIMESTAMPTZ
        if dtype.scale is None:
            return sge.DataType(this=code)
        digits = next(digits for digits in (0, 3, 6, 9) if dtype.scale <= digits)
        return sge.DataType(this=code, expressions=[sge.DataTypeParam(this=sge.Literal.number(digits))])

    @classmethod
    def _from_ibis_Decimal(cls, dtype: Any) -> Any:
        precision = 38 if dtype.precision is None else dtype.precision
        scale = 9 if dtype.scale is None else dtype.scale
        places = [sge.DataTypeParam(this=sge.Literal.number(number)) for number in (precision, scale)]
        return sge.DataType(this=_TYPES.DECIMAL, expressions=places)

    @classmethod
    def _from_ibis_Interval(cls, dtype: Any) -> Any:
        return sge.DataType(this=_TYPES.INTERVAL)

    @classmethod
    def _from_ibis_Map(cls, dtype: Any) -> Any:
        raise com.UnsupportedOperationError(
            "SQL of Volary has no name for the type of a map; give create_table the rows as Arrow data"
        )


def arrow_type_name(dtype: Any) -> str:
    """Returns the name by which `arrow_cast` knows a type of timestamps."""
    unit = dtype.unit.name.capitalize() if dtype.scale is not None else "Microsecond"
    zone = "None" if dtype.timezone is None else f'Some("{dtype.timezone}")'
    return f"Timestamp({unit}, {zone})"


def schema_of(schema: pa.Schema) -> sch.Schema:
    """Returns the types of Ibis for the columns of a table or a result."""
    return sch.Schema({field.name: type_of(field.type, field.nullable) for field in schema})


def type_of(arrow: pa.DataType, nullable: bool = True) -> Any:
    """Returns the type of Ibis for a type of Arrow."""
    if pa.types.is_interval(arrow):
        # Ibis knows intervals of one unit only. Those of days keep months and nanoseconds in Arrow data.
        return dt.Interval("D", nullable=nullable)
    if pa.types.is_struct(arrow):
        fields = {field.name: type_of(field.type, field.nullable) for field in arrow}
        return dt.Struct(fields, nullable=nullable)
    if pa.types.is_fixed_size_binary(arrow) or arrow == pa.binary_view():
        return dt.Binary(nullable=nullable)
    return PyArrowType.to_ibis(arrow, nullable)
