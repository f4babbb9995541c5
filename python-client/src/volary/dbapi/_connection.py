"""The connections of PEP 249."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from .. import errors
from .._flight_sql import get_imported_keys, get_tables
from .._gateway import Gateway
from .._target import Target
from . import _errors
from ._cursor import Cursor
from ._errors import ProgrammingError, translated

if TYPE_CHECKING:
    from .._write_stream import BatchStatus


class Connection:
    """A session on a gateway. `volary.dbapi.connect` creates it. Each statement commits by itself."""

    # PEP 249 asks for the errors as attributes, so that code that has only a connection can catch them.
    Warning = _errors.Warning
    Error = _errors.Error
    InterfaceError = _errors.InterfaceError
    DatabaseError = _errors.DatabaseError
    DataError = _errors.DataError
    OperationalError = _errors.OperationalError
    IntegrityError = _errors.IntegrityError
    InternalError = _errors.InternalError
    ProgrammingError = _errors.ProgrammingError
    NotSupportedError = _errors.NotSupportedError

    def __init__(self, target: Target) -> None:
        with translated:
            self._gateway = Gateway(target)

    @property
    def server_version(self) -> str:
        """The version of the gateway."""
        return self._gateway.server_version

    def cursor(self) -> Cursor:
        """Returns a new cursor. Several cursors may have open results at the same time."""
        self._check_open()
        return Cursor(self, self._gateway)

    def execute(self, operation: str, parameters: Any = None, *, batch_id: str | None = None) -> Cursor:
        """Runs a statement in a new cursor, and returns the cursor. The arguments are those of `Cursor.execute`."""
        return self.cursor().execute(operation, parameters, batch_id=batch_id)

    def commit(self) -> None:
        """Does nothing, because each statement has committed already."""
        self._check_open()

    def rollback(self) -> None:
        """Does nothing, because there is nothing to undo."""
        self._check_open()

    def close(self) -> None:
        """Ends all statements and the session. Cursors cannot be used any more. May be called more than once."""
        self._gateway.close()

    def batch_status(
        self, table: str, producer: str, sequence: int | None = None, *, schema: str | None = None
    ) -> BatchStatus:
        """Returns whether a statement with a batch id was committed. `producer` is its `batch_id`, or the producer of a
        stream: see `volary.Connection.batch_status`. This is an extension of PEP 249.
        """
        self._check_open()
        with translated:
            return self._gateway.batch_status(table, producer, sequence, schema=schema)

    def adbc_get_table_schema(
        self, table_name: str, *, catalog_filter: str | None = None, db_schema_filter: str | None = None
    ) -> pa.Schema:
        """Returns the columns of a table or view. It is named as in the ADBC driver. There is only one catalog. The
        default of `db_schema_filter` is the current schema of the session.

        Raises `ProgrammingError` if there is no table with exactly these names.
        """
        self._check_open()
        if db_schema_filter is None:
            with self.cursor() as cursor:
                db_schema_filter = str(cursor.execute("SELECT current_schema()").fetchall()[0][0])
        with translated:
            columns = self.table_schemas(db_schema_filter, table_name).get(table_name)
            if columns is None:
                raise errors.NotFoundError(f'there is no table "{table_name}"', sqlstate="42P01")
        return columns

    def table_schemas(self, schema: str, table: str | None = None) -> dict[str, pa.Schema]:
        """Returns the columns of all tables and views of a schema, or only those of one table, by the tables' names.

        The metadata of a column has its comment as `ARROW:FLIGHT:SQL:REMARKS`.
        """
        self._check_open()
        with translated:
            tables = self._gateway.metadata(get_tables(schema, table))
        if tables is None:
            return {}
        names = map(str, tables.column("table_name").to_pylist())
        columns = (pa.ipc.read_schema(value.as_buffer()) for value in tables.column("table_schema"))
        return dict(zip(names, columns, strict=True))

    def foreign_keys(self, schema: str, table: str) -> list[dict[str, Any]]:
        """Returns the foreign keys of a table. Each dictionary is a column of a key, with the columns of Flight SQL's
        GetImportedKeys: `fk_key_name`, `fk_column_name`, `pk_table_name` and so on, in the order of `key_sequence`.
        """
        self._check_open()
        with translated:
            keys = self._gateway.metadata(get_imported_keys(schema, table))
        return [] if keys is None else keys.to_pylist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._gateway.is_closed:
            raise ProgrammingError("the connection is closed")
