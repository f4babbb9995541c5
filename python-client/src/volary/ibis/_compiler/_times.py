"""Rules for dates, times, timestamps and intervals."""

from __future__ import annotations

import re
import string
from typing import Any

import ibis.common.exceptions as com
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import sqlglot as sg
import sqlglot.expressions as sge
from ibis.common.deferred import var
from ibis.common.patterns import replace
from ibis.common.temporal import IntervalUnit
from ibis.expr.rewrites import p

from .._types import arrow_type_name

# The units of intervals in SQL, and how many of them one unit of Ibis is.
_UNITS = {
    "Y": (1, "years"),
    "Q": (3, "months"),
    "M": (1, "months"),
    "W": (1, "weeks"),
    "D": (1, "days"),
    "h": (1, "hours"),
    "m": (1, "minutes"),
    "s": (1, "seconds"),
    "ms": (1, "milliseconds"),
    "us": (1, "microseconds"),
    "ns": (1, "nanoseconds"),
}
_MICROSECONDS = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
# Directives of strftime for the time of day. A format without them reads dates only.
_TIMES_OF_DAY = frozenset("HIkloMSfTRrXcspPLQ+")

_x, _y, _unit = var("x"), var("y"), var("unit")


@replace(p.IntervalMultiply(p.IntervalFromInteger(_x, _unit), _y))
def multiply_before_interval(_: Any, x: Any, y: Any, unit: Any, **kwargs: Any) -> Any:
    """Multiplies the integer that an interval is made of, because SQL cannot multiply intervals."""
    return ops.IntervalFromInteger(ops.Multiply(x, y), unit)


@replace(p.IntervalMultiply(p.Literal, _y))
def multiply_literal_interval(_: Any, y: Any, **kwargs: Any) -> Any:
    """Multiplies the integer of a literal interval."""
    return ops.IntervalFromInteger(ops.Multiply(ops.Literal(_.left.value, dt.int64), y), _.left.dtype.unit)


REWRITES = (multiply_before_interval, multiply_literal_interval)


