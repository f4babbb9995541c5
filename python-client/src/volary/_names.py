"""Names of tables, columns and queries in statements."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name as it is, for a statement."""
    return '"' + name.replace('"', '""') + '"'
