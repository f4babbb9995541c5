"""Values that SQLAlchemy and Volary have otherwise."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import CompileError

EPOCH = datetime.datetime(1970, 1, 1)
"""The time that stands for an interval of nothing."""


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

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """With microseconds: the literals of SQL have nanoseconds, and so no years before 1677 and after 2262."""
        bind = self.bind_processor(dialect)

        def process(value: datetime.datetime) -> str:
            return f"TIMESTAMP(6) '{(bind(value) if bind else value).isoformat(' ')}'"

        return process


class Date(sqltypes.Date):
    """Literals that are dates by themselves, not text."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """`DATE '2026-11-22'`."""
        return lambda value: f"DATE '{datetime.date(value.year, value.month, value.day)}'"


class Time(sqltypes.Time):
    """Literals that are times by themselves, not text."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """`TIME '12:30:15.000001'`."""
        return lambda value: f"TIME '{value.isoformat()}'"


class Interval(sqltypes.Interval):
    """No column has an interval: it is kept as the time that is so long after the first second of 1970."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """From an interval to a time."""
        return lambda value: None if value is None else EPOCH + value

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """`TIMESTAMP(6) '1970-01-02 00:00:00'`."""
        return lambda value: f"TIMESTAMP(6) '{EPOCH + value}'"

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """From such a time, or from what SQL has computed, to an interval."""

        def process(value: Any) -> Any:
            if isinstance(value, datetime.datetime):
                return value - EPOCH
            if isinstance(value, pa.MonthDayNano) and value.months == 0:
                return datetime.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
            return value

        return process


class Span(sqltypes.TypeEngine[datetime.timedelta]):
    """A timedelta as an interval, which statements have as literals only."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """`INTERVAL '1 days 5 microseconds'`."""

        def process(value: datetime.timedelta) -> str:
            microseconds = value.seconds * 1_000_000 + value.microseconds
            return f"INTERVAL '{value.days} days {microseconds} microseconds'"

        return process


class Exact(sqltypes.Numeric[Any]):
    """Decimals, whatever is given or comes back: parameters of many rows have one type, and a division has others."""

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """From whatever is a number to a decimal."""
        return lambda value: None if value is None else _decimal(value)

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """As a decimal by itself: a number with a point is a float in SQL here, and so is one with many digits."""

        def process(value: Any) -> str:
            exact = _decimal(value)
            if not exact.is_finite():
                raise CompileError(f"{exact} is no decimal")
            _, digits, exponent = exact.as_tuple()
            scale = max(0, -int(exponent))
            precision = max(len(digits) + max(0, int(exponent)), scale, 1)
            return f"CAST('{exact:f}' AS DECIMAL({precision}, {scale}))"

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """To a decimal, or to a float if it was asked for."""
        inherited: Any = super()
        to_float: Callable[[Any], Any] | None = inherited.result_processor(dialect, coltype)
        if to_float is not None:
            return to_float
        scale = self._effective_decimal_return_scale

        def process(value: Any) -> Any:
            return decimal.Decimal(f"{value:.{scale}f}") if isinstance(value, float) else value

        return process


def _decimal(value: Any) -> decimal.Decimal:
    """Of a float the digits that Python shows, not those of its binary fraction."""
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))


class Double(sqltypes.Float[Any]):
    """Parameters of many rows are one column, which has one type: a number that is no float is made one."""

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """From whatever is a number to a float."""

        def process(value: Any) -> float | None:
            return None if value is None else float(value)

        return process