class Times:
    """Rules for times, as a part of the compiler."""

    __slots__ = ()

    f: Any
    cast: Any
    _joined: Any

    # Parts.

    def _part(self, name: str, arg: Any) -> Any:
        return self.f.anon.date_part(name, arg)

    def _whole_part(self, name: str, arg: Any, modulus: int | None = None) -> Any:
        """Returns a part that has a fraction on the server without it."""
        part = self.cast(self.f.floor(self._part(name, arg)), dt.int64)
        return part if modulus is None else part % modulus

    def visit_ExtractIsoYear(self, op: Any, *, arg: Any) -> Any:
        return self._part("isoyear", arg)

    def visit_ExtractHour(self, op: Any, *, arg: Any) -> Any:
        return self._part("hour", arg)

    def visit_ExtractMinute(self, op: Any, *, arg: Any) -> Any:
        return self._part("minute", arg)

    def visit_ExtractSecond(self, op: Any, *, arg: Any) -> Any:
        return self._whole_part("second", arg)

    def visit_ExtractMillisecond(self, op: Any, *, arg: Any) -> Any:
        return self._whole_part("millisecond", arg, 1000)

    def visit_ExtractMicrosecond(self, op: Any, *, arg: Any) -> Any:
        return self._whole_part("microsecond", arg, 1_000_000)

    def visit_ExtractEpochSeconds(self, op: Any, *, arg: Any) -> Any:
        return self._whole_part("epoch", arg)

    # Conversions.

    def visit_Date(self, op: Any, *, arg: Any) -> Any:
        return self.cast(arg, dt.date)

    def visit_Time(self, op: Any, *, arg: Any) -> Any:
        return self.cast(arg, dt.time)

    def visit_Strftime(self, op: Any, *, arg: Any, format_str: Any) -> Any:
        return self.f.anon.to_char(arg, _format(format_str))

    def visit_StringToTimestamp(self, op: Any, *, arg: Any, format_str: Any) -> Any:
        text = _format(format_str)
        if _reads_dates_only(op.format_str):
            return self.cast(self.f.anon.to_date(arg, text), op.dtype)
        return self.f.anon.to_timestamp_micros(arg, text)

    def visit_StringToDate(self, op: Any, *, arg: Any, format_str: Any) -> Any:
        return self.f.anon.to_date(arg, _format(format_str))

    def visit_StringToTime(self, op: Any, *, arg: Any, format_str: Any) -> Any:
        return self.f.anon.to_time(arg, _format(format_str))

    def visit_TimestampFromUNIX(self, op: Any, *, arg: Any, unit: Any) -> Any:
        return self.f.arrow_cast(self.cast(arg, dt.int64), f"Timestamp({unit.name.capitalize()}, None)")

    def visit_TimestampFromYMDHMS(
        self, op: Any, *, year: Any, month: Any, day: Any, hours: Any, minutes: Any, seconds: Any, **_: Any
    ) -> Any:
        date = self.cast(self.visit_DateFromYMD(op, year=year, month=month, day=day), dt.Timestamp(scale=6))
        count = sge.paren(sge.paren(hours) * 3600 + sge.paren(minutes) * 60 + sge.paren(seconds))
        return date + self.visit_IntervalFromInteger(op, arg=count, unit=IntervalUnit.SECOND)

    def visit_DateFromYMD(self, op: Any, *, year: Any, month: Any, day: Any) -> Any:
        return self.f.anon.make_date(year, month, day)

    def visit_TimeFromHMS(self, op: Any, *, hours: Any, minutes: Any, seconds: Any) -> Any:
        return self.f.anon.make_time(hours, minutes, seconds)

    def _timestamp(self, value: Any, to: Any, from_: Any) -> Any:
        """Casts a value to a timestamp. Integers count seconds since the start of 1970."""
        if from_.is_integer() or from_.is_boolean():
            value = self.f.arrow_cast(self.cast(value, dt.int64), "Timestamp(Second, None)")
            from_ = dt.timestamp
        elif from_.is_numeric():
            microseconds = self.cast(self.f.round(sge.paren(self.cast(value, dt.float64)) * 1_000_000), dt.int64)
            value = self.f.arrow_cast(microseconds, "Timestamp(Microsecond, None)")
            from_ = dt.timestamp
        if to.timezone in (None, "UTC"):
            return self.cast(value, to)
        # SQL has no name for a timestamp of another zone than the session's.
        if from_.is_string() or from_.is_date() or (from_.is_timestamp() and from_.timezone is None):
            value = self.cast(value, to)
        return self.f.arrow_cast(value, arrow_type_name(to))

    # Truncation.

    def visit_TimestampTruncate(self, op: Any, *, arg: Any, unit: Any) -> Any:
        if unit.short == "ns":
            return arg
        return self.f.anon.date_trunc(unit.name.lower(), arg)

    visit_TimeTruncate = visit_TimestampTruncate

    def visit_DateTruncate(self, op: Any, *, arg: Any, unit: Any) -> Any:
        return self.cast(self.visit_TimestampTruncate(op, arg=arg, unit=unit), dt.date)

    def visit_TimestampBucket(self, op: Any, *, arg: Any, interval: Any, offset: Any) -> Any:
        origin = self.cast("1970-01-01T00:00:00", op.arg.dtype)
        if offset is not None:
            origin = sge.paren(origin + offset)
        return self.cast(self.f.anon.date_bin(interval, arg, origin), op.dtype)

    # Differences.

    def visit_DateDiff(self, op: Any, *, left: Any, right: Any) -> Any:
        days = sge.paren(sge.paren(left) - sge.paren(right))
        return self.visit_IntervalFromInteger(op, arg=days, unit=op.dtype.unit)

    def visit_TimestampDelta(self, op: Any, *, part: Any, left: Any, right: Any) -> Any:
        """Counts the boundaries of the unit between two times, as other databases do for `date_diff`."""
        unit = _unit_name(op.part)
        if unit in _MONTHS:
            return sge.paren(self._months(left, unit) - self._months(right, unit))
        if unit not in _MICROSECONDS:
            raise com.UnsupportedOperationError(f"Volary does not count {unit}s between two times")
        return sge.paren(self._count(left, unit) - self._count(right, unit))

    visit_DateDelta = visit_TimestampDelta

    def visit_TimeDelta(self, op: Any, *, part: Any, left: Any, right: Any) -> Any:
        unit = _unit_name(op.part)
        if unit not in _MICROSECONDS or unit in ("week", "day"):
            raise com.UnsupportedOperationError(f"Volary does not count {unit}s between two times of day")
        return sge.paren(self._count(left, unit) - self._count(right, unit))

    def _months(self, arg: Any, unit: str) -> Any:
        """Returns the number of the year, quarter or month."""
        year = self._part("year", arg)
        if unit == "year":
            return year
        return sge.paren(year * (12 // _MONTHS[unit]) + self._part(unit, arg))

    def _count(self, arg: Any, unit: str) -> Any:
        """Returns how many units have begun since the start of 1970, or since midnight."""
        epoch = self._part("epoch", self.f.anon.date_trunc(unit, arg))
        microseconds = self.cast(self.f.round(epoch * 1_000_000), dt.int64)
        if unit == "week":
            # 1970 began on a Thursday. Counted from the Monday before it, the beginnings of weeks are whole weeks.
            microseconds = sge.paren(microseconds + 3 * _MICROSECONDS["day"])
        return sge.Div(this=microseconds, expression=sge.convert(_MICROSECONDS[unit]), typed=True)

    # Intervals.

    def visit_IntervalFromInteger(self, op: Any, *, arg: Any, unit: Any) -> Any:
        factor, name = _UNITS[unit.short]
        amount = arg if factor == 1 else sge.paren(sge.paren(arg) * factor)
        return sg.cast(self._joined(self.cast(amount, dt.string), f" {name}"), "interval", dialect="volary")

    def visit_IntervalMultiply(self, op: Any, *, left: Any, right: Any) -> Any:
        raise com.UnsupportedOperationError("Volary cannot multiply an interval; multiply the integer it is made of")

    def _interval(self, value: Any, unit: Any) -> Any:
        """Returns a literal interval."""
        factor, name = _UNITS[unit.short]
        return sge.Interval(this=sge.convert(str(int(value) * factor)), unit=sge.Var(this=name))


def _unit_name(part: Any) -> str:
    if not isinstance(part, ops.Literal):
        raise com.UnsupportedOperationError("the unit of a difference must be a constant")
    return str(part.value).lower()


def _format(text: Any) -> Any:
    """Returns a format of strftime as the server spells it: its `%f` are nanoseconds instead of microseconds."""
    if isinstance(text, sge.Literal) and text.is_string:
        return sge.convert(re.sub("%[%f]", lambda found: "%6f" if found[0] == "%f" else found[0], text.name))
    return text


def _reads_dates_only(text: Any) -> bool:
    if not isinstance(text, ops.Literal):
        return False
    directives = {part[0] for part in text.value.replace("%%", "").split("%")[1:] if part}
    return not {letter for letter in directives if letter in string.ascii_letters + "+"} & _TIMES_OF_DAY


UNSUPPORTED = (ops.IntervalFloorDivide,)
