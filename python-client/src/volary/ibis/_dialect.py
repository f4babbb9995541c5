"""The dialect of sqlglot, which writes and reads SQL of Volary."""

from __future__ import annotations

from typing import Any

import sqlglot.expressions as sge
from ibis.backends.sql.dialects import DataFusion
from sqlglot.dialects.dialect import rename_func

_TYPES = sge.DataType.Type


def _unnest(generator: Any, expression: Any) -> str:
    return str(generator.func("unnest", expression.this))


def _interval(generator: Any, expression: Any) -> str:
    """Writes `INTERVAL '5 days'`: the number and the unit are one text."""
    amount = expression.this
    unit = expression.args.get("unit")
    text = amount.name if unit is None else f"{amount.name} {generator.sql(unit)}"
    return f"INTERVAL '{text.lower()}'"


class Volary(DataFusion):
    """SQL of DataFusion with the names of types that Volary has."""

    # The names of table functions count as they are written, and all of them are written in lower case.
    NORMALIZE_FUNCTIONS = "lower"

    class Generator(DataFusion.Generator):
        """Writes expressions as SQL."""

        TYPE_MAPPING = {  # noqa: RUF012  # as sqlglot declares it
            **DataFusion.Generator.TYPE_MAPPING,
            _TYPES.TINYINT: "TINYINT",
            _TYPES.UTINYINT: "TINYINT UNSIGNED",
            _TYPES.USMALLINT: "SMALLINT UNSIGNED",
            _TYPES.UINT: "INTEGER UNSIGNED",
            _TYPES.UBIGINT: "BIGINT UNSIGNED",
            _TYPES.FLOAT: "REAL",
            _TYPES.DOUBLE: "DOUBLE",
            _TYPES.VARBINARY: "BYTEA",
        }
        TRANSFORMS = {  # noqa: RUF012  # as sqlglot declares it
            # Without the rule for SELECT, which would replace QUALIFY.
            **{key: rule for key, rule in DataFusion.Generator.TRANSFORMS.items() if key is not sge.Select},
            sge.BitwiseXor: lambda self, e: self.binary(e, "^"),
            sge.CurrentDate: lambda self, e: "CURRENT_DATE",
            sge.Explode: _unnest,
            sge.Interval: _interval,
            sge.Levenshtein: rename_func("levenshtein"),
            sge.Rand: rename_func("random"),
            sge.TryCast: lambda self, e: f"TRY_CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})",
        }
