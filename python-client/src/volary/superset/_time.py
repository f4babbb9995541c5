"""Expressions of time, with which Superset groups and filters."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import types as sqltypes
from superset.constants import TimeGrain


def _bins(length: str) -> str:
    # Bins begin at midnight of 1970-01-01, so bins of hours and minutes begin where those of a clock do.
    return f"date_bin(INTERVAL '{length}', {{col}})"


GRAINS: dict[str | None, str] = {
    None: "{col}",
    TimeGrain.SECOND: "date_trunc('second', {col})",
    TimeGrain.FIVE_SECONDS: _bins("5 seconds"),
    TimeGrain.THIRTY_SECONDS: _bins("30 seconds"),
    TimeGrain.MINUTE: "date_trunc('minute', {col})",
    TimeGrain.FIVE_MINUTES: _bins("5 minutes"),
    TimeGrain.TEN_MINUTES: _bins("10 minutes"),
    TimeGrain.FIFTEEN_MINUTES: _bins("15 minutes"),
    TimeGrain.THIRTY_MINUTES: _bins("30 minutes"),
    TimeGrain.HALF_HOUR: _bins("30 minutes"),
    TimeGrain.HOUR: "date_trunc('hour', {col})",
    TimeGrain.SIX_HOURS: _bins("6 hours"),
    TimeGrain.DAY: "date_trunc('day', {col})",
    TimeGrain.WEEK: "date_trunc('week', {col})",
    TimeGrain.MONTH: "date_trunc('month', {col})",
    TimeGrain.QUARTER: "date_trunc('quarter', {col})",
    TimeGrain.QUARTER_YEAR: "date_trunc('quarter', {col})",
    TimeGrain.YEAR: "date_trunc('year', {col})",
    # The weeks of date_trunc begin on Monday.
    TimeGrain.WEEK_STARTING_SUNDAY: "date_trunc('week', {col} + INTERVAL '1 day') - INTERVAL '1 day'",
    TimeGrain.WEEK_STARTING_MONDAY: "date_trunc('week', {col})",
    TimeGrain.WEEK_ENDING_SATURDAY: "date_trunc('week', {col} + INTERVAL '1 day') + INTERVAL '5 days'",
    TimeGrain.WEEK_ENDING_SUNDAY: "date_trunc('week', {col}) + INTERVAL '6 days'",
}
"""The expression of each time grain. None is the time itself."""

# to_timestamp_… returns instants. Superset's times have no time zone.
EPOCH = "CAST(to_timestamp_seconds({col}) AS TIMESTAMP)"
EPOCH_MS = "CAST(to_timestamp_millis({col}) AS TIMESTAMP)"


def literal(kind: object, time: datetime) -> str | None:
    """Returns a time as a literal of a type, or None for types that are no times."""
    if isinstance(kind, sqltypes.Date):
        return f"DATE '{time.date().isoformat()}'"
    if isinstance(kind, sqltypes.DateTime):
        return f"TIMESTAMP '{time.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(kind, sqltypes.Time):
        return f"TIME '{time.time().isoformat(timespec='microseconds')}'"
    return None
