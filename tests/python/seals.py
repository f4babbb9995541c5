"""Seals messages as nodes do. Tests can also seal what no node would: an expired message, or one for another purpose.

Seals use BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs). The implementation in this file follows the reference,
and is fast enough for tickets.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

_IV = (
    0x6A09E667,
    0xBB67AE85,
    0x3C6EF372,
    0xA54FF53A,
    0x510E527F,
    0x9B05688C,
    0x1F83D9AB,
    0x5BE0CD19,
)
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_MIXED = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)
_ROUNDS = 7
_BLOCK_BYTES = 64
_CHUNK_BYTES = 1024
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT, _KEYED, _CONTEXT, _MATERIAL = (1 << bit for bit in range(7))
_WORD = 0xFFFF_FFFF

MAGIC = b"VL"
VERSION = 2
HEADER_BYTES = 12
MAC_BYTES = 16


class Purpose(IntEnum):
    """What a sealed message may be used for."""

    FRAGMENT = 1
    WRITE = 2
    CONTROL = 3
    MEMBERSHIP = 4
    QUERY = 5
    PREPARED_STATEMENT = 6
    SESSION = 7
    DIRECT = 8
    INTRODUCTION = 9
    NODE = 10
    MEMBERSHIP_ANSWER = 11
    INTRODUCTION_ANSWER = 12
    CHECK = 13
    CHECK_ANSWER = 14


class Seal:
    """Seals messages with a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of_secret(cls, secret: str) -> Seal:
        """Returns the seal of the nodes of a cluster with this secret."""
        return cls(_derived("volary 2026-11 sealed messages v1", secret.encode()))

    @classmethod
    def of_gateways(cls, catalog: Path) -> Seal:
        """Returns the seal of the gateways with this catalog. They seal tickets, handles and tokens of clients."""
        found = re.search(rb'"token_key":"([0-9a-f]{64})"', catalog.read_bytes())
        assert found, f"{catalog} has no such key"
        return cls(bytes.fromhex(found[1].decode()))

    def node_header(self, expiry_s: int) -> tuple[str, str]:
        """Returns the header by which a node proves that it is a node."""
        sealed = self(Purpose.NODE, b"", expiry_s)
        return "volary-node", base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def __call__(self, purpose: int, message: bytes, expiry_s: int) -> bytes:
        """Seals a message. It opens for `purpose` until `expiry_s`, in seconds since 1970."""
        signed = MAGIC + bytes([VERSION, purpose]) + expiry_s.to_bytes(8, "big") + message
        return signed + _hash(_words(self._key), signed, _KEYED)[:MAC_BYTES]

    def reseal(self, sealed: bytes, *, purpose: int | None = None, expiry_s: int | None = None) -> bytes:
        """Seals the content of `sealed` again, for another purpose or with another expiry time."""
        expiry = int.from_bytes(sealed[4:HEADER_BYTES], "big") if expiry_s is None else expiry_s
        return self(sealed[3] if purpose is None else purpose, content(sealed), expiry)


def content(sealed: bytes) -> bytes:
    """Returns the sealed message, which is not encrypted."""
    return sealed[HEADER_BYTES:-MAC_BYTES]


def _derived(context: str, material: bytes) -> bytes:
    key = _hash(_IV, context.encode(), _CONTEXT)
    return _hash(_words(key), material, _MATERIAL)


def _hash(key: tuple[int, ...], data: bytes, flags: int) -> bytes:
    return struct.pack("<8I", *_node(key, data, 0, flags, _ROOT))


def _node(key: tuple[int, ...], data: bytes, first_chunk: int, flags: int, root: int) -> tuple[int, ...]:
    """Returns the chaining value of a tree's node over `data`."""
    if len(data) <= _CHUNK_BYTES:
        return _chunk(key, data, first_chunk, flags, root)
    # The left side is the largest complete tree that leaves data for the right side.
    chunks_left = 1 << ((len(data) - 1) // _CHUNK_BYTES).bit_length() - 1
    split = chunks_left * _CHUNK_BYTES
    left = _node(key, data[:split], first_chunk, flags, 0)
    right = _node(key, data[split:], first_chunk + chunks_left, flags, 0)
    return _compressed(key, left + right, 0, _BLOCK_BYTES, flags | _PARENT | root)


def _chunk(key: tuple[int, ...], data: bytes, number: int, flags: int, root: int) -> tuple[int, ...]:
    blocks = [data[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES)] or [b""]
    value = key
    for index, block in enumerate(blocks):
        of_block = _CHUNK_START if index == 0 else 0
        if index == len(blocks) - 1:
            of_block |= _CHUNK_END | root
        padded = _words(block.ljust(_BLOCK_BYTES, b"\0"))
        value = _compressed(value, padded, number, len(block), flags | of_block)
    return value


def _compressed(
    value: tuple[int, ...], block: tuple[int, ...], counter: int, length: int, flags: int
) -> tuple[int, ...]:
    state = [*value, *_IV[:4], counter & _WORD, counter >> 32, length, flags]
    for _ in range(_ROUNDS):
        for (a, b, c, d), (first, second) in zip(_MIXED, _pairs(block), strict=True):
            for word, by_d, by_b in ((first, 16, 12), (second, 8, 7)):
                state[a] = state[a] + state[b] + word & _WORD
                state[d] = _rotated(state[d] ^ state[a], by_d)
                state[c] = state[c] + state[d] & _WORD
                state[b] = _rotated(state[b] ^ state[c], by_b)
        block = tuple(block[at] for at in _PERMUTATION)
    return tuple(state[at] ^ state[at + 8] for at in range(8))


def _pairs(block: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return zip(block[::2], block[1::2], strict=True)


def _rotated(word: int, by: int) -> int:
    return word >> by | word << 32 - by & _WORD


def _words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)
