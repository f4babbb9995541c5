"""Shows a result as a short text table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_ROWS = 10
_CELL = 30
_WIDTH = 120


def preview(table: pa.Table, rows_known: int | None) -> str:
    """Shows the first rows of `table`, with the columns that fit. `rows_known` is None if more rows may follow."""
    shown = table.slice(0, _ROWS)
    columns: list[list[str]] = []
    width = 0
    for field, values in zip(table.schema, shown.columns, strict=True):
        cells = [_cut(field.name), _cut(str(field.type)), *(_cell(value) for value in values.to_pylist())]
        column_width = max(map(len, cells))
        width += column_width + 2
        if columns and width > _WIDTH:
            break
        columns.append([cell.ljust(column_width) for cell in cells])
    lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
    return "\n".join([*lines, _footer(shown.num_rows, rows_known, table.num_columns - len(columns))])


def _footer(rows_shown: int, rows_known: int | None, columns_hidden: int) -> str:
    if rows_known is None:
        text = f"the first {rows_shown} rows"
    elif rows_known > rows_shown:
        text = f"the first {rows_shown} of {rows_known} rows"
    else:
        text = "1 row" if rows_known == 1 else f"{rows_known} rows"
    if columns_hidden:
        text += f", {columns_hidden} more columns"
    return f"({text})"


def _cell(value: Any) -> str:
    return "NULL" if value is None else _cut(str(value).replace("\n", "\\n"))


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"
