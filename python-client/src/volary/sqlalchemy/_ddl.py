"""Compiles types, tables and names to Volary's SQL."""

from __future__ import annotations

import warnings
from typing import Any

from sqlalchemy import types as sqltypes
from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import compiler, schema

# Types that a shard key may have. A primary key of another type does not become the shard key.
_KEY_TYPES = (sqltypes.Integer, sqltypes.String, sqltypes.Date, sqltypes.DateTime, sqltypes.LargeBinary)


class VolaryIdentifierPreparer(compiler.IdentifierPreparer):
    """Quotes names. As in PostgreSQL, names are folded to lower case unless they are quoted."""

    reserved_words = RESERVED_WORDS | {"values", "system", "user", "interval", "date", "time", "timestamp"}


class VolaryTypeCompiler(compiler.GenericTypeCompiler):
    """Compiles the types of CREATE TABLE and CAST."""

    def visit_unicode(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    visit_NVARCHAR = visit_NCHAR = visit_CHAR = visit_CLOB = visit_TEXT = visit_VARCHAR
    visit_unicode_text = visit_text = visit_string = visit_enum = visit_unicode

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        # FLOAT is single precision in DataFusion, but a Python float has double precision.
        return "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        if type_.precision is None:
            return f"DECIMAL(38, {10 if type_.scale is None else type_.scale})"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    visit_DECIMAL = visit_NUMERIC

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:
        return "BYTEA"

    visit_BINARY = visit_VARBINARY = visit_BLOB
    visit_large_binary = visit_BLOB

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        return self.visit_TIMESTAMP(type_, **kw)

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        # Python's times have microseconds.
        return "TIMESTAMP(6) WITH TIME ZONE" if type_.timezone else "TIMESTAMP(6)"

    def visit_TIME(self, type_: Any, **kw: Any) -> str:
        return "TIME"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:
        return self.process(type_.item_type, **kw) + "[]" * (type_.dimensions or 1)

    def visit_JSON(self, type_: Any, **kw: Any) -> str:
        # JSON is stored as text. SQLAlchemy encodes and decodes it.
        return "VARCHAR"

    def visit_UUID(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"


class VolaryDDLCompiler(compiler.DDLCompiler):
    """Compiles CREATE TABLE."""

    def get_column_specification(self, column: schema.Column[Any], **kw: Any) -> str:
        if column.computed is not None or column.identity is not None or column.server_default is not None:
            raise CompileError(
                f'column "{column.name}": there are no defaults, computed columns or identities; '
                "give the value with each row"
            )
        name = self.preparer.format_column(column)
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        return f"{name} {kind}{'' if column.nullable else ' NOT NULL'}"

    def create_table_constraints(
        self, table: schema.Table[Any], _include_foreign_key_constraints: Any = None, **kw: Any
    ) -> str:
        for constraint in table.constraints:
            if isinstance(constraint, schema.UniqueConstraint | schema.CheckConstraint):
                what = type(constraint).__name__
                warnings.warn(f'table "{table.name}": its {what} is not stored, and nothing checks it', stacklevel=2)
        # Primary and foreign keys only describe the model. They need no check, so they are left out.
        return ""

    def post_create_table(self, table: schema.Table[Any]) -> str:
        given = {name: value for name, value in table.dialect_options["volary"].items() if value is not None}
        if "shard_key" not in given and not given.get("reference"):
            key = list(table.primary_key.columns)
            if len(key) == 1 and isinstance(key[0].type, _KEY_TYPES):
                given["shard_key"] = key[0].name
        if not isinstance(given.get("sort_key", ""), str):
            given["sort_key"] = ", ".join(given["sort_key"])
        options = [f"{name} = {self._option(value)}" for name, value in sorted(given.items())]
        return f"\nWITH ({', '.join(options)})" if options else ""

    def _option(self, value: Any) -> str:
        if isinstance(value, bool):
            return "'true'" if value else "'false'"
        text = str(value).replace("'", "''")
        return text if isinstance(value, int) else f"'{text}'"

    def visit_create_index(
        self, create: Any, include_schema: bool = False, include_table_schema: bool = True, **kw: Any
    ) -> str:
        raise CompileError(
            "there are no indexes: give the column of lookups as volary_shard_key or volary_sort_key of the table"
        )

    def visit_set_table_comment(self, create: Any, **kw: Any) -> str:
        raise CompileError("tables have no comments")
