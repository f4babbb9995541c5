"""A statement that runs on the server, and the stream of its record batches."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import adbc_driver_manager as adbc
import pyarrow as pa

from ._interrupt import Interruptible
from ._translate import translated


class Stream(Protocol):
    """The batches of one query."""

    schema: pa.Schema

    def read(self) -> pa.RecordBatch | None:
        """The next batch, or None after the last one."""

    def close(self) -> None:
        """Stops the query if it still runs."""


class BatchStream:
    """Reads the batches of one query in order; ends it on the server when it is read, closed, failed or forgotten."""

    def __init__(self, statement: adbc.AdbcStatement, interruptible: Interruptible) -> None:
        """Executes `statement`, which is prepared and bound, and owns it from here on, also when this raises."""
        self._statement = statement
        self._is_open = True
        self._is_read = False
        self._interruptible = interruptible
        self._reader: pa.RecordBatchReader | None = None
        try:
            with translated():
                handle, _ = interruptible.run(statement.execute_query, statement.cancel)
                self._reader = pa.RecordBatchReader.from_stream(handle)
                self.schema: pa.Schema = self._reader.schema
        except BaseException:
            self.close()
            raise

    def read(self) -> pa.RecordBatch | None:
        """The next batch, or None after the last one. Raises `RuntimeError` if the stream was closed before its end."""
        reader = self._reader
        if reader is None:
            if self._is_read:
                return None
            raise RuntimeError("the result was closed before it was read; run the statement again")

        def read_next() -> pa.RecordBatch | None:
            try:
                return reader.read_next_batch()
            except StopIteration:
                return None

        try:
            with translated():
                batch = self._interruptible.run(read_next, self._statement.cancel)
        except BaseException:
            self.close()
            raise
        if batch is None:
            self._is_read = True
            self.close()
        return batch

    def close(self) -> None:
        """Stops the query if it still runs and frees what the server holds for it. May be called again."""
        if not self._is_open:
            return
        self._is_open = False
        reader, self._reader = self._reader, None
        # What is freed here is of no use to anybody: an error (the server is gone) changes nothing for the caller.
        with suppress(adbc.Error, pa.ArrowException, OSError):
            if reader is not None:
                reader.close()
        with suppress(adbc.Error):
            self._statement.close()

    def __del__(self) -> None:
        # Not set if __init__ was interrupted at its first line.
        if hasattr(self, "_reader"):
            self.close()
