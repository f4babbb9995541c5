"""Compares two results. The order of rows counts only if the query states one. Floats may differ by a relative 1e-9."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

RELATIVE_TOLERANCE = 1e-9
_ROWS_SHOWN = 5
_LAST_ORDER_BY = re.compile(r"ORDER\s+BY\s+([^()]+?)(?:\s+LIMIT\s+\d+)?(?:\s+OFFSET\s+\d+)?[\s;]*$", re.IGNORECASE)


def assert_same_rows(actual: pa.Table, expected: pa.Table, ordered_by: Sequence[str] = ()) -> None:
    """Fails if rows differ, and shows the first of them.

    `expected` may have any Arrow types. `actual` must have the types that clients get for them. `ordered_by` names the
    columns whose values must be in the same order. Rows that are equal in these columns may change places, as in SQL.
    """
    assert columns(actual.schema) == columns(classic(expected.schema))
    assert actual.num_rows == expected.num_rows, f"{actual.num_rows} rows instead of {expected.num_rows}"
    expected = expected.cast(classic(expected.schema))
    if ordered_by:
        keys = list(ordered_by)
        _assert_rows(_rows(actual.select(keys)), _rows(expected.select(keys)), f"in the order of {keys}")
    exact = [index for index, field in enumerate(expected.schema) if not pa.types.is_floating(field.type)]
    _assert_rows(_sorted(_rows(actual), exact), _sorted(_rows(expected), exact), "as a bag, sorted here")


def ordered_by(query: str, schema: pa.Schema) -> list[str]:
    """Returns the columns of the result in the query's last ORDER BY, in order. Returns none if the query states no
    order.
    """
    query = re.sub(r"--[^\n]*", "", query)
    found = _LAST_ORDER_BY.search(query)
    if found is None:
        return []
    names = [key.split()[0].split(".")[-1] for key in found[1].split(",")]
    # A column that is not in the result cannot be checked, and neither can the columns after it.
    shown = [name in schema.names for name in names]
    return names[: shown.index(False)] if False in shown else names


def columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Returns names and types without nullability and metadata, which may differ between a plan and a file."""
    return [(field.name, field.type) for field in schema]


def classic(schema: pa.Schema) -> pa.Schema:
    """Returns the schema that the gateway sends by default for `schema`, with types that all clients can read."""
    return pa.schema([field.with_type(classic_type(field.type)) for field in schema])


def classic_type(kind: pa.DataType) -> pa.DataType:
    """Returns the default type that the gateway sends for one type."""
    types = pa.types
    if types.is_string_view(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary_view(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return classic_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(kind.value_field.with_type(classic_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(classic_type(field.type)) for field in kind])
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else kind
    return {
        pa.float16(): pa.float32(),
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }.get(kind, kind)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _sorted(rows: list[tuple[Any, ...]], exact: list[int]) -> list[tuple[Any, ...]]:
    """Sorts rows by the exactly compared columns first.

    Otherwise, a difference in the last digit of a float could pair wrong rows.
    """

    def key(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*(_sortable(row[index]) for index in exact), *map(_sortable, row))

    return sorted(rows, key=key)


def _sortable(value: Any) -> tuple[int, Any]:
    if value is None:
        return (2, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, repr(value) if isinstance(value, (list, dict)) else value)


def _assert_rows(actual: list[tuple[Any, ...]], expected: list[tuple[Any, ...]], how: str) -> None:
    different = [
        f"row {number}:\n  actual   {left}\n  expected {right}"
        for number, (left, right) in enumerate(zip(actual, expected, strict=True))
        if not all(map(_same, left, right))
    ]
    shown = "\n".join(different[:_ROWS_SHOWN])
    assert not different, f"{len(different)} of {len(expected)} rows differ {how}:\n{shown}"


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[name]) for name, value in left.items())
    return bool(left == right)
