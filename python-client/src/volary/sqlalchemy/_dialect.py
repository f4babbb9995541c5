"""The SQLAlchemy dialect: how to connect, which features exist, and which compilers are used."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from sqlalchemy import pool, schema
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import URL, Connection
from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIConnection, IsolationLevel
from sqlalchemy.exc import ArgumentError

from .. import dbapi
from ..errors import ErrorCode
from ._compiler import VolarySQLCompiler
from ._ddl import VolaryDDLCompiler, VolaryIdentifierPreparer, VolaryTypeCompiler
from ._reflection import Reflection
from ._types import Date, Double, Exact, Interval, Time, UtcDateTime

_DEFAULT_PORT = 7100
_CATALOG = "volary"
# Options of the URL's query, besides `tls` and `timeout`.
_ARGUMENTS = ("token", "tls_ca", "tls_certificate", "tls_key")


class VolaryDialect(Reflection):
    """Volary over `volary.dbapi`."""

    name = "volary"
    driver = "flight"
    default_paramstyle = "qmark"
    default_schema_name = "public"

    statement_compiler = VolarySQLCompiler
    ddl_compiler = VolaryDDLCompiler
    type_compiler_cls = VolaryTypeCompiler
    preparer = VolaryIdentifierPreparer

    supports_statement_cache = True
    colspecs = {  # noqa: RUF012  # as SQLAlchemy declares it
        sqltypes.Date: Date,
        sqltypes.DateTime: UtcDateTime,
        sqltypes.Float: Double,
        sqltypes.Interval: Interval,
        sqltypes.Numeric: Exact,
        sqltypes.Time: Time,
    }
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_default_values = False
    supports_default_metavalue = False
    supports_empty_insert = False
    supports_alter = False
    supports_sequences = False
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

    @classmethod
    def import_dbapi(cls) -> ModuleType:
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
        if query:
            known = f"tls, timeout, {', '.join(_ARGUMENTS)}"
            raise ArgumentError(f"the URL has unknown options: {', '.join(query)}; it takes {known}")
        if url.username is not None:
            arguments |= {"username": url.username, "password": url.password or ""}
        return [uri], arguments

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
        driver: Any = connection.connection.dbapi_connection
        return tuple(int(part) for part in driver.server_version.split("-")[0].split(".") if part.isdigit())

    def _get_default_schema_name(self, connection: Connection) -> str:
        return self.default_schema_name


def _text(query: dict[str, Any], name: str) -> str | None:
    value = query.pop(name, None)
    if isinstance(value, tuple):
        raise ArgumentError(f"the URL has {name} more than once")
    return None if value is None else str(value)
