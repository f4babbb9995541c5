"""The dialect of sqlglot, which writes and reads SQL of Volary."""

from __future__ import annotations

from typing import Any

import sqlglot.expressions as sge
from ibis.backends.sql.dialects import DataFusion
from sqlglot.dialects.dialect import rename_func

from .._sqlglot import BITWISE, TRANSFORMS, TYPE_NAMES

# Functions whose arguments are no list of expressions with commas.
_WITH_SYNTAX = frozenset({"CAST", "EXTRACT", "OVERLAY", "POSITION", "STRING_AGG", "SUBSTRING", "TRIM", "TRY_CAST"})


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

    class Parser(DataFusion.Parser):
        """Reads SQL that a user has written, so that the same is sent to the server.

        All functions are unknown ones, except those with a syntax of their own. Otherwise, sqlglot would write
        `to_char(t, '%Y')` as `to_char(t, 'YYYY')`, and `^`, the exclusive or of bits, as a power.
        """

        FUNCTIONS: Any = {}  # noqa: RUF012  # as sqlglot declares it
        FUNCTION_PARSERS: Any = {  # noqa: RUF012
            name: parse for name, parse in DataFusion.Parser.FUNCTION_PARSERS.items() if name in _WITH_SYNTAX
        }
        BITWISE: Any = {**DataFusion.Parser.BITWISE, **BITWISE}  # noqa: RUF012
        EXPONENT: Any = {}  # noqa: RUF012
        # Keeps the keys of MAP {…} as they are, which tells them from the names in {…}.
        MAP_KEYS_ARE_ARBITRARY_EXPRESSIONS = True

    class Generator(DataFusion.Generator):
        """Writes expressions as SQL."""

        TYPE_MAPPING = {**DataFusion.Generator.TYPE_MAPPING, **TYPE_NAMES}  # noqa: RUF012  # as sqlglot declares it
        TRANSFORMS = {  # noqa: RUF012  # as sqlglot declares it
            # Without the rule for SELECT, which would replace QUALIFY.
            **{key: rule for key, rule in DataFusion.Generator.TRANSFORMS.items() if key is not sge.Select},
            **TRANSFORMS,
            sge.CurrentDate: lambda self, e: "CURRENT_DATE",
            sge.Explode: _unnest,
            sge.Interval: _interval,
            sge.Levenshtein: rename_func("levenshtein"),
            sge.Rand: rename_func("random"),
            sge.TryCast: lambda self, e: f"TRY_CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})",
        }
