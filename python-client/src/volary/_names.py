"""Quotes names of tables, columns and queries for statements."""

from __future__ import annotations


def quoted_table(table: str, schema: str | None) -> str:
    """Returns the name of a table in quotes, with its schema if that is given."""
    return quoted(table) if schema is None else f"{quoted(schema)}.{quoted(table)}"


def quoted(name: str) -> str:
    """Returns the name in quotes, so that a statement takes it exactly as it is."""
    return '"' + name.replace('"', '""') + '"'
