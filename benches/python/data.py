"""The tables that are read, as the statements that make them, and what is asked of them."""

from __future__ import annotations

BIRDS = 100_000
"""Rows of the table of which one row at a time is asked for."""

_LINE_BYTES = 80
"""Of a row of the large table, as Arrow data, about."""

POINT = "SELECT name, grams FROM birds WHERE id = ?"
"""One row, by the shard key."""

QUESTIONS = {"SELECT 1": ("SELECT 1", 0), "point query": (POINT, 1)}
"""Small queries of one row, and how often they take a key."""

LINES_TABLE = "lines"
LINES = f"SELECT * FROM {LINES_TABLE}"


def birds() -> str:
    """Small rows, with the keys 1 to `BIRDS`."""
    return (
        "CREATE TABLE birds WITH (shard_key = 'id') AS "
        f"SELECT value AS id, 'bird ' || value AS name, value / 2.0 AS grams FROM generate_series(1, {BIRDS})"
    )


def lines(mib: int) -> str:
    """Integers, doubles, dates and texts, some of few values and some of many; so large as Arrow data, about."""
    rows = (mib << 20) // _LINE_BYTES
    return (
        f"CREATE TABLE {LINES_TABLE} WITH (shard_key = 'id') AS "
        "SELECT value AS id, "
        "CAST(value % 50 AS INT) AS quantity, "
        "(value * 7919 % 1000003) / 100.0 AS price, "
        "(value % 11) / 100.0 AS discount, "
        "DATE '1992-01-01' + CAST(value % 2500 AS INT) AS day, "
        "'customer ' || (value * 104729 % 150000) AS customer, "
        "'line of ' || to_hex(value * 2654435761 % 4294967296) || ' and more' AS note "
        f"FROM generate_series(1, {rows})"
    )
