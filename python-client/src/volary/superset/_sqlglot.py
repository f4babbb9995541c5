"""Tells sqlglot, with which Superset reads and rewrites statements, what Volary's SQL is."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from .._sqlglot import BITWISE, TRANSFORMS, TYPE_NAMES


class Volary(Postgres):
    """PostgreSQL's syntax with DataFusion's functions and types.

    Superset writes every query that it limits anew. So functions are kept as they are written: sqlglot would replace
    some of them by functions of PostgreSQL with other formats or another meaning, such as `to_char` and `median`.
    """

    NORMALIZE_FUNCTIONS: Any = False

    class Parser(Postgres.Parser):
        """Reads all functions as unknown ones, except those with a syntax of their own."""

        FUNCTIONS: Any = {}  # noqa: RUF012  # as sqlglot declares it
        BITWISE: Any = {**Postgres.Parser.BITWISE, **BITWISE}  # noqa: RUF012
        EXPONENT: Any = {}  # noqa: RUF012
        # Keeps the keys of MAP {…} as they are, which tells them from the names in {…}.
        MAP_KEYS_ARE_ARBITRARY_EXPRESSIONS = True

    class Generator(Postgres.Generator):
        """Writes types and casts as Volary has them."""

        TYPE_MAPPING: Any = {**Postgres.Generator.TYPE_MAPPING, **TYPE_NAMES}  # noqa: RUF012
        TRANSFORMS: Any = {  # noqa: RUF012
            **{kind: write for kind, write in Postgres.Generator.TRANSFORMS.items() if kind is not exp.TryCast},
            **TRANSFORMS,
        }
