"""Reflects tables and their columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlalchemy import exc, text
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import Connection, default, reflection
from sqlalchemy.engine.interfaces import (
    ReflectedCheckConstraint,
    ReflectedColumn,
    ReflectedForeignKeyConstraint,
    ReflectedIndex,
    ReflectedPrimaryKeyConstraint,
    ReflectedUniqueConstraint,
)


class Reflection(default.DefaultDialect):
    """The part of the dialect that reflects tables."""

    @reflection.cache
    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        schemas = connection.execute(text("SELECT schema_name FROM information_schema.schemata ORDER BY schema_name"))
        # The list of schemas leaves out the schema that it is in.
        return [*(str(name) for (name,) in schemas), "information_schema"]

    @reflection.cache
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        return self._kind(connection, table_name, schema) is not None

    @reflection.cache
    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return self._names(connection, schema, views=False)

    @reflection.cache
    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return self._names(connection, schema, views=True)

    @reflection.cache
    def get_view_definition(self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any) -> str:
        query = text(
            "SELECT definition FROM information_schema.views WHERE table_schema = :schema AND table_name = :name"
        )
        names = {"schema": schema or self.default_schema_name, "name": view_name}
        definition = connection.execute(query, names).scalar()
        if definition is None:
            raise exc.NoSuchTableError(view_name)
        return str(definition)

    @reflection.cache
    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedColumn]:
        self._check_exists(connection, table_name, schema, **kw)
        driver: Any = connection.connection.dbapi_connection
        columns: pa.Schema = driver.adbc_get_table_schema(
            table_name, db_schema_filter=schema or self.default_schema_name
        )
        return [
            {"name": field.name, "type": column_type(field.type), "nullable": field.nullable, "default": None}
            for field in columns
        ]

    @reflection.cache
    def get_table_options(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> dict[str, Any]:
        self._check_exists(connection, table_name, schema, **kw)
        query = text(
            "SELECT kind, shard_key, shards, sort_key FROM system.tables WHERE schema_name = :schema AND name = :name"
        )
        names = {"schema": schema or self.default_schema_name, "name": table_name}
        row = connection.execute(query, names).first()
        if row is None:
            return {}
        if row.kind == "reference":
            return {"volary_reference": True}
        options = {
            "volary_shard_key": row.shard_key,
            "volary_shards": row.shards,
            "volary_sort_key": row.sort_key,
        }
        return {name: value for name, value in options.items() if value is not None}

    @reflection.cache
    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> ReflectedPrimaryKeyConstraint:
        self._check_exists(connection, table_name, schema, **kw)
        return {"constrained_columns": [], "name": None}

    @reflection.cache
    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedForeignKeyConstraint]:
        self._check_exists(connection, table_name, schema, **kw)
        return []

    @reflection.cache
    def get_indexes(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedIndex]:
        self._check_exists(connection, table_name, schema, **kw)
        return []

    @reflection.cache
    def get_unique_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedUniqueConstraint]:
        self._check_exists(connection, table_name, schema, **kw)
        return []

    @reflection.cache
    def get_check_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedCheckConstraint]:
        self._check_exists(connection, table_name, schema, **kw)
        return []

    def _check_exists(self, connection: Connection, name: str, schema: str | None, **kw: Any) -> None:
        # An inspector that reflects a table asks once whether it exists, since it remembers what `has_table` has said.
        if not self.has_table(connection, name, schema, **kw):
            raise exc.NoSuchTableError(f"{schema}.{name}" if schema else name)

    def _kind(self, connection: Connection, name: str, schema: str | None) -> str | None:
        query = text(
            "SELECT table_type FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name"
        )
        names = {"schema": schema or self.default_schema_name, "name": name}
        kind = connection.execute(query, names).scalar()
        return None if kind is None else str(kind)

    def _names(self, connection: Connection, schema: str | None, *, views: bool) -> list[str]:
        query = text(
            "SELECT table_name, table_type FROM information_schema.tables "
            "WHERE table_schema = :schema ORDER BY table_name"
        )
        rows = connection.execute(query, {"schema": schema or self.default_schema_name})
        # The system tables belong to no user and cannot be dropped, so they are listed as views.
        return [str(name) for name, kind in rows if (kind == "VIEW") == views]


def column_type(arrow: pa.DataType) -> sqltypes.TypeEngine[Any]:
    """Returns the SQLAlchemy type for a type of Arrow that the gateway sends."""
    types = pa.types
    if types.is_boolean(arrow):
        return sqltypes.BOOLEAN()
    if types.is_int64(arrow) or types.is_uint32(arrow):
        return sqltypes.BIGINT()
    if types.is_int8(arrow) or types.is_int16(arrow) or types.is_uint8(arrow):
        return sqltypes.SMALLINT()
    if types.is_integer(arrow):
        return sqltypes.INTEGER()
    if types.is_float64(arrow):
        return sqltypes.DOUBLE()
    if types.is_floating(arrow):
        return sqltypes.REAL()
    if types.is_decimal(arrow):
        return sqltypes.DECIMAL(arrow.precision, arrow.scale)
    if types.is_date(arrow):
        return sqltypes.DATE()
    if types.is_time(arrow):
        return sqltypes.TIME()
    if types.is_timestamp(arrow):
        return sqltypes.TIMESTAMP(timezone=arrow.tz is not None)
    if types.is_string(arrow) or types.is_large_string(arrow):
        return sqltypes.VARCHAR()
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
        return sqltypes.LargeBinary()
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        item = column_type(arrow.value_type)
        if isinstance(item, sqltypes.ARRAY):
            return sqltypes.ARRAY(item.item_type, dimensions=(item.dimensions or 1) + 1)
        return sqltypes.ARRAY(item)
    return sqltypes.NullType()
