"""What sqlglot must know about Volary's SQL. Ibis and Superset read and write statements with it, as PostgreSQL's."""

from __future__ import annotations

from typing import Any

import sqlglot.expressions as exp
from sqlglot.tokens import TokenType

_TYPE = exp.DataType.Type

TYPE_NAMES: dict[Any, str] = {
    _TYPE.TINYINT: "TINYINT",
    _TYPE.UTINYINT: "TINYINT UNSIGNED",
    _TYPE.USMALLINT: "SMALLINT UNSIGNED",
    _TYPE.UINT: "INTEGER UNSIGNED",
    _TYPE.UBIGINT: "BIGINT UNSIGNED",
    _TYPE.FLOAT: "REAL",
    _TYPE.DOUBLE: "DOUBLE",
    _TYPE.VARBINARY: "BYTEA",
}
"""The names of types."""

BITWISE: dict[Any, Any] = {TokenType.CARET: exp.BitwiseXor}
"""`^` is the exclusive or of bits. In PostgreSQL, it is a power."""


def _struct(generator: Any, expression: exp.Struct) -> str:
    """Writes `{'a': 1}` as a call, because PostgreSQL has no such literals, and `MAP {'a': 1}` as it is."""
    items = expression.expressions
    if not all(isinstance(item, exp.PropertyEQ) for item in items):
        return str(generator.function_fallback_sql(expression))
    if all(isinstance(item.this, exp.Identifier) for item in items):
        fields = ((exp.Literal.string(item.name), item.expression) for item in items)
        return str(generator.func("named_struct", *(part for field in fields for part in field)))
    return f"MAP {{{', '.join(f'{generator.sql(item.this)}: {generator.sql(item.expression)}' for item in items)}}}"


TRANSFORMS: dict[Any, Any] = {
    exp.BitwiseXor: lambda generator, e: generator.binary(e, "^"),
    exp.IgnoreNulls: lambda generator, e: f"{generator.sql(e, 'this')} IGNORE NULLS",
    exp.Struct: _struct,
}
"""How expressions are written that PostgreSQL does not have, or writes in another way."""
