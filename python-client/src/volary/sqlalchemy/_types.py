"""Values that SQLAlchemy and Volary have otherwise."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from sqlalchemy import types as sqltypes
from sqlalchemy.engine import Dialect


class UtcDateTime(sqltypes.DateTime):
    """Times with a time zone are kept as those of UTC, and come back as such."""

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """From any time zone to UTC."""
        if not self.timezone:
            return None

        def process(value: datetime.datetime | None) -> datetime.datetime | None:
            if value is None or value.tzinfo is None:
                return value
            return value.astimezone(datetime.UTC).replace(tzinfo=None)

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """In UTC."""
        if not self.timezone:
            return None

        def process(value: datetime.datetime | None) -> datetime.datetime | None:
            if value is None or value.tzinfo is not None:
                return value
            return value.replace(tzinfo=datetime.UTC)

        return process


class Double(sqltypes.Float[Any]):
    """Parameters of many rows are one column, which has one type: a number that is no float is made one."""

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """From whatever is a number to a float."""

        def process(value: Any) -> float | None:
            return None if value is None else float(value)

        return process
