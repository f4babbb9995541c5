"""Encodes the Flight SQL messages that the client sends.

pyarrow has no classes for them, and protobuf would be a large dependency for a few messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

IngestMode: TypeAlias = Literal["append", "create", "replace", "create_append"]
"""What happens to the table. "append" fails if the table does not exist. "create" fails if it exists. "replace"
replaces the table in one step. "create_append" creates the table if it does not exist.
"""

_TYPE_PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
_VOLARY_PREFIX = "type.googleapis.com/volary."

# The values of TableNotExistOption and TableExistsOption in FlightSql.proto.
_CREATE, _FAIL_IF_NOT_THERE = 1, 2
_FAIL_IF_THERE, _APPEND, _REPLACE = 1, 2, 3
_MODES: dict[IngestMode, tuple[int, int]] = {
    "append": (_FAIL_IF_NOT_THERE, _APPEND),
    "create": (_CREATE, _FAIL_IF_THERE),
    "replace": (_CREATE, _REPLACE),
    "create_append": (_CREATE, _APPEND),
}


def get_sql_info(*ids: int) -> bytes:
    """Encodes a CommandGetSqlInfo."""
    return _any("CommandGetSqlInfo", b"".join(_number(1, info) for info in ids))


def get_tables(schema: str, table: str | None = None) -> bytes:
    """Encodes a CommandGetTables for one table of a schema, or for all its tables, with their columns."""
    names = _bytes(2, _pattern(schema)) + (b"" if table is None else _bytes(3, _pattern(table)))
    return _any("CommandGetTables", names + _number(5, 1))


def get_imported_keys(schema: str, table: str) -> bytes:
    """Encodes a CommandGetImportedKeys for the foreign keys of a table."""
    return _any("CommandGetImportedKeys", _bytes(2, schema.encode()) + _bytes(3, table.encode()))


def statement_ingest(
    table: str,
    mode: IngestMode,
    options: Mapping[str, str],
    *,
    catalog: str | None = None,
    schema: str | None = None,
    temporary: bool = False,
) -> bytes:
    """Encodes a CommandStatementIngest. `options` are those of CREATE TABLE … WITH. Raises `ValueError` for an unknown
    mode.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if_not_there, if_there = _MODES[mode]
    definition = _number(1, if_not_there) + _number(2, if_there)
    message = _bytes(1, definition) + _bytes(2, table.encode())
    if schema is not None:
        message += _bytes(3, schema.encode())
    if catalog is not None:
        message += _bytes(4, catalog.encode())
    if temporary:
        message += _number(5, 1)
    entries = (_bytes(1, name.encode()) + _bytes(2, value.encode()) for name, value in options.items())
    return _any("CommandStatementIngest", message + b"".join(_bytes(1000, entry) for entry in entries))


def lookup_request(
    table: str, columns: Sequence[str], *, schema: str | None = None, one_snapshot: bool = False
) -> bytes:
    """Encodes Volary's LookupRequest. Without columns, it asks for all of them."""
    message = _bytes(1, table.encode())
    if schema is not None:
        message += _bytes(2, schema.encode())
    message += b"".join(_bytes(4, column.encode()) for column in columns)
    if one_snapshot:
        message += _number(5, 1)
    return _any("LookupRequest", message, _VOLARY_PREFIX)


def _pattern(name: str) -> bytes:
    """Returns the pattern of LIKE that only `name` matches."""
    return re.sub(r"([\\%_])", r"\\\1", name).encode()


def _any(name: str, message: bytes, prefix: str = _TYPE_PREFIX) -> bytes:
    return _bytes(1, (prefix + name).encode()) + _bytes(2, message)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
