"""The SQLAlchemy dialect: how to connect, which features exist, and which compilers are used."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import pool, schema
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import CreateIndex, DropIndex

from .. import dbapi
from .._names import quoted
from ..errors import ErrorCode
from ._compiler import VolarySQLCompiler
from ._context import VolaryExecutionContext
from ._ddl import VolaryDDLCompiler, VolaryIdentifierPreparer, VolaryTypeCompiler
from ._questions import driver_of
from ._reflection import Reflection
from ._types import Date, Double, Exact, Interval, Time, UtcDateTime, Uuid

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIConnection, IsolationLevel

_DEFAULT_PORT = 7100
_CATALOG = "volary"
# Options of the URL's query, besides `tls`, `timeout` and `schema`.
_ARGUMENTS = ("token", "tls_ca", "tls_certificate", "tls_key")


class VolaryDialect(Reflection):
    """Volary over `volary.dbapi`."""

    name = "volary"
    driver = "flight"
    default_paramstyle = "qmark"
    default_schema_name = "public"

    statement_compiler = VolarySQLCompiler
    ddl_compiler = VolaryDDLCompiler
    # SQLAlchemy 2 calls it `type_compiler_cls`, and accepts this name.
    type_compiler: Any = VolaryTypeCompiler
    execution_ctx_cls = VolaryExecutionContext
    preparer = VolaryIdentifierPreparer

    supports_statement_cache = True
    colspecs = {  # noqa: RUF012  # as SQLAlchemy declares it
        sqltypes.Date: Date,
        sqltypes.DateTime: UtcDateTime,
        sqltypes.Float: Double,
        sqltypes.Interval: Interval,
        sqltypes.Numeric: Exact,
        sqltypes.Time: Time,
        # SQLAlchemy 1.4 has no such type.
        **({sqltypes.Uuid: Uuid} if hasattr(sqltypes, "Uuid") else {}),
    }
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_default_values = True
    supports_default_metavalue = True
    supports_empty_insert = False
    supports_alter = True
    supports_schemas = True
    supports_comments = True
    supports_constraint_comments = False
    supports_sequences = False
    # A key that an INSERT leaves out is asked for before it runs, so that `VolaryExecutionContext` can refuse it.
    preexecute_autoincrement_sequences = True
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_simple_order_by_label = True
    postfetch_lastrowid = False
    insert_returning = False
    update_returning = False
    delete_returning = False
    use_insertmanyvalues = False
    cte_follows_insert = True
    tuple_in_values = False
    max_identifier_length = 255

    construct_arguments = [  # noqa: RUF012  # as SQLAlchemy declares it
        (schema.Table, {"shard_key": None, "shards": None, "sort_key": None, "reference": None}),
        (schema.CheckConstraint, {"not_valid": False}),
    ]

    def __init__(
        self,
        json_serializer: Callable[[Any], str] | None = None,
        json_deserializer: Callable[[str], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Takes the arguments of `create_engine`. The two serializers write and read the values of JSON columns."""
        super().__init__(**kwargs)
        self._json_serializer = json_serializer
        self._json_deserializer = json_deserializer
        _tell_alembic()

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return dbapi

    @classmethod
    def dbapi(cls) -> ModuleType:  # type: ignore[override]
        """Returns the same as `import_dbapi`, for SQLAlchemy 1.4. Each dialect object hides it by the module itself."""
        return dbapi

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Converts `volary://user:password@host:port/?tls=true&token=…` to the arguments of `volary.dbapi.connect`."""
        query = dict(url.query)
        if url.database not in (None, "", _CATALOG):
            raise ArgumentError(f'there is no catalog "{url.database}"; the only one is {_CATALOG}: leave it out')
        tls = _text(query, "tls") or "false"
        if tls not in ("true", "false"):
            raise ArgumentError(f"tls must be true or false, not {tls!r}")
        host = url.host or "127.0.0.1"
        address = f"[{host}]" if ":" in host else host
        uri = f"grpc{'+tls' if tls == 'true' else ''}://{address}:{url.port or _DEFAULT_PORT}"
        arguments: dict[str, Any] = {name: value for name in _ARGUMENTS if (value := _text(query, name)) is not None}
        if (timeout := _text(query, "timeout")) is not None:
            arguments["timeout"] = float(timeout)
        _text(query, "schema")  # see `on_connect_url`
        if query:
            known = f"schema, tls, timeout, {', '.join(_ARGUMENTS)}"
            raise ArgumentError(f"the URL has unknown options: {', '.join(query)}; it takes {known}")
        if url.username is not None:
            arguments |= {"username": url.username, "password": url.password or ""}
        return [uri], arguments

    def on_connect_url(self, url: URL) -> Callable[[Any], None] | None:
        """Returns a function that makes the `schema` of the URL the current one of a new connection."""
        name = _text(dict(url.query), "schema")
        if name is None:
            return None

        def use(dbapi_connection: Any) -> None:
            with dbapi_connection.cursor() as cursor:
                cursor.execute(f"USE {quoted(name)}")

        return use

    def initialize(self, connection: Connection) -> None:
        super().initialize(connection)
        _tell_alembic()

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if not _skips(context):
            cursor.execute(statement, parameters)

    def do_begin(self, dbapi_connection: Any) -> None:
        """Does nothing, because each statement commits by itself."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Does nothing, because each statement has already committed."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Does nothing, because there is nothing to undo."""

    def do_ping(self, dbapi_connection: DBAPIConnection) -> bool:
        cursor = dbapi_connection.cursor()
        try:
            cursor.execute("SELECT 1")
            cursor.fetchall()
        finally:
            cursor.close()
        return True

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        """Returns whether the connection is unusable: the gateway is gone, or does not know the session's user."""
        return isinstance(e, dbapi.Error) and e.code in (ErrorCode.UNAVAILABLE, ErrorCode.UNAUTHENTICATED)

    def get_default_isolation_level(self, dbapi_conn: DBAPIConnection) -> IsolationLevel:
        return "AUTOCOMMIT"

    def get_isolation_level(self, dbapi_connection: DBAPIConnection) -> IsolationLevel:
        return "AUTOCOMMIT"

    def get_isolation_level_values(self, dbapi_conn: DBAPIConnection) -> list[IsolationLevel]:
        return ["AUTOCOMMIT"]

    def set_isolation_level(self, dbapi_connection: DBAPIConnection, level: IsolationLevel) -> None:
        """Does nothing, because there is only one isolation level."""

    def _get_server_version_info(self, connection: Connection) -> tuple[int, ...]:
        return tuple(
            int(part) for part in driver_of(connection).server_version.split("-")[0].split(".") if part.isdigit()
        )

    def _get_default_schema_name(self, connection: Connection) -> str:
        with driver_of(connection).cursor() as cursor:
            return str(cursor.execute("SELECT current_schema()").fetchone()[0])


def _skips(context: Any) -> bool:
    """Returns whether the statement is about an index, and then warns that it is not run.

    Models and `DataFrame.to_sql` declare indexes to make lookups faster. If they were refused, the table would have
    been created already.
    """
    ddl = getattr(getattr(context, "compiled", None), "statement", None)
    if not isinstance(ddl, CreateIndex | DropIndex):
        return False
    if isinstance(ddl, CreateIndex):
        warnings.warn(
            f'the index "{ddl.element.name}" is not created, because there are no indexes: give the column of lookups '
            f"as volary_shard_key or volary_sort_key of the table{_UNIQUE if ddl.element.unique else ''}",
            stacklevel=2,
        )
    return True


_UNIQUE = "; nothing checks that its values are unique"


def _tell_alembic() -> None:
    """Makes the dialect known to Alembic if that is in use. Importing it takes long, so nothing else does it."""
    if "alembic.ddl.impl" in sys.modules:
        from . import _alembic  # noqa: F401


def _text(query: dict[str, Any], name: str) -> str | None:
    value = query.pop(name, None)
    if isinstance(value, tuple):
        raise ArgumentError(f"the URL has {name} more than once")
    return None if value is None else str(value)
