"""The clients to compare. The module of a client is imported when the client is created, so that a program loads only
the modules of the client that it uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Client(Protocol):
    """A client with a connection."""

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Returns all rows of a query, in memory."""


class Volary:
    """The client `volary.Connection`. Threads share it."""

    MODULE = "volary"
    THREADS_SHARE = True

    def __init__(self, uri: str) -> None:
        self.connection = importlib.import_module(self.MODULE).connect(uri)

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Returns all rows of a query, in memory."""
        return self.connection.sql(query, parameters).to_arrow()


class Adbc:
    """The DB-API of the ADBC driver. One thread at a time can use it (its `threadsafety` is 1)."""

    MODULE = "adbc_driver_flightsql.dbapi"
    THREADS_SHARE = False

    def __init__(self, uri: str) -> None:
        self.connection = importlib.import_module(self.MODULE).connect(uri, autocommit=True)

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Returns all rows of a query, in memory."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return cursor.fetch_arrow_table()


class Bare:
    """A bare DoGet to a server that has its answer ready and ignores the query: the cost without a database."""

    MODULE = "pyarrow.flight"
    THREADS_SHARE = True

    def __init__(self, uri: str) -> None:
        self.flight = importlib.import_module(self.MODULE)
        self.connection = self.flight.connect(uri)

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Returns all rows, in memory."""
        return self.connection.do_get(self.flight.Ticket(b"")).read_all()


CLIENTS: dict[str, type[Volary] | type[Adbc] | type[Bare]] = {"volary": Volary, "ADBC": Adbc, "bare DoGet": Bare}
