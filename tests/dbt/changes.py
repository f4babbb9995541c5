"""Changes rows and columns for dbt's own tests, which do so to prepare what they test.

Volary has no UPDATE, no DELETE and no ADD COLUMN. The adapter sends none of them; only `project.run_sql` and
`update_rows` of the tests come here.
"""

from __future__ import annotations

import re

from dbt.adapters.volary import VolaryAdapter
from dbt.adapters.volary.statements import split

_COMMENTS = re.compile(r"--[^\n]*")
_UPDATE = re.compile(r"\s*update\s+(?P<table>\S+)\s+set\s+(?P<set>.*?)(?:\s+where\s+(?P<where>.*))?\s*$", re.I | re.S)
_DELETE = re.compile(r"\s*delete\s+from\s+(?P<table>\S+)(?:\s+where\s+(?P<where>.*))?\s*$", re.I | re.S)
_ADD = re.compile(
    r"\s*alter\s+table\s+(?P<table>\S+)\s+add\s+column\s+(?P<name>\S+)\s+(?P<type>\S+)(?:\s+default\s+(?P<value>.*))?\s*$",
    re.I | re.S,
)
# The commas between assignments: those that are not within parentheses or texts.
_COMMA = re.compile(r",(?=(?:[^']*'[^']*')*[^']*$)(?![^(]*\))")


class Changes:
    """The methods of the adapter that only tests call."""

    def __init__(self) -> None:
        self._run_sql_for_tests = VolaryAdapter.run_sql_for_tests
        self._update_column_sql = VolaryAdapter.update_column_sql

    def install(self) -> None:
        """Replaces the methods for this process."""
        changes = self

        def run_sql_for_tests(adapter, sql, fetch, conn):
            *first, last = split(sql)
            for statement in first:
                changes._run_sql_for_tests(adapter, as_replacement(statement, conn.handle), None, conn)
            return changes._run_sql_for_tests(adapter, as_replacement(last, conn.handle), fetch, conn)

        def update_column_sql(adapter, *arguments, **options):
            sql = changes._update_column_sql(adapter, *arguments, **options)
            return as_replacement(sql, adapter.connections.get_thread_connection().handle)

        VolaryAdapter.run_sql_for_tests = run_sql_for_tests
        VolaryAdapter.update_column_sql = update_column_sql


def as_replacement(sql, handle) -> str:
    """Returns the statement, or one that replaces the whole table if it is an UPDATE, a DELETE or an ADD COLUMN."""
    bare = _COMMENTS.sub("", sql)
    if found := _UPDATE.match(bare):
        where = found["where"] or "true"
        values = dict(part.split("=", 1) for part in _COMMA.split(found["set"]))
        values = {_name(written): value for written, value in values.items()}
        columns = [
            f'case when {where} then ({values[name]}) else "{name}" end as "{name}"' if name in values else f'"{name}"'
            for name in _columns(found["table"], handle)
        ]
        return f"create or replace table {found['table']} as select {', '.join(columns)} from {found['table']}"
    if found := _DELETE.match(bare):
        where = found["where"] or "true"
        return f"create or replace table {found['table']} as select * from {found['table']} where ({where}) is not true"
    if found := _ADD.match(bare):
        added = f"cast({found['value'] or 'null'} as {found['type']}) as {found['name']}"
        return f"create or replace table {found['table']} as select *, {added} from {found['table']}"
    return sql


def _name(written: str) -> str:
    name = written.strip()
    return name[1:-1] if name.startswith('"') else name.lower()


def _columns(table: str, handle) -> list[str]:
    with handle.cursor() as cursor:
        cursor.execute(f"select * from {table} where false")
        return [column[0] for column in cursor.description]
