"""Tables in memory of the client, which a statement on the server can read."""

from __future__ import annotations

import atexit
from collections import deque
from contextlib import suppress
from typing import Any

import pyarrow as pa
from ibis.formats.pyarrow import PyArrowSchema

from .._connection import Connection
from .._names import quoted
from ..errors import Error
from ._results import conform

# Larger tables are sent as Arrow data. The gateway would spend longer on parsing their values than on storing them.
_MOST_VALUES = 500
_LONGEST_BYTES = 20_000
# Time for dropping a table when the process ends.
_SECONDS = 10.0


def arrow_of(op: Any) -> pa.Table:
    """Returns the rows of a table in memory with the types that its schema names."""
    table = op.data.to_pyarrow(op.schema)
    return conform(table, PyArrowSchema.from_ibis(op.schema))


def is_inlined(op: Any) -> bool:
    """Returns whether the rows are written into the statement. The answer is the same each time."""
    schema = op.schema
    if any(dtype.is_timestamp() and dtype.scale is not None and dtype.scale > 6 for dtype in schema.types):
        return False  # Python's datetime has no nanoseconds
    rows: Any = getattr(op.data, "obj", None)
    if hasattr(rows, "__len__") and len(rows) * len(schema) > _MOST_VALUES:
        return False  # without converting the rows
    table = op.data.to_pyarrow(schema)
    return bool(table.num_rows * table.num_columns <= _MOST_VALUES and table.nbytes <= _LONGEST_BYTES)


class Leftovers:
    """Tables on the server that a backend made for itself. They are dropped when nothing needs them any more.

    Garbage collections tell when that is. They may happen within any call, so they only note the name. The next
    statement of the backend drops the table, as do `drop_all` and the end of the process.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: set[str] = set()
        self._unneeded: deque[str] = deque()

    def keep(self, table: str) -> None:
        """Notes that the backend has made a table."""
        if not self._kept:
            atexit.register(self.drop_all)
        self._kept.add(table)

    def is_unneeded(self, table: str) -> None:
        """Notes that a table may be dropped. May be called by a garbage collection."""
        self._unneeded.append(table)

    def is_unneeded_by_name(self, table: str) -> None:
        """Notes that tables of a generated name may be dropped, in whatever schema they are."""
        self._unneeded.extend(name for name in tuple(self._kept) if name.endswith(f".{quoted(table)}"))

    def drop_unneeded(self) -> None:
        """Drops the tables that are not needed any more."""
        while self._unneeded:
            table = self._unneeded.popleft()
            if table in self._kept:
                self._kept.discard(table)
                self._connection.sql(f"DROP TABLE IF EXISTS {table}")

    def drop_all(self) -> None:
        """Drops all tables. An error leaves them there, because the connection may be gone."""
        atexit.unregister(self.drop_all)
        kept, self._kept = self._kept, set()
        with suppress(Error, RuntimeError):
            for table in kept:
                self._connection.sql(f"DROP TABLE IF EXISTS {table}", timeout=_SECONDS)


def name_of(schema: str, table: str) -> str:
    """Returns the name of a table for statements, whatever the current schema is then."""
    return f"{quoted(schema)}.{quoted(table)}"
