"""Types whose values SQLAlchemy and Volary represent differently."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import CompileError

if TYPE_CHECKING:
    _Numeric: TypeAlias = sqltypes.Numeric[Any]
    _Float: TypeAlias = sqltypes.Float[Any]
    _Span: TypeAlias = sqltypes.TypeEngine[datetime.timedelta]
    _AnyType: TypeAlias = sqltypes.TypeEngine[Any]
    _Uuid: TypeAlias = sqltypes.Uuid[Any]
else:
    # The types of SQLAlchemy 1.4, which Superset needs, take no parameters. It has no type for UUIDs.
    _Numeric, _Float, _Span, _AnyType = sqltypes.Numeric, sqltypes.Float, sqltypes.TypeEngine, sqltypes.TypeEngine
    _Uuid = getattr(sqltypes, "Uuid", sqltypes.TypeEngine)

EPOCH = datetime.datetime(1970, 1, 1)
"""The time that represents an interval of length zero."""


class TIMESTAMP(sqltypes.TIMESTAMP):
    """TIMESTAMP(precision), where `precision` is the number of digits of the second: 0, 3, 6 or 9.

    SQLAlchemy's own types are created with 6 digits, which is what Python's times have.
    """

    def __init__(self, timezone: bool = False, precision: int | None = None) -> None:
        super().__init__(timezone=timezone)
        self.precision = precision


class TIME(sqltypes.TIME):
    """TIME(precision), as with `TIMESTAMP`."""

    def __init__(self, timezone: bool = False, precision: int | None = None) -> None:
        super().__init__(timezone=timezone)
        self.precision = precision


class DOUBLE(_Float):
    """DOUBLE, for SQLAlchemy 1.4. SQLAlchemy 2 has a type of this name."""

    __visit_name__ = "DOUBLE"


class STRUCT(_AnyType):
    """STRUCT<name type, …>. Values are dictionaries."""

    __visit_name__ = "STRUCT"
    cache_ok = True

    def __init__(self, fields: Mapping[str, _AnyType] | Iterable[tuple[str, _AnyType]]) -> None:
        # SQLAlchemy makes copies with what the attribute holds.
        self.fields = tuple(dict(fields).items())

    @property
    def python_type(self) -> type[Any]:
        """The type of the values."""
        return dict


class MAP(_AnyType):
    """A map. Files that are loaded may have some, but CREATE TABLE has no word for the type."""

    __visit_name__ = "MAP"
    cache_ok = True

    def __init__(self, key: _AnyType, value: _AnyType) -> None:
        self.key = key
        self.value = value


class UtcDateTime(sqltypes.DateTime):
    """Times. Those of a column without a time zone are taken to be in UTC if the type has one."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Returns a function that adds the time zone UTC to a time without one."""
        if not self.timezone:
            return None

        def process(value: datetime.datetime | None) -> datetime.datetime | None:
            if value is None or value.tzinfo is not None:
                return value
            return value.replace(tzinfo=datetime.UTC)

        return process

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """Returns a function that writes a literal with microseconds.

        The default literals of SQL have nanoseconds, and therefore no years before 1677 or after 2262.
        """
        kind = "TIMESTAMP(6) WITH TIME ZONE" if self.timezone else "TIMESTAMP(6)"
        return lambda value: f"CAST('{value.isoformat(' ')}' AS {kind})"


class Date(sqltypes.Date):
    """Dates whose literals have the type DATE instead of being text."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """Returns a function that writes literals such as `DATE '2026-11-22'`."""
        return lambda value: f"DATE '{datetime.date(value.year, value.month, value.day)}'"


class Time(sqltypes.Time):
    """Times of day whose literals have the type TIME instead of being text."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """Returns a function that writes literals such as `TIME '12:30:15.000001'`."""
        return lambda value: f"TIME '{value.isoformat()}'"


class Interval(sqltypes.Interval):
    """Intervals. Volary has no columns of intervals, so an interval is stored as a time at that distance from the start
    of 1970.
    """

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """Returns a function that converts an interval to a time."""
        return lambda value: None if value is None else EPOCH + value

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """Returns a function that writes literals such as `TIMESTAMP(6) '1970-01-02 00:00:00'`."""
        return lambda value: f"TIMESTAMP(6) '{EPOCH + value}'"

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Returns a function that converts a stored time, or an interval that SQL has computed, to a timedelta."""

        def process(value: Any) -> Any:
            if isinstance(value, datetime.datetime):
                return value - EPOCH
            if isinstance(value, pa.MonthDayNano) and value.months == 0:
                return datetime.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
            return value

        return process


class Span(_Span):
    """A timedelta as an SQL interval. Statements can contain intervals only as literals."""

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """Returns a function that writes literals such as `INTERVAL '1 days 5 microseconds'`."""

        def process(value: datetime.timedelta) -> str:
            microseconds = value.seconds * 1_000_000 + value.microseconds
            return f"INTERVAL '{value.days} days {microseconds} microseconds'"

        return process


class Exact(_Numeric):
    """Decimals. Parameters and results of other numeric types are converted to decimals.

    The parameters of many rows must have one type, and the result of a division may have another type than its
    operands.
    """

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Returns a function that converts any number to a decimal."""
        return lambda value: None if value is None else _decimal(value)

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:
        """Returns a function that writes a literal with the type DECIMAL.

        Without the type, a number with a decimal point or with many digits would be a float in SQL.
        """

        def process(value: Any) -> str:
            exact = _decimal(value)
            if not exact.is_finite():
                raise CompileError(f"{exact} has no DECIMAL value")
            _, digits, exponent = exact.as_tuple()
            scale = max(0, -int(exponent))
            precision = max(len(digits) + max(0, int(exponent)), scale, 1)
            return f"CAST('{exact:f}' AS DECIMAL({precision}, {scale}))"

        return process

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Returns a function that converts a result to a decimal, or to a float if the caller asked for floats."""
        inherited: Any = super()
        to_float: Callable[[Any], Any] | None = inherited.result_processor(dialect, coltype)
        if to_float is not None:
            return to_float
        scale = self._effective_decimal_return_scale

        def process(value: Any) -> Any:
            return decimal.Decimal(f"{value:.{scale}f}") if isinstance(value, float) else value

        return process


def _decimal(value: Any) -> decimal.Decimal:
    """Converts a number to a decimal. For a float, takes the digits that Python shows, not those of the binary
    fraction.
    """
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))


class Double(_Float):
    """Floats. Parameters of many rows are one column of one type, so numbers of other types become floats."""

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Returns a function that converts any number to a float."""

        def process(value: Any) -> float | None:
            return None if value is None else float(value)

        return process


class Uuid(_Uuid):
    """UUIDs. SQLAlchemy creates columns of texts for them, but a table may have a column of UUIDs, too.

    `volary.dbapi` returns texts of the former and objects of Python's `uuid.UUID` of the latter.
    """

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Returns a function that converts both to what the type asks for."""

        def process(value: Any) -> Any:
            if value is None:
                return None
            found = value if isinstance(value, uuid.UUID) else uuid.UUID(value)
            return found if self.as_uuid else str(found)

        return process
