"""Reads the files of a worker's log, and tears what was not durable when the worker died.

The formats are those of `worker/src/log/file.rs` and `worker/src/log/frame.rs`.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEADER_BLOCK = 4096
SECTOR = 512
_FILE_HEADER = struct.Struct("<8sII16sQQ")
FILE_HEADER_BYTES = _FILE_HEADER.size
_MAGIC = b"VOLARYLG"
_FRAME_HEADER = struct.Struct("<IIQQQII")
_ALIGNMENT = 8


class Frame(NamedTuple):
    """A whole frame, with its place in the file."""

    start: int
    end: int
    number: int
    synced: int
    """Number of the frame up to which everything was durable when this one was written."""


class LogFile(NamedTuple):
    """A file of the log that was begun."""

    path: Path
    number: int
    frames: tuple[Frame, ...]

    @property
    def end(self) -> int:
        """The position after the last whole frame."""
        return self.frames[-1].end if self.frames else HEADER_BLOCK

    @property
    def last_group(self) -> range:
        """The bytes of the frames that were written last, with one sync."""
        group = [frame for frame in self.frames if frame.synced == self.frames[-1].synced]
        return range(group[0].start, group[-1].end) if group else range(0)


def read(data_dir: Path) -> list[LogFile]:
    """Returns the files of a worker's log, by their numbers. Files that were not begun are left out."""
    files = []
    for path in sorted((data_dir / "log").glob("*.log")):
        content = path.read_bytes()
        number = int(path.stem, 16)
        if len(content) >= _FILE_HEADER.size:
            magic, _, crc, _, file, _ = _FILE_HEADER.unpack_from(content)
            if magic == _MAGIC and file == number and crc == zlib.crc32(content[16 : _FILE_HEADER.size]):
                files.append(LogFile(path, number, tuple(_frames(content, number))))
    return files


def tear_last_group(data_dir: Path, chance: random.Random) -> str:
    """Tears the last group of frames, which must not have been synced. Returns what was done."""
    last = read(data_dir)[-1]
    content = bytearray(last.path.read_bytes())
    assert last.frames, f"{last.path} has no frame, although one was written"
    done = _tear(content, last.last_group, chance)
    last.path.write_bytes(content)
    return f"{last.path.name}: {done}"


def add_torn_end(data_dir: Path, chance: random.Random) -> str:
    """Writes what could be parts of a frame behind the last one. Returns what was done."""
    files = read(data_dir)
    if not files:
        return "the log has no file"
    last = files[-1]
    content = bytearray(last.path.read_bytes())
    first_sector = -(-last.end // SECTOR) * SECTOR
    start = chance.choice([last.end, first_sector])
    length = min(chance.choice([8, 40, 300, 5000]), len(content) - start)
    if length <= 0:
        return "the log's last file is full"
    content[start : start + length] = chance.randbytes(length)
    last.path.write_bytes(content)
    return f"{last.path.name}: {length} random bytes at {start}"


def _frames(content: bytes, file_number: int) -> Iterator[Frame]:
    start = HEADER_BLOCK
    while start + _FRAME_HEADER.size <= len(content):
        length, crc, file, number, synced, _, _ = _FRAME_HEADER.unpack_from(content, start)
        end = start + _FRAME_HEADER.size + length
        if file != file_number or end > len(content) or zlib.crc32(content[start + 8 : end]) != crc:
            return
        padded = -(-end // _ALIGNMENT) * _ALIGNMENT
        yield Frame(start, padded, number, synced)
        start = padded


def _tear(content: bytearray, group: range, chance: random.Random) -> str:
    kind = chance.choice(["cut", "sectors", "bits"])
    if kind == "cut":
        start = chance.randrange(group.start, group.stop)
        content[start : group.stop] = bytes(group.stop - start)
        return f"zeros from {start} to {group.stop}"
    if kind == "sectors":
        # Sectors of one write reach the disk in any order.
        sectors = range(group.start // SECTOR, (group.stop - 1) // SECTOR + 1)
        lost = sorted(chance.sample(sectors, chance.randint(1, len(sectors))))
        for sector in lost:
            start = max(sector * SECTOR, group.start)
            stop = min((sector + 1) * SECTOR, group.stop)
            content[start:stop] = bytes(stop - start)
        return f"zeros in {len(lost)} of the {len(sectors)} sectors from {group.start} to {group.stop}"
    flipped = [chance.randrange(group.start, group.stop) for _ in range(chance.choice([1, 3, 20]))]
    for position in flipped:
        content[position] ^= 1 << chance.randrange(8)
    return f"bits flipped at {sorted(flipped)}"
