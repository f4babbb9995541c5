"""What the writers write: numbered statements whose rows follow from the seed, so that every reader can check them.

The values of a statement's rows sum to zero: each pair of rows has `+x` and `-x`, in different shards.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

SHARDS = 8
SHARDED = "ledger"
REFERENCE = "mirror"
TABLES = (SHARDED, REFERENCE)
COLUMNS = "(k BIGINT NOT NULL, w BIGINT NOT NULL, s BIGINT NOT NULL, v BIGINT NOT NULL, t VARCHAR)"
CREATE = (
    f"CREATE TABLE {SHARDED} {COLUMNS} WITH (shard_key = 'k', shards = {SHARDS})",
    f"CREATE TABLE {REFERENCE} {COLUMNS} WITH (reference = true)",
)
SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in ("k", "w", "s", "v")] + [pa.field("t", pa.utf8())]
)
KEYS_OF_STATEMENT = 4096
KEYS_OF_WRITER = KEYS_OF_STATEMENT << 24
PRIME = 997
LETTERS = 26
GROUPED = (
    "SELECT w, s, count(*), count(DISTINCT k), sum(k), sum(v), sum(abs(v)), sum(length(t)) FROM {table} "
    "WHERE k >= 0 GROUP BY w, s"
)
"""The query of a reader, which has one row for each statement: its number and its `Totals`."""


class StatementId(NamedTuple):
    """The number of a statement, and its writer."""

    writer: int
    number: int


class Totals(NamedTuple):
    """What a query of a statement's rows must find."""

    rows: int
    keys: int
    sum_of_keys: int
    sum_of_values: int
    sum_of_amounts: int
    sum_of_lengths: int


class Size(NamedTuple):
    """The size of a statement. Small ones go to the log, and the largest ones make segments at once."""

    pairs: range
    text_bytes: range
    weight: int


SIZES = (
    Size(range(1, 4), range(0, 20), 60),
    Size(range(5, 40), range(100, 1500), 30),
    Size(range(60, 240), range(500, 1500), 10),
)


@dataclass(frozen=True)
class Statement:
    """A statement, as the seed says."""

    id: StatementId
    table: str
    path: str
    pairs: int
    text_bytes: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return 2 * self.pairs

    @property
    def first_key(self) -> int:
        """The key of the first row. The other rows have the keys after it."""
        return self.id.writer * KEYS_OF_WRITER + self.id.number * KEYS_OF_STATEMENT

    def row(self, index: int) -> tuple[int, int, int, int, str]:
        """Returns a row."""
        key = self.first_key + index
        amount = 1 + (self.id.number * 31 + index // 2 * 7 + self.id.writer) % PRIME
        text = chr(ord("a") + key % LETTERS) * self.text_bytes
        return key, self.id.writer, self.id.number, amount if index % 2 == 0 else -amount, text

    def all_rows(self) -> list[tuple[int, int, int, int, str]]:
        """Returns all rows, by their keys."""
        return [self.row(index) for index in range(self.rows)]

    def table_of_rows(self) -> pa.Table:
        """Returns all rows as Arrow data."""
        columns = zip(*self.all_rows(), strict=True)
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def select(self) -> str:
        """Returns a query that computes the rows on the server."""
        writer, number, first = self.id.writer, self.id.number, self.first_key
        amount = f"(1 + ({number * 31} + i / 2 * 7 + {writer}) % {PRIME})"
        text = f"repeat(chr({ord('a')} + ({first} + i) % {LETTERS}), {self.text_bytes})"
        return (
            f"SELECT {first} + i, {writer}, {number}, (1 - i % 2 * 2) * {amount}, {text} "
            f"FROM generate_series(0, {self.rows - 1}) AS g(i)"
        )

    @cached_property
    def totals(self) -> Totals:
        """What a query of the rows must find."""
        rows = self.all_rows()
        return Totals(
            rows=len(rows),
            keys=len(rows),
            sum_of_keys=sum(row[0] for row in rows),
            sum_of_values=0,
            sum_of_amounts=sum(abs(row[3]) for row in rows),
            sum_of_lengths=self.rows * self.text_bytes,
        )


class Ledger:
    """All statements that there can be, by seed. `paths` has the names of ingest paths with their most pairs."""

    def __init__(self, seed: int, paths: Mapping[str, int]) -> None:
        self._seed = seed
        self._paths = dict(paths)
        self.statement = lru_cache(maxsize=None)(self._statement)

    def _statement(self, id: StatementId) -> Statement:
        chance = random.Random(f"{self._seed}/{id.writer}/{id.number}")
        path = chance.choice(list(self._paths))
        size = chance.choices(SIZES, [size.weight for size in SIZES])[0]
        pairs = min(chance.choice(size.pairs), self._paths[path])
        table = REFERENCE if chance.random() < 0.2 else SHARDED
        return Statement(id, table, path, pairs, chance.choice(size.text_bytes))

    def check(self, table: str, found: Iterable[tuple[Any, ...]]) -> set[StatementId]:
        """Returns the statements of a reader's rows. Each of them must be whole, and have each row once."""
        seen = set()
        for writer, number, *totals in found:
            statement = self.statement(StatementId(writer, number))
            assert statement.table == table, f"{statement.id} is in table {table}, not in {statement.table}"
            assert statement.totals == tuple(totals), (
                f"statement {statement.id} is not whole, or has rows twice, in {table}: "
                f"found {Totals(*totals)}, not {statement.totals}"
            )
            assert statement.id not in seen, f"{statement.id} is in two groups of {table}"
            seen.add(statement.id)
        return seen
