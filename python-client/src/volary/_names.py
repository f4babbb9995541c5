"""Quotes names of tables, columns and queries for statements."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Returns the name in quotes, so that a statement takes it exactly as it is."""
    return '"' + name.replace('"', '""') + '"'
