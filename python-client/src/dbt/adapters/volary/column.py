"""The columns of tables and queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbt.adapters.base.column import Column

# What `information_schema` has as the greatest length of text.
_ANY_LENGTH = 2**31 - 1


@dataclass
class VolaryColumn(Column):
    """A column. Its type is kept as `information_schema` and the macros write it: `DECIMAL(10, 2)`, `VARCHAR`."""

    TYPE_LABELS: ClassVar[dict[str, str]] = {
        "STRING": "VARCHAR",
        "FLOAT": "DOUBLE",
        "INTEGER": "INTEGER",
    }

    @property
    def data_type(self) -> str:
        """The type as SQL. Text has no length."""
        return self.dtype

    @property
    def can_be_cast_to(self) -> bool:
        """Says whether `dtype` is a complete type. `information_schema` does not list the fields of a struct."""
        return self.dtype.rstrip("[]").upper() not in ("STRUCT", "MAP")

    def is_numeric(self) -> bool:
        """Says whether this is a decimal."""
        return self.dtype.split("(")[0].strip().lower() in ("decimal", "numeric", "dec")

    def is_integer(self) -> bool:
        """Says whether this is an integer."""
        return self.dtype.lower().removesuffix(" unsigned") in ("tinyint", "smallint", "integer", "int", "bigint")

    def string_size(self) -> int:
        """Returns a number that is the same for all text, because text has no maximum length."""
        return _ANY_LENGTH if self.is_string() else super().string_size()

    @classmethod
    def string_type(cls, size: int) -> str:
        """Returns the type of text, which has no length."""
        return "VARCHAR"
