"""Shows the first rows of a result, as text or as HTML."""

from __future__ import annotations

import html
from typing import Any

import pyarrow as pa

ROWS = 10
"""The number of rows that are shown."""

_CELL = 30
_WIDTH = 120
# A notebook can scroll, so it shows more than a terminal.
_HTML_CELL = 100
_HTML_COLUMNS = 50


def preview(table: pa.Table, rows_known: int | None) -> str:
    """Shows the first rows of `table`, with the columns that fit.

    `rows_known` is the number of all rows, or None if there are more rows than `table` has.
    """
    shown = table.slice(0, ROWS)
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


def preview_html(table: pa.Table, rows_known: int | None) -> str:
    """Shows the first rows of `table` as an HTML table. `rows_known` is as for `preview`."""
    shown = table.slice(0, ROWS).select(list(range(min(table.num_columns, _HTML_COLUMNS))))
    heads = (f"<th>{_escaped(field.name)}<br><small>{_escaped(str(field.type))}</small></th>" for field in shown.schema)
    values = [[_cell(value, _HTML_CELL) for value in column.to_pylist()] for column in shown.columns]
    rows = ("".join(f"<td>{html.escape(value)}</td>" for value in row) for row in zip(*values, strict=True))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    footer = _footer(shown.num_rows, rows_known, table.num_columns - shown.num_columns)
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{body}</tbody></table><div>{footer}</div>"


def _escaped(text: str) -> str:
    return html.escape(_cut(text, _HTML_CELL))


def _footer(rows_shown: int, rows_known: int | None, columns_hidden: int) -> str:
    if rows_known is None:
        text = f"the first {rows_shown} rows, and there are more"
    elif rows_known > rows_shown:
        text = f"the first {rows_shown} of {rows_known} rows"
    else:
        text = "1 row" if rows_known == 1 else f"{rows_known} rows"
    if columns_hidden:
        text += f", {columns_hidden} more columns"
    return f"({text})"


def _cell(value: Any, width: int = _CELL) -> str:
    return "NULL" if value is None else _cut(str(value).replace("\n", "\\n"), width)


def _cut(text: str, width: int = _CELL) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
