"""The backend: connects, tells what is there, and runs expressions."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import ParseResult

import ibis.common.exceptions as com
import ibis.expr.operations as ops
import ibis.expr.schema as sch
import pyarrow as pa
from ibis.backends import CanListCatalog, HasCurrentCatalog, HasCurrentDatabase
from ibis.backends.sql import SQLBackend
from ibis.formats.pyarrow import PyArrowSchema

from .._connect import connect
from .._connection import Connection
from .._names import quoted
from .._result import Result
from ..errors import NotFoundError
from ._compiler import compiler
from ._frames import to_frame
from ._memtables import Leftovers
from ._results import conform, conform_batches
from ._tables import Tables
from ._types import schema_of
from ._url import arguments_of

CATALOG = "volary"
_NO_SUCH_TABLE = "42P01"


class Backend(Tables, SQLBackend, CanListCatalog, HasCurrentCatalog, HasCurrentDatabase):
    """A connection of Ibis to a gateway. `ibis.volary.connect` creates it.

    Ibis calls a schema of Volary a database. There is one catalog, `volary`.
    """

    name = "volary"
    compiler = compiler
    supports_temporary_tables = False
    supports_python_udfs = False

    con: Connection

    def do_connect(
        self,
        uri: str | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        database: str | None = None,
        timeout: float | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_certificate: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Connects to a gateway.

        The arguments are those of `volary.connect`. `database` is the schema in which tables are looked up, if it is
        not `public`.
        """
        connection = connect(
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
        self._use(connection)
        if database is not None:
            try:
                self._run_statement(f"USE {quoted(database)}")
            except BaseException:
                connection.close()
                raise

    def _use(self, connection: Connection) -> None:
        self.con = connection
        self._leftovers = Leftovers(connection)
        # The tables in memory that Ibis remembers were sent over an earlier connection, and dropped at its end.
        self._memtables: weakref.WeakSet[Any] = weakref.WeakSet()

    @classmethod
    def from_connection(cls, con: Connection, /) -> Backend:
        """Returns a backend that uses an open connection of the Volary client. `disconnect` closes it."""
        backend = cls()
        backend._can_reconnect = False
        backend._use(con)
        return backend

    def _from_url(self, url: ParseResult, **options: Any) -> Any:
        """Connects to the address of a URL such as `volary://user:password@host:7100/schema?tls=true`."""
        return self.connect(**arguments_of(url, options))

    def disconnect(self) -> None:
        """Drops the tables that the backend made for itself, and closes the connection."""
        self._leftovers.drop_all()
        self.con.close()

    @property
    def version(self) -> str:
        """The version of the gateway."""
        return self.con.server_version

    # What is there.

    @property
    def current_catalog(self) -> str:
        """The only catalog."""
        return CATALOG

    def list_catalogs(self, *, like: str | None = None) -> list[str]:
        """Returns the name of the only catalog, if it matches the regular expression `like`."""
        return list(self._filter_with_like([CATALOG], like))

    def list_databases(self, *, like: str | None = None, catalog: str | None = None) -> list[str]:
        """Returns the names of the schemas that match the regular expression `like`."""
        _check_catalog(catalog)
        names = self._values("SELECT schema_name FROM information_schema.schemata")
        return list(self._filter_with_like(names, like))

    def list_tables(self, *, like: str | None = None, database: str | tuple[str, str] | None = None) -> list[str]:
        """Returns the names of the tables and views in a schema that match the regular expression `like`."""
        self._leftovers.drop_unneeded()
        return list(self._filter_with_like(self.con.tables(schema=self._database_of(database)), like))

    def get_schema(self, table_name: str, *, catalog: str | None = None, database: str | None = None) -> sch.Schema:
        """Returns the columns of a table or a view. Raises `TableNotFound` if there is none."""
        _check_catalog(catalog)
        name = quoted(table_name) if database is None else f"{quoted(database)}.{quoted(table_name)}"
        try:
            return self._get_schema_using_query(f"SELECT * FROM {name}")
        except NotFoundError as error:
            if error.sqlstate != _NO_SUCH_TABLE:
                raise
            raise com.TableNotFound(table_name) from error

    def _get_schema_using_query(self, query: str) -> sch.Schema:
        with self._run_statement(f"SELECT * FROM ({query}\n) AS t LIMIT 0") as result:
            return schema_of(result.schema)

    def _database_of(self, database: str | tuple[str | None, ...] | None) -> Any:
        """Returns the name of the schema that an argument `database` names. It may name the catalog, too."""
        if database is None or not any(database):
            return None
        parts = database.split(".") if isinstance(database, str) else list(database)
        if len(parts) > 2:
            raise com.IbisInputError(f"a database is written as schema or ({CATALOG!r}, schema), not {database!r}")
        if len(parts) == 2:
            _check_catalog(parts[0])
        return parts[-1]

    def _values(self, query: str) -> list[Any]:
        return [value for (value,) in self._run_statement(query).rows()]

    # Running statements.

    def raw_sql(self, query: Any, **options: Any) -> Result:
        """Runs a statement as it is, and returns its result, which must be read or closed.

        The other arguments are those of `volary.Connection.sql`: `parameters`, `timeout`, `direct` and so on.
        """
        text = query if isinstance(query, str) else query.sql(dialect=self.dialect)
        self._log(text)
        return self._run_statement(text, **options)

    @contextmanager
    def _safe_raw_sql(self, query: Any, **options: Any) -> Iterator[Result]:
        with self.raw_sql(query, **options) as result:
            yield result

    def _run_statement(self, statement: str, **options: Any) -> Result:
        self._leftovers.drop_unneeded()
        return self.con.sql(statement, **options)

    def _run(self, expr: Any, params: Any, limit: Any, options: dict[str, Any]) -> tuple[Result, pa.Schema]:
        """Runs an expression. Returns its rows as the server sends them, and the columns that they should have."""
        self._run_pre_execute_hooks(expr)
        table = expr.as_table()
        result = self.raw_sql(self.compile(table, params=params, limit=limit), **options)
        return result, PyArrowSchema.from_ibis(table.schema())

    def to_pyarrow(
        self, expr: Any, /, *, params: Mapping[Any, Any] | None = None, limit: int | str | None = None, **options: Any
    ) -> Any:
        """Runs an expression and returns an Arrow table, array or scalar.

        The other arguments are those of `volary.Connection.sql`: with `direct=True`, the rows come directly from the
        workers, in any order; with `progress=True`, a bar shows the progress; `timeout` is in seconds.
        """
        result, schema = self._run(expr, params, limit, options)
        with result:
            return expr.__pyarrow_result__(conform(result.to_arrow(), schema))

    def to_pyarrow_batches(
        self,
        expr: Any,
        /,
        *,
        params: Mapping[Any, Any] | None = None,
        limit: int | str | None = None,
        chunk_size: int = 1_000_000,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """Runs an expression and returns a reader of its batches, which reads them as they arrive.

        A batch has at most `chunk_size` rows. The other arguments are those of `to_pyarrow`.
        """
        result, schema = self._run(expr, params, limit, options)

        # The generator holds the expression, so that the tables in memory that it reads stay on the server until then.
        def batches(_: Any) -> Iterator[pa.RecordBatch]:
            with result:
                yield from conform_batches(result.batches(), schema, chunk_size)

        return pa.RecordBatchReader.from_batches(schema, batches(expr))

    def execute(
        self, expr: Any, /, *, params: Mapping[Any, Any] | None = None, limit: int | str | None = None, **options: Any
    ) -> Any:
        """Runs an expression and returns a pandas DataFrame, a Series or a value. Needs pandas.

        The other arguments are those of `to_pyarrow`.
        """
        result, schema = self._run(expr, params, limit, options)
        with result:
            return expr.__pandas_result__(to_frame(result.to_arrow(), schema))

    def _register_udfs(self, expr: Any) -> None:
        """Refuses functions of Python. Those of `ibis.udf.scalar.builtin` are functions of the server."""
        for udf in expr.op().find((ops.ScalarUDF, ops.AggUDF)):
            if udf.__input_type__.name != "BUILTIN":
                raise com.UnsupportedOperationError(
                    f"{udf.__func_name__} is a function of Python; the server runs functions of SQL only, which "
                    "ibis.udf.scalar.builtin names"
                )


def _check_catalog(catalog: str | None) -> None:
    if catalog not in (None, CATALOG):
        raise com.IbisInputError(f"there is no catalog {catalog}; the only one is {CATALOG}")
