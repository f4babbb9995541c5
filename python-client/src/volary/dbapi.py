"""DB-API 2.0 (PEP 249): the interface of the ADBC driver, with the arguments of `volary.connect`.

    from volary import dbapi

    with dbapi.connect("grpc://127.0.0.1:7100") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name FROM birds WHERE grams > ?", (600,))
        print(cursor.fetchall())

Each statement commits by itself: `commit` does nothing, and `rollback` undoes nothing. Cursors also have the driver's
own methods (`fetch_arrow_table`, `fetch_df`, `fetch_polars`, `adbc_ingest`). Errors are the driver's. Their messages
begin with the server's code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import adbc_driver_flightsql.dbapi as _driver
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_flightsql.dbapi import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Connection,
    Cursor,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    Warning,
    apilevel,
    paramstyle,
    threadsafety,
)

from ._target import Target

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

# The driver does not define this name, which PEP 249 asks for.
Binary = bytes

# The server's batches have about 1 MiB, but a single row is never split. The driver's default limit is 16 MiB.
_MAX_MESSAGE_BYTES = 1 << 30


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

    Raises `volary.InvalidArgumentError` for arguments that do not fit together, and the driver's errors for everything
    else. If nobody answers at `uri`, only the first statement raises an error.
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
    return _driver.connect(target.uri, db_kwargs=_options(target), autocommit=True)


def _options(target: Target) -> dict[str, str]:
    """Returns the options of the driver."""
    options = {
        # Many connections may share a token. In this case, a cookie names the session. Without credentials, the driver
        # takes over the bearer token from the gateway's first answer.
        DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true",
        DatabaseOptions.WITH_MAX_MSG_SIZE.value: str(_MAX_MESSAGE_BYTES),
    }
    if target.username is not None:
        options |= {"username": target.username, "password": target.password or ""}
    if target.token is not None:
        options[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {target.token}"
    if target.timeout is not None:
        for option in (DatabaseOptions.TIMEOUT_QUERY, DatabaseOptions.TIMEOUT_FETCH, DatabaseOptions.TIMEOUT_UPDATE):
            options[option.value] = str(target.timeout)
    for option, pem in (
        (DatabaseOptions.TLS_ROOT_CERTS, target.tls_ca),
        (DatabaseOptions.MTLS_CERT_CHAIN, target.tls_certificate),
        (DatabaseOptions.MTLS_PRIVATE_KEY, target.tls_key),
    ):
        if pem is not None:
            options[option.value] = pem
    for name, value in target.headers.items():
        options[DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + name] = value
    return options
