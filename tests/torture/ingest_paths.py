"""The ways in which rows come into a table. A way is a function with an entry in `PATHS`; nothing else lists them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from adbc_driver_flightsql import DatabaseOptions, dbapi
from ledger import KEYS_OF_STATEMENT, Statement

import volary

DEADLINE_SECONDS = 30
# For so long, and so often, a client repeats what may not have arrived. After that, nobody knows whether it has.
REPEAT_SECONDS = 5
REPEATS = 3


class Session:
    """The connections of a client. Each is made when it is needed, and all are made again after an error."""

    def __init__(self, uri: str, directory: Path) -> None:
        self.uri = uri
        self.directory = directory
        self._open = ExitStack()
        self._volary: volary.Connection | None = None
        self._adbc: dbapi.Connection | None = None

    @property
    def volary(self) -> volary.Connection:
        """A connection of the Volary client."""
        if self._volary is None:
            self._volary = volary.connect(self.uri, timeout=DEADLINE_SECONDS)
            self._open.callback(self._volary.close)
        return self._volary

    @property
    def adbc(self) -> dbapi.Connection:
        """A connection of the ADBC driver."""
        if self._adbc is None:
            deadlines = (DatabaseOptions.TIMEOUT_FETCH, DatabaseOptions.TIMEOUT_QUERY, DatabaseOptions.TIMEOUT_UPDATE)
            options = {deadline.value: str(DEADLINE_SECONDS) for deadline in deadlines}
            self._adbc = self._open.enter_context(dbapi.connect(self.uri, db_kwargs=options, autocommit=True))
        return self._adbc

    def reset(self) -> None:
        """Closes all connections, whatever state they are in."""
        opened, self._open, self._volary, self._adbc = self._open, ExitStack(), None, None
        try:
            opened.close()
        except (volary.Error, dbapi.Error, OSError):
            return


def _literal(value: int | str) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _insert_of_values(statement: Statement) -> str:
    rows = (f"({', '.join(map(_literal, row))})" for row in statement.all_rows())
    return f"INSERT INTO {statement.table} VALUES {', '.join(rows)}"


def values(session: Session, statement: Statement) -> None:
    """INSERT … VALUES with the Volary client."""
    session.volary.sql(_insert_of_values(statement))


def adbc_values(session: Session, statement: Statement) -> None:
    """INSERT … VALUES with the ADBC driver."""
    with session.adbc.cursor() as cursor:
        cursor.execute(_insert_of_values(statement))


def adbc_prepared(session: Session, statement: Statement) -> None:
    """A prepared INSERT with many rows of parameters, which the driver sends as one batch."""
    with session.adbc.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {statement.table} VALUES (?, ?, ?, ?, ?)", statement.table_of_rows())


def parameters(session: Session, statement: Statement) -> None:
    """An INSERT with many rows of parameters, with the Volary client."""
    session.volary.sql(f"INSERT INTO {statement.table} VALUES (?, ?, ?, ?, ?)", statement.table_of_rows())


def adbc_ingest(session: Session, statement: Statement) -> None:
    """CommandStatementIngest with the ADBC driver."""
    with session.adbc.cursor() as cursor:
        cursor.adbc_ingest(statement.table, statement.table_of_rows(), mode="append")


def ingest(session: Session, statement: Statement) -> None:
    """CommandStatementIngest with the Volary client."""
    session.volary.ingest(statement.table, statement.table_of_rows(), mode="append")


def copy(session: Session, statement: Statement) -> None:
    """COPY from a Parquet file."""
    file = session.directory / f"copy-{statement.id.writer}.parquet"
    pq.write_table(statement.table_of_rows(), file)
    session.volary.sql(f"COPY {statement.table} FROM '{file}'")


def select(session: Session, statement: Statement) -> None:
    """INSERT … SELECT, whose rows no client sends."""
    session.volary.sql(f"INSERT INTO {statement.table} {statement.select()}")


def stream(session: Session, statement: Statement) -> None:
    """A batch of a stream, which the client sends again by itself after a lost connection."""
    with session.volary.stream(statement.table, retry_timeout=REPEAT_SECONDS) as open_stream:
        open_stream.write(statement.table_of_rows()).result(timeout=DEADLINE_SECONDS)


def repeated(session: Session, statement: Statement) -> None:
    """CommandStatementIngest that the program repeats after an error, with the same batch id."""
    batch_id = str(uuid.uuid4())
    for attempt in range(REPEATS):
        try:
            session.volary.ingest(statement.table, statement.table_of_rows(), mode="append", batch_id=batch_id)
            return
        except volary.Error as error:
            if not error.retryable or attempt == REPEATS - 1:
                raise
            session.reset()


class IngestPath(NamedTuple):
    """A way in which rows come into a table."""

    write: Callable[[Session, Statement], None]
    most_pairs: int = KEYS_OF_STATEMENT // 2


# A statement with its rows as text has few of them: the test is not one of the parser.
_FEW = 20

PATHS = {
    "values": IngestPath(values, _FEW),
    "adbc_values": IngestPath(adbc_values, _FEW),
    "adbc_prepared": IngestPath(adbc_prepared),
    "parameters": IngestPath(parameters),
    "adbc_ingest": IngestPath(adbc_ingest),
    "ingest": IngestPath(ingest),
    "copy": IngestPath(copy),
    "select": IngestPath(select),
    "stream": IngestPath(stream),
    "repeated": IngestPath(repeated),
}
