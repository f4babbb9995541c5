"""The part of the protobuf wire format that tests need for Flight SQL: fields of bytes, text and int64."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
_FLIGHT_SQL = "type.googleapis.com/arrow.flight.protocol.sql."


def field(number: int, value: bytes | str | int) -> bytes:
    """Encodes one field. An int becomes a varint (int64); text and bytes get their length in front."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def command(name: str, message: bytes) -> bytes:
    """Encodes a Flight SQL message of type `name` in an `Any`, as in descriptors and actions."""
    return field(1, _FLIGHT_SQL + name) + field(2, message)


def command_name(any_message: bytes) -> str:
    """Returns the `name` that `command` was called with."""
    return fields(any_message)[1].decode().removeprefix(_FLIGHT_SQL)


def fields(message: bytes) -> dict[int, bytes]:
    """Returns the last value of each length-delimited field by number. Fields of other kinds are skipped."""
    return dict(_read(message))


def repeated(message: bytes, number: int) -> list[bytes]:
    """Returns all values of one length-delimited field."""
    return [value for found, value in _read(message) if found == number]


def _read(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _read_varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        elif kind == _BYTES:
            length, at = _read_varint(message, at)
            yield key >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {kind} at byte {at}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
