"""What clients note about their statements, in a file for each writer.

A line is written with one call, so it is whole even if the client is killed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ledger import StatementId

BEGUN = "begun"
ACKNOWLEDGED = "acknowledged"
FAILED = "failed"
PAUSED = "paused"
LOST = "LOST"
"""The code of an error that no server has reported, because the connection was lost."""


class Journal:
    """The notes of a client."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, number: int, text: str = "") -> None:
        """Notes an event of a statement. For `PAUSED`, the number is that of the pause."""
        line = f"{time.monotonic():.6f} {event} {number} {' '.join(text.split())[:1000]}"
        os.write(self._file, line.rstrip().encode() + b"\n")


class _Read:
    """What was read of a writer's journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.rest = b""
        self.next = 0
        self.last_pause = 0


class History:
    """The notes of all clients, as far as they were read. Threads may share it."""

    def __init__(self, directory: Path, writers: Iterable[int]) -> None:
        self._lock = threading.Lock()
        self._journals = {writer: _Read(directory / f"writer{writer}.journal") for writer in writers}
        self._begun: set[StatementId] = set()
        self._acknowledged: set[StatementId] = set()
        self._acknowledged_of: Counter[int] = Counter()
        self.errors: dict[str, int] = {}
        """Number of failed statements by the code of their errors."""

    def path(self, writer: int) -> Path:
        """Returns the path of a writer's journal."""
        return self._journals[writer].path

    def begun(self) -> set[StatementId]:
        """Returns all statements that a client has begun by now."""
        with self._lock:
            self._read()
            return set(self._begun)

    def acknowledged(self) -> set[StatementId]:
        """Returns all statements that were acknowledged by now."""
        with self._lock:
            self._read()
            return set(self._acknowledged)

    def acknowledged_of(self, writer: int) -> int:
        """Returns the number of statements of a writer that were acknowledged by now."""
        with self._lock:
            self._read()
            return self._acknowledged_of[writer]

    def next_number(self, writer: int) -> int:
        """Returns the number of the first statement that a writer has not begun."""
        with self._lock:
            self._read()
            return self._journals[writer].next

    def last_pause(self, writer: int) -> int:
        """Returns the number of the last pause that the writer has noted."""
        with self._lock:
            self._read()
            return self._journals[writer].last_pause

    def forget(self) -> None:
        """Forgets all statements, because their tables were dropped. No client may be writing."""
        with self._lock:
            self._read()
            self._begun.clear()
            self._acknowledged.clear()

    def lines_of(self, id: StatementId) -> list[str]:
        """Returns what was noted about a statement, and about the statements around it."""
        lines = self.path(id.writer).read_text().splitlines()
        near = {str(number) for number in range(id.number - 1, id.number + 2)}
        return [line for line in lines if line.split()[2] in near and line.split()[1] != PAUSED]

    def _read(self) -> None:
        for writer, journal in self._journals.items():
            if not journal.path.exists():
                continue
            with journal.path.open("rb") as file:
                file.seek(journal.position)
                new = file.read()
            journal.position += len(new)
            *lines, journal.rest = (journal.rest + new).split(b"\n")
            for line in lines:
                _, event, number, *text = line.decode().split(" ", 3)
                self._note(writer, journal, event, int(number), text[0] if text else "")

    def _note(self, writer: int, journal: _Read, event: str, number: int, text: str) -> None:
        id = StatementId(writer, number)
        if event == BEGUN:
            self._begun.add(id)
            journal.next = number + 1
        elif event == ACKNOWLEDGED:
            self._acknowledged.add(id)
            self._acknowledged_of[writer] += 1
        elif event == FAILED:
            code = text.split(" ", 1)[0]
            self.errors[code] = self.errors.get(code, 0) + 1
        elif event == PAUSED:
            journal.last_pause = number
