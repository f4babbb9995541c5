"""Tells sqlglot, with which Superset reads and rewrites statements, what Volary's SQL is."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

_TYPE = exp.DataType.Type


def _struct(generator: Any, expression: exp.Struct) -> str:
    """Writes `{'a': 1}` as a call, because PostgreSQL has no such literals."""
    arguments = []
    for item in expression.expressions:
        if not isinstance(item, exp.PropertyEQ):
            return str(generator.function_fallback_sql(expression))
        arguments += [exp.Literal.string(item.name), item.expression]
    return str(generator.func("named_struct", *arguments))


class Volary(Postgres):
    """PostgreSQL's syntax with DataFusion's functions and types.

    Superset writes every query that it limits anew. So functions are kept as they are written: sqlglot would replace
    some of them by functions of PostgreSQL with other formats or another meaning, such as `to_char` and `median`.
    """

    NORMALIZE_FUNCTIONS: Any = False

    class Parser(Postgres.Parser):
        """Reads all functions as unknown ones, except those with a syntax of their own."""

        FUNCTIONS: Any = {}  # noqa: RUF012  # as sqlglot declares it

    class Generator(Postgres.Generator):
        """Writes types and casts as Volary has them."""

        TYPE_MAPPING: Any = {  # noqa: RUF012
            **Postgres.Generator.TYPE_MAPPING,
            _TYPE.TINYINT: "TINYINT",
            _TYPE.UTINYINT: "TINYINT UNSIGNED",
            _TYPE.USMALLINT: "SMALLINT UNSIGNED",
            _TYPE.UINT: "INTEGER UNSIGNED",
            _TYPE.UBIGINT: "BIGINT UNSIGNED",
            _TYPE.FLOAT: "REAL",
            _TYPE.DOUBLE: "DOUBLE",
        }
        TRANSFORMS: Any = {  # noqa: RUF012
            **{kind: write for kind, write in Postgres.Generator.TRANSFORMS.items() if kind is not exp.TryCast},
            exp.Struct: _struct,
        }
