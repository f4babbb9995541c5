"""Asks a gateway about tables, and remembers the answers as long as an inspector does."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection

from .._names import quoted_table
from ._column_types import column_type

T = TypeVar("T")
Names: TypeAlias = tuple[str, ...] | None

_REMARKS = b"ARROW:FLIGHT:SQL:REMARKS"
# The rules of foreign keys, as JDBC and Flight SQL number them. NO ACTION is what a key without a rule has.
_RULES = {0: "CASCADE", 1: "RESTRICT", 2: "SET NULL", 4: "SET DEFAULT"}
# Metadata of fewer tables is asked for one by one. Otherwise, that of the whole schema is one call.
_FEW_TABLES = 8


@dataclass
class _Constraint:
    kind: str
    columns: list[str] = field(default_factory=list)
    conditions: set[str] = field(default_factory=set)


class Questions:
    """What can be asked over a connection. Answers are by the names of tables.

    `schema` is None for the current schema of the connection. `names` are the tables to ask about, or None for all
    tables of the schema. Tables about which there is nothing to tell are left out.
    """

    def __init__(self, connection: Connection, kw: dict[str, Any]) -> None:
        """Takes the keywords of a method of the dialect. Its `info_cache` belongs to an inspector."""
        self._connection = connection
        self._answers: dict[Any, Any] | None = kw.get("info_cache")

    def schemas(self) -> list[str]:
        """Returns the names of all schemas."""

        def ask() -> list[str]:
            query = text("SELECT schema_name FROM information_schema.schemata ORDER BY schema_name")
            # The list of schemas leaves out the schema that it is in.
            return [*(str(name) for (name,) in self._connection.execute(query)), "information_schema"]

        return list(self._remember(("schemas",), ask))

    def objects(self, schema: str | None, names: Names) -> dict[str, bool]:
        """Returns the tables and views that exist, and whether each is a view."""

        return {str(row.table_name): row.table_type == "VIEW" for row in self._listed(schema, names)}

    def view_definition(self, schema: str | None, name: str) -> str | None:
        """Returns the query of a view. None for tables and system tables, and if there is no view of this name."""
        query = "SELECT view_definition FROM information_schema.views WHERE table_schema = {schema}{names}"
        rows = self._rows(query, schema, (name,), "table_name")
        return None if not rows or rows[0][0] is None else str(rows[0][0])

    def columns(self, schema: str | None, names: Names) -> dict[str, list[dict[str, Any]]]:
        """Returns the columns of each table."""

        def ask() -> dict[str, list[dict[str, Any]]]:
            query = (
                "SELECT table_name, column_name, column_default FROM information_schema.columns "
                "WHERE table_schema = {schema}{names} AND column_default IS NOT NULL"
            )
            defaults = {
                (table, column): value for table, column, value in self._rows(query, schema, names, "table_name")
            }
            return {
                table: [_column(column, defaults.get((table, column.name))) for column in columns]
                for table, columns in self._table_schemas(schema, names).items()
            }

        # Callers may change the columns.
        answer = self._remember(("columns", schema, names), ask)
        return {table: [dict(column) for column in columns] for table, columns in answer.items()}

    def primary_keys(self, schema: str | None, names: Names) -> dict[str, dict[str, Any]]:
        """Returns the primary keys."""
        return {
            table: {"constrained_columns": list(constraint.columns), "name": name}
            for table, constraints in self._constraints(schema, names).items()
            for name, constraint in constraints.items()
            if constraint.kind == "PRIMARY KEY"
        }

    def unique_constraints(self, schema: str | None, names: Names) -> dict[str, list[dict[str, Any]]]:
        """Returns the unique constraints."""
        return {
            table: [
                {"name": name, "column_names": list(constraint.columns)}
                for name, constraint in constraints.items()
                if constraint.kind == "UNIQUE"
            ]
            for table, constraints in self._constraints(schema, names).items()
        }

    def checks(self, schema: str | None, names: Names) -> dict[str, list[dict[str, Any]]]:
        """Returns the checks. Leaves out, with a warning, those of which the gateway does not tell the condition."""
        checks: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for table, constraints in self._constraints(schema, names).items():
            for name, constraint in constraints.items():
                if constraint.kind != "CHECK":
                    continue
                if len(constraint.conditions) == 1:
                    (condition,) = constraint.conditions
                    checks[table].append({"name": name, "sqltext": condition})
                else:
                    warnings.warn(
                        f'the check "{name}" of table "{table}" is left out: other tables of the schema "{schema}" '
                        "have checks of this name with other conditions",
                        stacklevel=2,
                    )
        return checks

    def foreign_keys(self, schema: str | None, names: Names) -> dict[str, list[dict[str, Any]]]:
        """Returns the foreign keys.

        A key within the schema, or to the current schema, refers to a table as the caller would name it.
        """
        keys: dict[str, list[dict[str, Any]]] = {}
        for table, constraints in self._constraints(schema, names).items():
            if any(constraint.kind == "FOREIGN KEY" for constraint in constraints.values()):
                keys[table] = self._foreign_keys_of(schema, table)
        return keys

    def _foreign_keys_of(self, schema: str | None, table: str) -> list[dict[str, Any]]:
        current = self._current_schema()
        place = current if schema is None else schema

        def referred(other: str) -> str | None:
            if other == place:
                return schema
            return None if other == current else other

        # information_schema names the referenced columns only if they are a key, and that by a name which two tables
        # may use.
        driver = driver_of(self._connection)
        rows = self._remember(("foreign keys", place, table), lambda: driver.foreign_keys(place, table))
        return _foreign_keys(rows, referred)

    def comments(self, schema: str | None, names: Names) -> dict[str, dict[str, str]]:
        """Returns the comments on tables and views."""
        return {
            str(row.table_name): {"text": str(row.comment)}
            for row in self._listed(schema, names)
            if row.comment is not None
        }

    def options(self, schema: str | None, names: Names) -> dict[str, dict[str, Any]]:
        """Returns the options of CREATE TABLE … WITH, as arguments of `Table`."""
        options = {}
        for row in self._layouts(schema, names):
            if row.kind == "reference":
                options[str(row.name)] = {"volary_reference": True}
                continue
            given = {
                "volary_shard_key": row.shard_key,
                "volary_shards": row.shards,
                "volary_sort_key": row.sort_key,
            }
            options[str(row.name)] = {name: value for name, value in given.items() if value is not None}
        return options

    def _listed(self, schema: str | None, names: Names) -> list[Any]:
        query = (
            "SELECT table_name, table_type, comment FROM information_schema.tables WHERE table_schema = {schema}{names}"
        )
        return self._remember(("listed", schema, names), lambda: self._rows(query, schema, names, "table_name"))

    def _layouts(self, schema: str | None, names: Names) -> list[Any]:
        query = "SELECT name, kind, shard_key, shards, sort_key FROM system.tables WHERE schema_name = {schema}{names}"
        return self._remember(("layouts", schema, names), lambda: self._rows(query, schema, names, "name"))

    def _constraints(self, schema: str | None, names: Names) -> dict[str, dict[str, _Constraint]]:
        def ask() -> dict[str, dict[str, _Constraint]]:
            # Three short statements take the gateway less than half as long as one with two joins.
            query = (
                "SELECT table_name, constraint_name, constraint_type FROM information_schema.table_constraints "
                "WHERE table_schema = {schema}{names} ORDER BY table_name, constraint_name"
            )
            found: defaultdict[str, dict[str, _Constraint]] = defaultdict(dict)
            for table, name, kind in self._rows(query, schema, names, "table_name"):
                found[str(table)][str(name)] = _Constraint(str(kind))
            kinds = {constraint.kind for constraints in found.values() for constraint in constraints.values()}
            if kinds & {"PRIMARY KEY", "UNIQUE"}:
                self._add_columns(found, schema, names)
            if "CHECK" in kinds:
                self._add_conditions(found, schema)
            return dict(found)

        return self._remember(("constraints", schema, names), ask)

    def _add_columns(self, found: Mapping[str, dict[str, _Constraint]], schema: str | None, names: Names) -> None:
        query = (
            "SELECT table_name, constraint_name, column_name FROM information_schema.key_column_usage "
            "WHERE table_schema = {schema}{names} ORDER BY table_name, constraint_name, ordinal_position"
        )
        for table, name, column in self._rows(query, schema, names, "table_name"):
            # Another client may have added the constraint in the meantime.
            if (constraint := found.get(table, {}).get(name)) is not None:
                constraint.columns.append(str(column))

    def _add_conditions(self, found: Mapping[str, dict[str, _Constraint]], schema: str | None) -> None:
        query = (
            "SELECT constraint_name, check_clause FROM information_schema.check_constraints "
            "WHERE constraint_schema = {schema}"
        )
        conditions: defaultdict[str, set[str]] = defaultdict(set)
        for name, condition in self._rows(query, schema, None, "constraint_name"):
            conditions[str(name)].add(str(condition))
        for constraints in found.values():
            for name, constraint in constraints.items():
                if constraint.kind == "CHECK":
                    # The names of checks belong to their tables, so there may be conditions of several checks.
                    constraint.conditions = conditions[name]

    def _table_schemas(self, schema: str | None, names: Names) -> dict[str, pa.Schema]:
        driver = driver_of(self._connection)
        place = self._current_schema() if schema is None else schema
        if names is None or len(names) > _FEW_TABLES:
            found: dict[str, pa.Schema] = driver.table_schemas(place)
        else:
            found = {}
            for name in names:
                found |= driver.table_schemas(place, name)
        # GetTables leaves information_schema out.
        for name in self.objects(schema, names):
            if name not in found:
                with driver.cursor() as cursor:
                    cursor.execute(f"SELECT * FROM {quoted_table(name, place)} LIMIT 0")
                    found[name] = cursor.fetch_arrow_table().schema
        return found

    def _rows(self, query: str, schema: str | None, names: Names, column: str) -> list[Any]:
        """Runs a query with the places `{schema}` and `{names}`. `column` is the one that has the names of tables."""
        values: dict[str, Any] = {} if schema is None else {"schema": schema}
        place = "current_schema()" if schema is None else ":schema"
        if names is None:
            return list(self._connection.execute(text(query.format(schema=place, names="")), values))
        statement = text(query.format(schema=place, names=f" AND {column} IN :names"))
        statement = statement.bindparams(bindparam("names", expanding=True))
        return list(self._connection.execute(statement, {**values, "names": list(names)}))

    def _current_schema(self) -> str:
        query = text("SELECT current_schema()")
        return self._remember(("current schema",), lambda: str(self._connection.execute(query).scalar()))

    def _remember(self, question: tuple[Any, ...], ask: Callable[[], T]) -> T:
        if self._answers is None:
            return ask()
        key = ("volary", *question)
        if key not in self._answers:
            self._answers[key] = ask()
        answer: T = self._answers[key]
        return answer


def driver_of(connection: Connection) -> Any:
    """Returns the connection of `volary.dbapi`."""
    raw: Any = connection.connection
    # While SQLAlchemy 1.4 initializes a dialect, it has no proxy of the connection.
    return getattr(raw, "dbapi_connection", raw)


def _column(column: pa.Field[Any], default: str | None) -> dict[str, Any]:
    comment = (column.metadata or {}).get(_REMARKS)
    return {
        "name": column.name,
        "type": column_type(column.type),
        "nullable": column.nullable,
        "default": default,
        "comment": None if comment is None else comment.decode(),
    }


def _foreign_keys(rows: list[dict[str, Any]], referred: Callable[[str], str | None]) -> list[dict[str, Any]]:
    keys: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["fk_key_name"], row["key_sequence"])):
        rules = {"onupdate": _RULES.get(row["update_rule"]), "ondelete": _RULES.get(row["delete_rule"])}
        key = keys.setdefault(
            row["fk_key_name"],
            {
                "name": row["fk_key_name"],
                "constrained_columns": [],
                "referred_schema": referred(row["pk_db_schema_name"]),
                "referred_table": row["pk_table_name"],
                "referred_columns": [],
                "options": {name: rule for name, rule in rules.items() if rule is not None},
            },
        )
        key["constrained_columns"].append(row["fk_column_name"])
        key["referred_columns"].append(row["pk_column_name"])
    return list(keys.values())
