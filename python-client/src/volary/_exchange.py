"""One statement in one call: its parameters go to the gateway, notes and rows come back.

Notes are JSON, in messages without rows. The first one has the `query_id`, and either `rows_affected` (the statement
has no rows), or `flight_info` (the rows are fetched elsewhere), or neither (they follow). Then come notes of
`progress`, if they were asked for, and at the end one with the `statistics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import flight

from ._translate import translated
from .errors import InternalError

Note: TypeAlias = dict[str, Any]

_NO_COLUMNS = pa.schema([])
# The gateway takes larger messages; smaller ones are worked on while the next ones are on their way.
_MESSAGE_BYTES = 16 << 20


class Exchange:
    """The call. Whoever reads waits; another thread may cancel."""

    def __init__(self, writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader) -> None:
        self._writer = writer
        self._reader = reader

    def send(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema = _NO_COLUMNS) -> None:
        """Sends the parameters, or the rows to write, and that there are no more of them.

        If the gateway has ended the call meanwhile, reading says why. What `batches` raises is raised as it is, and
        the call is to be cancelled: it must not look like the end of the rows.
        """
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.begin(schema)
        for batch in batches:
            for part in _cut(batch):
                try:
                    self._writer.write_batch(part)
                except (flight.FlightError, pa.ArrowException, OSError):
                    return
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.done_writing()

    def begin(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema = _NO_COLUMNS
    ) -> tuple[Note, pa.Schema | None]:
        """Sends, and returns the first note, and the columns of the rows if they follow."""
        self.send(batches, schema)
        note = self.read()
        if not isinstance(note, dict):
            raise InternalError("the gateway's answer does not begin with a note; is it of another version?")
        if "rows_affected" in note or "flight_info" in note:
            return note, None
        with translated():
            return note, self._reader.schema

    def read(self) -> pa.RecordBatch | Note | None:
        """What comes next, or None at the end."""
        try:
            with translated():
                chunk = self._reader.read_chunk()
        except StopIteration:
            return None
        if chunk.data is not None:
            return chunk.data
        note: Note = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
        return note

    def cancel(self) -> None:
        """Ends the call, whatever it is at."""
        self._reader.cancel()

    def close(self) -> None:
        """Ends the call if it has not ended, and frees what it holds."""
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            self._reader.cancel()
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()


def _cut(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """The batch in parts of at most so many bytes, as far as its rows are about equally large."""
    parts = -(-batch.nbytes // _MESSAGE_BYTES)
    if parts <= 1:
        return [batch]
    rows = max(1, -(-batch.num_rows // parts))
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]
