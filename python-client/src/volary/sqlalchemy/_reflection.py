"""Reflects schemas, tables, columns, keys and checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import exc
from sqlalchemy.engine import Connection, default

from ._questions import Questions

T = TypeVar("T")
Names: TypeAlias = tuple[str, ...] | None
"""Names of tables to ask about, or None for all tables of the schema."""
Ask: TypeAlias = Callable[[Questions, str | None, Names], dict[str, T]]
"""Asks a gateway something about tables. Gets the name of the schema and those of the tables."""

# A question about more tables than this asks about the whole schema, because long lists of names make long statements.
_MOST_NAMES = 100


class Reflection(default.DefaultDialect):
    """The part of the dialect that reflects tables.

    A question about all tables of a schema takes as many statements as one about a single table. The exception is
    `get_multi_foreign_keys`, which takes one call more for each table that has foreign keys.
    """

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        return Questions(connection, kw).schemas()

    def has_schema(self, connection: Connection, schema_name: str, **kw: Any) -> bool:
        return schema_name in self.get_schema_names(connection, **kw)

    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        return table_name in Questions(connection, kw).objects(schema, (table_name,))

    def has_multi_table(
        self, connection: Connection, table_names: Sequence[str], schema: str | None = None, **kw: Any
    ) -> Iterable[tuple[tuple[str | None, str], bool]]:
        names = tuple(table_names) if len(table_names) <= _MOST_NAMES else None
        objects = Questions(connection, kw).objects(schema, names)
        return [((schema, name), name in objects) for name in table_names]

    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return _named(Questions(connection, kw), schema, views=False)

    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        # The system tables belong to no user and cannot be dropped, so they are listed as views.
        return _named(Questions(connection, kw), schema, views=True)

    def get_temp_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def get_temp_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def get_materialized_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def get_sequence_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def has_sequence(self, connection: Connection, sequence_name: str, schema: str | None = None, **kw: Any) -> bool:
        return False

    def get_view_definition(self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any) -> str:
        definition = Questions(connection, kw).view_definition(schema, view_name)
        if definition is None:
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        return definition

    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return _of_table(Questions.columns, list, connection, table_name, schema, kw)

    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return _of_table(Questions.primary_keys, _no_primary_key, connection, table_name, schema, kw)

    def get_unique_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        return _of_table(Questions.unique_constraints, list, connection, table_name, schema, kw)

    def get_check_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        return _of_table(Questions.checks, list, connection, table_name, schema, kw)

    def get_foreign_keys(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return _of_table(Questions.foreign_keys, list, connection, table_name, schema, kw)

    def get_indexes(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return _of_table(_no_indexes, list, connection, table_name, schema, kw)

    def get_table_comment(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return _of_table(Questions.comments, _no_comment, connection, table_name, schema, kw)

    def get_table_options(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return _of_table(Questions.options, dict, connection, table_name, schema, kw)

    # SQLAlchemy 2 asks about several tables at once.

    def get_multi_columns(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.columns, list, connection, **kw)

    def get_multi_pk_constraint(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.primary_keys, _no_primary_key, connection, **kw)

    def get_multi_unique_constraints(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.unique_constraints, list, connection, **kw)

    def get_multi_check_constraints(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.checks, list, connection, **kw)

    def get_multi_foreign_keys(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.foreign_keys, list, connection, **kw)

    def get_multi_indexes(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(_no_indexes, list, connection, **kw)

    def get_multi_table_comment(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.comments, _no_comment, connection, **kw)

    def get_multi_table_options(self, connection: Connection, **kw: Any) -> Any:
        return _of_tables(Questions.options, dict, connection, **kw)


def _of_table(
    ask: Ask[Any],
    nothing: Callable[[], Any],
    connection: Connection,
    name: str,
    schema: str | None,
    kw: dict[str, Any],
) -> Any:
    """Returns what is known about one table. Raises `NoSuchTableError` if it does not exist."""
    questions = Questions(connection, kw)
    if name not in questions.objects(schema, (name,)):
        raise exc.NoSuchTableError(f"{schema}.{name}" if schema else name)
    return ask(questions, schema, (name,)).get(name, nothing())


def _of_tables(
    ask: Ask[Any],
    nothing: Callable[[], Any],
    connection: Connection,
    *,
    schema: str | None,
    filter_names: Collection[str] | None,
    scope: Any,
    kind: Any,
    **kw: Any,
) -> Iterable[tuple[tuple[str | None, str], Any]]:
    """Returns what is known about the tables and views that are asked for and exist."""
    from sqlalchemy.engine.reflection import ObjectKind, ObjectScope

    if ObjectScope.DEFAULT not in scope:
        return []  # temporary tables are not reflected
    questions = Questions(connection, kw)
    names = tuple(sorted(filter_names)) if filter_names and len(filter_names) <= _MOST_NAMES else None
    wanted = [
        name
        for name, is_view in questions.objects(schema, names).items()
        if (ObjectKind.VIEW if is_view else ObjectKind.TABLE) in kind and (not filter_names or name in filter_names)
    ]
    found = ask(questions, schema, names) if wanted else {}
    return [((schema, name), found.get(name, nothing())) for name in wanted]


def _named(questions: Questions, schema: str | None, *, views: bool) -> list[str]:
    objects = questions.objects(schema, None)
    return sorted(name for name, is_view in objects.items() if is_view == views)


def _no_indexes(questions: Questions, schema: str | None, names: Names) -> dict[str, Any]:
    return {}


def _no_primary_key() -> dict[str, Any]:
    return {"constrained_columns": [], "name": None}


def _no_comment() -> dict[str, Any]:
    return {"text": None}
