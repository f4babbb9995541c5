"""Builds the statements that create the tables, and the queries that read them."""

from __future__ import annotations

BIRDS = 100_000
"""Number of rows of the table that is queried one row at a time."""

_LINE_BYTES = 80
"""Approximate size of a row of the large table, as Arrow data."""

POINT = "SELECT name, grams FROM birds WHERE id = ?"
"""A query for one row by the shard key."""

QUESTIONS = {"SELECT 1": ("SELECT 1", 0), "point query": (POINT, 1)}
"""Small queries with one row, each with the number of keys that it takes as parameters."""

DRIVER_POINT = "SELECT id, name, grams, kind FROM birds WHERE id = ?"
"""A query for one row of `driver_tables` by the shard key. PostgreSQL understands it, too."""

FLOCK = 100
"""Number of rows of the table that is read whole."""

DRIVER_FLOCK = "SELECT id, name, grams, kind FROM flock"
"""A query for all rows of the small table of `driver_tables`."""

KEYED_TABLE = "l"
"""The table whose rows are looked up by key. Its columns and values are those of benches/src/looking_up/rows.rs."""

_KEYED_COLUMNS = "a BIGINT, b DOUBLE PRECISION, s VARCHAR"
_KEYED_VALUES = "k, k * 7919 % 1000003, k * 0.5, 'bird ' || CAST(k * 31 % 1000003 AS VARCHAR)"

LINES_TABLE = "lines"
LINES = f"SELECT * FROM {LINES_TABLE}"


def birds() -> str:
    """Returns the statement that creates the table of small rows. The keys are 1 to `BIRDS`."""
    return (
        "CREATE TABLE birds WITH (shard_key = 'id') AS "
        f"SELECT value AS id, 'bird ' || value AS name, value / 2.0 AS grams FROM generate_series(1, {BIRDS})"
    )


def driver_tables(rows: int) -> list[str]:
    """Returns the statements that create the tables for drivers. Each of four workers has a shard of the small one."""
    return [
        f"CREATE TABLE birds WITH (shard_key = 'id') AS {_driver_rows(rows)}",
        f"CREATE TABLE flock WITH (shard_key = 'id', shards = 4) AS {_driver_rows(FLOCK)}",
    ]


def postgres_tables(rows: int) -> list[str]:
    """Returns the statements that create the same tables in PostgreSQL."""
    return [
        f"CREATE TABLE birds AS {_driver_rows(rows)}",
        "ALTER TABLE birds ADD PRIMARY KEY (id)",
        "VACUUM ANALYZE birds",
        f"CREATE TABLE flock AS {_driver_rows(FLOCK)}",
        "VACUUM ANALYZE flock",
    ]


def _driver_rows(rows: int) -> str:
    """Returns a query for rows with the keys 1 to `rows`."""
    return (
        "SELECT CAST(value AS BIGINT) AS id, 'bird ' || value AS name, "
        "CAST(value AS DOUBLE PRECISION) / 2 AS grams, CAST(value % 50 AS INT) AS kind "
        f"FROM generate_series(1, {rows}) AS series(value)"
    )


def keyed_table(rows: int) -> list[str]:
    """Returns the statements that create the table of rows with the keys 0 to `rows - 1` in Volary."""
    return [
        f"CREATE TABLE {KEYED_TABLE} (k BIGINT NOT NULL, {_KEYED_COLUMNS}) WITH (shard_key = 'k')",
        f"INSERT INTO {KEYED_TABLE} SELECT {_KEYED_VALUES} FROM generate_series(0, {rows - 1}) AS g(k)",
        f"OPTIMIZE {KEYED_TABLE}",
    ]


def duckdb_keyed_table(rows: int) -> list[str]:
    """Returns the statements that create the same table in DuckDB."""
    return [
        f"CREATE TABLE {KEYED_TABLE} (k BIGINT PRIMARY KEY, {_KEYED_COLUMNS})",
        f"INSERT INTO {KEYED_TABLE} SELECT {_KEYED_VALUES} FROM generate_series(0, {rows - 1}) AS g(k)",
    ]


def sqlite_keyed_table(rows: int) -> list[str]:
    """Returns the statements that create the same table in SQLite. Not every SQLite has generate_series."""
    return [
        # Only a key that is called INTEGER is the number of the row. Another key would be in an index of its own.
        f"CREATE TABLE {KEYED_TABLE} (k INTEGER PRIMARY KEY, {_KEYED_COLUMNS})",
        f"INSERT INTO {KEYED_TABLE} "
        f"WITH RECURSIVE g(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM g WHERE k < {rows - 1}) "
        f"SELECT {_KEYED_VALUES} FROM g",
    ]


def lines(mib: int) -> str:
    """Returns the statement that creates the large table, with about `mib` mebibytes of Arrow data. Its columns are
    integers, doubles, dates and texts. Some columns have few different values, and some have many.
    """
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
