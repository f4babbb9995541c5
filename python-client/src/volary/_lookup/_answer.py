"""The answer to one batch of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._value import values_of
from ..errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a batch of keys, in the order of the keys. The first column has the positions of the keys."""

    rows: pa.Table
    asked: int
    """The number of keys in the batch."""
    found: int
    """The number of these keys that have a row."""

    def table(self, positions: str | None) -> pa.Table:
        """Returns the rows. With a name for it, the first column has the position of each row's key, from 0."""
        rows = self.rows.remove_column(0)
        if positions is None:
            return rows
        return rows.add_column(0, positions, self.rows.column(0).cast(pa.int64()))

    def are_present(self) -> pa.BooleanArray:
        """Returns whether each key has a row."""
        if self.found in (0, self.asked):
            same: pa.BooleanArray = pa.repeat(pa.scalar(self.found > 0), self.asked)
            return same
        numbers = pa.array(range(self.asked), pa.int32())
        present: pa.BooleanArray = pc.is_in(numbers, value_set=self.rows.column(0).combine_chunks())
        return present

    def places(self) -> dict[int, range]:
        """Returns the rows of each key that has any, by its position."""
        places: dict[int, range] = {}
        positions: list[Any] = self.rows.column(0).to_pylist()
        for row, position in enumerate(positions):
            known = places.get(position)
            places[position] = range(row, row + 1) if known is None else range(known.start, row + 1)
        return places

    def row(self, key: Any, place: range | None) -> dict[str, Any] | None:
        """Returns the row at a place, or None without a place. Raises `InvalidArgumentError` for several rows. `key` is
        what the error names.
        """
        if place is None:
            return None
        if len(place) > 1:
            raise InvalidArgumentError(f"key {key!r} has {len(place)} rows, and `one` returns one; use `get`")
        row = self.rows.slice(place.start, 1)
        columns = zip(row.columns[1:], list(row.schema)[1:], strict=True)
        return {field.name: values_of(column, field)[0] for column, field in columns}
