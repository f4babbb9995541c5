"""The types of PEP 249: constructors of parameters, and the kinds of columns."""

from __future__ import annotations

import datetime
import time

import pyarrow as pa

Binary = bytes
Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime


def DateFromTicks(ticks: float) -> datetime.date:
    """Returns the date of a number of seconds since 1970, in the time zone of this machine."""
    return datetime.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:
    """Returns the time of day of a number of seconds since 1970, in the time zone of this machine."""
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """Returns the date and time of a number of seconds since 1970, in the time zone of this machine."""
    return datetime.datetime(*time.localtime(ticks)[:6])


class Kind:
    """A kind of columns. It is equal to each type of Arrow that belongs to it."""

    def __init__(self, name: str, *types: pa.DataType) -> None:
        self._name = name
        self._ids = frozenset(kind.id for kind in types)

    def __eq__(self, other: object) -> bool:
        return other.id in self._ids if isinstance(other, pa.DataType) else self is other

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"volary.dbapi.{self._name}"


STRING = Kind("STRING", pa.string(), pa.large_string(), pa.string_view())
BINARY = Kind("BINARY", pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
NUMBER = Kind(
    "NUMBER",
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(1), pa.decimal256(1)),
    # pyarrow 18, which Superset needs, has no smaller ones.
    *(kind(1) for name in ("decimal32", "decimal64") if (kind := getattr(pa, name, None)) is not None),
)
DATETIME = Kind("DATETIME", pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"))
# Rows have no ids of their own. Those that a table has are usually of this type.
ROWID = Kind("ROWID", pa.int64())
