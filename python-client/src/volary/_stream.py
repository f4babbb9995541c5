"""Streams of a query's record batches."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from ._exchange import Exchange, Note
from ._interrupt import Interruptible


class Stream(Protocol):
    """The batches of one query."""

    schema: pa.Schema
    statistics: Note | None
    """The statistics of the query. They are set when all batches are read."""

    def read(self) -> pa.RecordBatch | None:
        """Returns the next batch, or None after the last one. Raises `RuntimeError` if the stream was closed before its
        end.
        """

    def read_all(self) -> list[pa.RecordBatch]:
        """Returns the remaining batches."""

    def close(self) -> None:
        """Stops the query if it still runs, and frees what the server holds for it. May be called more than once."""


class BatchStream:
    """Reads the batches of one query in order. Ends the query on the server when it is read, closed or dropped."""

    def __init__(self, exchange: Exchange, schema: pa.Schema, interruptible: Interruptible, bar: Any = None) -> None:
        """Takes over `exchange`, whose rows come next. `bar` shows the progress of the query."""
        self.schema = schema
        self.statistics: Note | None = None
        self._exchange = exchange
        self._interruptible = interruptible
        self._bar = bar
        self._is_open = True
        self._is_read = False

    def read(self) -> pa.RecordBatch | None:
        """Returns the next batch, or None after the last one. Raises `RuntimeError` if the stream was closed before its
        end.
        """
        batches = self._read_some(at_most=1)
        return batches[0] if batches else None

    def read_all(self) -> list[pa.RecordBatch]:
        """Returns the remaining batches."""
        return self._read_some(at_most=None)

    def close(self) -> None:
        """Stops the query if it still runs, and frees what the server holds for it. May be called more than once."""
        if not self._is_open:
            return
        self._is_open = False
        if self._bar is not None:
            self._bar.close()
        self._exchange.close()

    def __del__(self) -> None:
        # The attribute is missing if __init__ was interrupted at its first line.
        if hasattr(self, "_is_open"):
            self.close()

    def _read_some(self, at_most: int | None) -> list[pa.RecordBatch]:
        if self._is_read:
            return []
        if not self._is_open:
            raise RuntimeError("the result was closed before it was read; run the statement again")
        batches: list[pa.RecordBatch] = []

        def read() -> bool:
            """Reads into `batches`. Returns whether there may be more batches."""
            while at_most is None or len(batches) < at_most:
                arrived = self._exchange.read()
                if arrived is None:
                    return False
                if isinstance(arrived, pa.RecordBatch):
                    batches.append(arrived)
                else:
                    self._note(arrived)
            return True

        try:
            is_more = self._interruptible.run(read, self._exchange.cancel)
        except BaseException:
            was_open = self._is_open
            self.close()
            if not was_open:
                raise RuntimeError("the result was closed while it was read; run the statement again") from None
            raise
        if not is_more:
            self._is_read = True
            self.close()
        return batches

    def _note(self, note: Note) -> None:
        self.statistics = note.get("statistics", self.statistics)
        if self._bar is not None and "progress" in note:
            self._bar.show(note["progress"])
