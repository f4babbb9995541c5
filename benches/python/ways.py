"""The ways to read all rows of a query into pyarrow. Each way connects once, and then reads all rows at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa
from data import LINES, LINES_TABLE
from pyarrow import flight

import volary


class Read(NamedTuple):
    """The size of what has been read."""

    rows: int
    bytes: int
    batches: int
    kept: pa.Table | None
    """The table, if it is kept. It is returned so that freeing it is not part of the measured time."""


class Uris(NamedTuple):
    """The addresses from which rows can be read."""

    gateway: str
    bare: str
    relay: str


Way = Callable[[], Read]


def bare_dropped(uris: Uris) -> Way:
    """Reads with DoGet from the bare server."""
    client = flight.connect(uris.bare)
    return lambda: _dropped(_batches(client.do_get(flight.Ticket(b""))))


def relayed_dropped(uris: Uris) -> Way:
    """Reads with DoGet from the bare relay."""
    client = flight.connect(uris.relay)
    return lambda: _dropped(_batches(client.do_get(flight.Ticket(b""))))


def bare_kept(uris: Uris) -> Way:
    """Reads from the bare server, and keeps the rows as a table."""
    client = flight.connect(uris.bare)
    return lambda: _kept(client.do_get(flight.Ticket(b"")).read_all())


def flight_dropped(uris: Uris) -> Way:
    """Reads with GetFlightInfo and DoGet from the gateway."""
    client = flight.connect(uris.gateway)

    def read() -> Read:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(LINES))
        return _dropped(_batches(client.do_get(info.endpoints[0].ticket)))

    return read


def volary_dropped(uris: Uris) -> Way:
    """Reads with `batches()`."""
    connection = volary.connect(uris.gateway)
    return lambda: _dropped(connection.sql(LINES).batches())


def volary_kept(uris: Uris) -> Way:
    """Reads with `to_arrow()`."""
    connection = volary.connect(uris.gateway)
    return lambda: _kept(connection.sql(LINES).to_arrow())


def adbc_kept(uris: Uris) -> Way:
    """Reads with `fetch_arrow_table()` of the ADBC driver. Only this way imports it, since that takes half a second."""
    from adbc_driver_flightsql import DatabaseOptions, dbapi

    # The driver's own limit is 16 MiB.
    options = {DatabaseOptions.WITH_MAX_MSG_SIZE.value: str(1 << 30)}
    connection = dbapi.connect(uris.gateway, db_kwargs=options, autocommit=True)

    def read() -> Read:
        with connection.cursor() as cursor:
            cursor.execute(LINES)
            return _kept(cursor.fetch_arrow_table())

    return read


def direct_dropped(uris: Uris) -> Way:
    """Reads with `batches()` directly from the workers."""
    connection = volary.connect(uris.gateway)
    return lambda: _dropped(connection.sql(LINES, direct=True).batches())


def direct_kept(uris: Uris) -> Way:
    """Reads with `read_table()`."""
    connection = volary.connect(uris.gateway)
    return lambda: _kept(connection.read_table(LINES_TABLE))


def _batches(reader: flight.FlightStreamReader) -> Iterable[pa.RecordBatch]:
    return (chunk.data for chunk in reader)


def _dropped(batches: Iterable[pa.RecordBatch]) -> Read:
    """Counts each batch and drops it."""
    rows = size = count = 0
    for batch in batches:
        rows += batch.num_rows
        size += batch.nbytes
        count += 1
    return Read(rows, size, count, None)


def _kept(table: pa.Table) -> Read:
    return Read(table.num_rows, table.nbytes, table.column(0).num_chunks, table)


WAYS: dict[str, Callable[[Uris], Way]] = {
    "bare server, pyarrow, dropped": bare_dropped,
    "bare relay, pyarrow, dropped": relayed_dropped,
    "bare server, pyarrow, kept": bare_kept,
    "gateway, pyarrow, dropped": flight_dropped,
    "gateway, volary, dropped": volary_dropped,
    "gateway, volary, kept": volary_kept,
    "gateway, ADBC, kept": adbc_kept,
    "workers, volary, dropped": direct_dropped,
    "workers, volary, kept": direct_kept,
}
