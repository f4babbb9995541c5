"""The engines that look up rows by key. The module of an engine is imported when the engine is opened, so that a
program loads only the module of the engine that it uses.
"""

from __future__ import annotations

import importlib
from typing import Protocol

import pyarrow as pa
from data import KEYED_TABLE

_SELECT = f"SELECT k, a, b, s FROM {KEYED_TABLE} WHERE k IN"
# DuckDB uses its index for a list of keys. With 1,000 keys and more, a scan of the table for all of them is faster.
_MOST_LISTED_KEYS = 100
# SQLite maps at most 2 GiB of a file.
_MAPPED_BYTES = (1 << 31) - (1 << 16)
_SQLITE_SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())])


class Engine(Protocol):
    """An open database."""

    version: str

    def look_up(self, keys: list[int]) -> pa.Table:
        """Returns the rows that have these keys, in any order. All keys are different."""


class Volary:
    """A lookup that stays open, over the connection to a gateway."""

    def __init__(self, uri: str) -> None:
        connection = importlib.import_module("volary").connect(uri)
        self.version = connection.server_version
        self._lookup = connection.lookups(KEYED_TABLE)

    def look_up(self, keys: list[int]) -> pa.Table:
        """Returns the rows that have these keys, in the order of the keys."""
        return self._lookup.get(keys)


class DuckDb:
    """A connection to a file of DuckDB."""

    def __init__(self, path: str) -> None:
        module = importlib.import_module("duckdb")
        self.version = module.__version__
        self._connection = module.connect(path)

    def look_up(self, keys: list[int]) -> pa.Table:
        """Returns the rows that have these keys. The keys are a list of parameters or, if there are many, a table."""
        if len(keys) <= _MOST_LISTED_KEYS:
            return self._connection.sql(f"{_SELECT} ({_places(keys)})", params=keys).to_arrow_table()
        self._connection.register("wanted", pa.table({"k": pa.array(keys, pa.int64())}))
        return self._connection.sql(f"{_SELECT} (FROM wanted)").to_arrow_table()


class Sqlite:
    """A connection to a file of SQLite."""

    def __init__(self, path: str) -> None:
        module = importlib.import_module("sqlite3")
        self.version = module.sqlite_version
        self._connection = module.connect(path)
        # Pages are then read where the system has them, and not copied.
        self._connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")

    def look_up(self, keys: list[int]) -> pa.Table:
        """Returns the rows that have these keys. Python keeps a prepared statement for each number of keys."""
        rows = self._connection.execute(f"{_SELECT} ({_places(keys)})", keys).fetchall()
        columns = zip(*rows, strict=True) if rows else ([] for _ in _SQLITE_SCHEMA)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SQLITE_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SQLITE_SCHEMA)


def _places(keys: list[int]) -> str:
    """Returns a parameter for each key."""
    return ", ".join("?" * len(keys))


ENGINES: dict[str, type[Volary] | type[DuckDb] | type[Sqlite]] = {
    "Volary": Volary,
    "DuckDB": DuckDb,
    "SQLite": Sqlite,
}
