"""Compiles types, tables and names to Volary's SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import types as sqltypes
from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import compiler, schema

# Types that a shard key may have. A primary key of another type does not become the shard key.
_KEY_TYPES = (
    *(sqltypes.Integer, sqltypes.String, sqltypes.Date, sqltypes.DateTime, sqltypes.LargeBinary),
    # SQLAlchemy 1.4 has no such type.
    *((sqltypes.Uuid,) if hasattr(sqltypes, "Uuid") else ()),
)
# Python's times have microseconds.
_DIGITS = 6


class VolaryIdentifierPreparer(compiler.IdentifierPreparer):
    """Quotes names. As in PostgreSQL, names are folded to lower case unless they are quoted."""

    reserved_words = (
        RESERVED_WORDS
        | {"values", "system", "user", "interval", "date", "time", "timestamp"}
        # In CREATE TABLE, these words begin a constraint of MySQL.
        | {"key", "index", "fulltext", "spatial"}
    )


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

    visit_DOUBLE = visit_DOUBLE_PRECISION = visit_FLOAT

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
        kind = f"TIMESTAMP({_digits(type_)})"
        return f"{kind} WITH TIME ZONE" if type_.timezone else kind

    def visit_TIME(self, type_: Any, **kw: Any) -> str:
        return f"TIME({_digits(type_)})"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:
        return self.process(type_.item_type, **kw) + "[]" * (type_.dimensions or 1)

    def visit_STRUCT(self, type_: Any, **kw: Any) -> str:
        quote = self.dialect.identifier_preparer.quote
        return f"STRUCT<{', '.join(f'{quote(name)} {self.process(kind, **kw)}' for name, kind in type_.fields)}>"

    def visit_MAP(self, type_: Any, **kw: Any) -> str:
        return f"MAP<{self.process(type_.key, **kw)}, {self.process(type_.value, **kw)}>"

    def visit_JSON(self, type_: Any, **kw: Any) -> str:
        # JSON is stored as text. SQLAlchemy encodes and decodes it.
        return "VARCHAR"

    def visit_UUID(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"


class VolaryDDLCompiler(compiler.DDLCompiler):
    """Compiles CREATE TABLE, ALTER TABLE and COMMENT ON."""

    def get_column_specification(self, column: schema.Column[Any], **kw: Any) -> str:
        _refuse_generated(column)
        # SQLAlchemy 1.4 has `type_compiler` only.
        types: Any = self.dialect.type_compiler
        text = f"{self.preparer.format_column(column)} {types.process(column.type, type_expression=column)}"
        default: str | None = self.get_column_default_string(column)
        if default is not None:
            text += f" DEFAULT {default}"
        return text if column.nullable else f"{text} NOT NULL"

    def visit_add_constraint(self, create: Any, **kw: Any) -> str:
        inherited: Any = super()
        text = str(inherited.visit_add_constraint(create, **kw))
        options = create.element.dialect_options["volary"]
        return f"{text} NOT VALID" if options.get("not_valid") else text

    def visit_drop_column_comment(self, drop: Any, **kw: Any) -> str:
        # SQLAlchemy leaves the schema out here.
        return f"COMMENT ON COLUMN {self.preparer.format_column(drop.element, use_table=True, use_schema=True)} IS NULL"

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

    def visit_create_sequence(self, create: Any, prefix: str | None = None, **kw: Any) -> str:
        raise CompileError(f'there are no sequences, such as "{create.element.name}"; generate keys in the client')


def _digits(kind: Any) -> int:
    precision: int | None = getattr(kind, "precision", None)
    return _DIGITS if precision is None else precision


def _refuse_generated(column: schema.Column[Any]) -> None:
    """Raises `CompileError` if the server would have to generate values of the column other than by a default."""
    if column.computed is not None or column.identity is not None:
        raise CompileError(
            f'column "{column.name}": there are no computed columns and no identities; give the value with each row, '
            "or a server_default"
        )
    default: Any = column.default
    if default is not None and default.is_sequence and not default.optional:
        raise CompileError(
            f'column "{column.name}": there are no sequences, such as "{default.name}"; generate keys in the client, '
            "for example with default=uuid.uuid4"
        )
    if default is None and column.autoincrement is True:
        raise CompileError(
            f'column "{column.name}": the server generates no keys; leave autoincrement=True out, and give the key '
            "with each row"
        )
