"""DB-API 2.0 (PEP 249), on the calls of `volary.connect`.

    from volary import dbapi

    with dbapi.connect("grpc://127.0.0.1:7100") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name FROM birds WHERE grams > ?", (600,))
        print(cursor.fetchall())

Each statement commits by itself: `commit` does nothing, and `rollback` undoes nothing. Cursors have more methods than
PEP 249 asks for (`fetch_arrow_table`, `fetch_df`, `fetch_polars`, `adbc_ingest`). They are named as in the ADBC driver,
so that code for one works with the other. A write can have a `batch_id`, with which it is applied only once if it is
repeated. The messages of errors begin with the server's code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .._target import Target
from ._connection import Connection
from ._cursor import Cursor
from ._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from ._types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
paramstyle = "qmark"
threadsafety = 1
"""Threads may share the module, but not connections. A statement may be cancelled by any thread."""


def connect(
    uri: str | None = None,
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_certificate: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Connection:
    """Connects to a gateway. The arguments are those of `volary.connect`.

    Raises `volary.InvalidArgumentError` for arguments that do not fit together, `OSError` for a file that cannot be
    read, and the errors of this module for everything else.
    """
    target = Target.of(
        uri,
        username=username,
        password=password,
        token=token,
        timeout=timeout,
        tls_ca=tls_ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        headers=headers,
    )
    return Connection(target)
