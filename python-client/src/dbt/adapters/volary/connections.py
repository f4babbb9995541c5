"""The connections of dbt, which are those of `volary.dbapi`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from volary import dbapi

from .credentials import VolaryCredentials
from .statements import split
from .types import sql_name

if TYPE_CHECKING:
    import agate

logger = AdapterLogger("Volary")


class Handle:
    """A connection of `volary.dbapi` that remembers its last cursor, so that another thread can cancel it."""

    def __init__(self, connection: dbapi.Connection) -> None:
        self._connection = connection
        self._cursor: dbapi.Cursor | None = None

    def cursor(self) -> dbapi.Cursor:
        """Returns a new cursor. The rows of the one before are not read any more, so its statement ends."""
        if self._cursor is not None:
            self._cursor.close()
        self._cursor = self._connection.cursor()
        return self._cursor

    def cancel(self) -> None:
        """Cancels the statement that runs. Any thread may call this."""
        if (cursor := self._cursor) is not None:
            cursor.adbc_cancel()

    def commit(self) -> None:
        """Does nothing, because each statement has committed already."""

    def rollback(self) -> None:
        """Does nothing, because there is nothing to undo."""

    def close(self) -> None:
        """Ends the session."""
        self._connection.close()


class VolaryConnectionManager(SQLConnectionManager):
    """Opens, uses and cancels connections. dbt has one for each of its threads."""

    TYPE = "volary"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Connects to the gateway, logs in, and sets the profile's settings of the session."""
        if connection.state == ConnectionState.OPEN:
            return connection
        credentials: VolaryCredentials = connection.credentials

        def connect() -> Handle:
            handle = dbapi.connect(
                credentials.address,
                username=credentials.username,
                password=credentials.password,
                token=credentials.token,
                timeout=credentials.timeout,
                tls_ca=credentials.tls_ca,
                tls_certificate=credentials.tls_certificate,
                tls_key=credentials.tls_key,
                headers={"volary-query-tag": credentials.query_tag} if credentials.query_tag else None,
            )
            try:
                for name, value in credentials.settings.items():
                    handle.execute(f"SET {name} = {_literal(value)}").close()
            except BaseException:
                handle.close()
                raise
            return Handle(handle)

        return cls.retry_connection(
            connection,
            connect=connect,
            logger=logger,
            retryable_exceptions=[dbapi.OperationalError],
            retry_limit=credentials.retries,
            retry_timeout=lambda attempt: 1 + attempt * attempt,
        )

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Turns errors of Volary into those that dbt reports."""
        try:
            yield
        except dbapi.Error as error:
            logger.debug(f"Volary error: {error}")
            self.rollback_if_open()
            raise DbtDatabaseError(str(error)) from error
        except Exception as error:
            logger.debug(f"Error running SQL: {sql}")
            self.rollback_if_open()
            if isinstance(error, DbtRuntimeError):
                raise
            raise DbtRuntimeError(str(error)) from error

    def add_query(
        self, sql: str, auto_begin: bool = True, bindings: Any | None = None, *arguments: Any, **options: Any
    ) -> tuple[Connection, Any]:
        """Runs the statements of a text one after another. The cursor is that of the last one."""
        *first, last = [sql] if bindings is not None else split(sql)
        for statement in first:
            _, cursor = super().add_query(statement, auto_begin, None, *arguments, **options)
            with self.exception_handler(statement):
                _run_to_its_end(cursor)
        return super().add_query(last, auto_begin, bindings, *arguments, **options)

    def execute(
        self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None
    ) -> tuple[AdapterResponse, agate.Table]:
        """Runs statements, and returns the rows of the last one if `fetch` says so.

        A query may fail while its rows are read. dbt's own method expects that only of the statement.
        """
        from dbt_common.clients.agate_helper import empty_table

        sql = self._add_query_comment(sql)
        with self.exception_handler(sql):
            _, cursor = self.add_query(sql, auto_begin)
            response = self.get_response(cursor)
            if fetch:
                return response, self.get_result_from_cursor(cursor, limit)
            _run_to_its_end(cursor)
        return response, empty_table()

    def cancel(self, connection: Connection) -> None:
        """Cancels the statement of a connection, on the gateway and on all workers."""
        connection.handle.cancel()

    def add_begin_query(self) -> None:
        """Sends nothing: there are no transactions, and each statement commits by itself."""

    def add_commit_query(self) -> None:
        """Sends nothing: there are no transactions, and each statement commits by itself."""

    @classmethod
    def get_response(cls, cursor: dbapi.Cursor) -> AdapterResponse:
        """Returns what dbt shows of a statement."""
        if cursor.rowcount < 0:
            return AdapterResponse(_message="OK", code="OK", query_id=cursor.query_id)
        return AdapterResponse(
            _message=f"OK {cursor.rowcount}", code="OK", rows_affected=cursor.rowcount, query_id=cursor.query_id
        )

    @classmethod
    def data_type_code_to_name(cls, type_code: pa.DataType) -> str:
        """Returns the name of a column's type for contracts."""
        return sql_name(type_code)


def _run_to_its_end(cursor: dbapi.Cursor) -> None:
    """Reads the rows of a query, if it is one, because it ends when its cursor is closed."""
    if cursor.description is not None:
        for _ in cursor.fetch_record_batch():
            pass


def _literal(value: object) -> str:
    """Returns the value of a setting as SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"
