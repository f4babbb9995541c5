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

from ._translate import PYARROW_ERRORS, translate, translated
from .errors import InternalError, InvalidArgumentError

Note: TypeAlias = dict[str, Any]

_NO_COLUMNS = pa.schema([])
# pyarrow's own. Without any, it asks the environment for them each time.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions()
# The gateway takes larger messages; smaller ones are worked on while the next ones are on their way.
_MESSAGE_BYTES = 16 << 20
_MOST_DIFFERENCES = 3


class Exchange:
    """The call. Whoever reads waits; another thread may cancel."""

    def __init__(self, writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader) -> None:
        self._writer = writer
        self._reader = reader

    def send(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema = _NO_COLUMNS) -> None:
        """Sends the parameters, or the rows to write, and that there are no more of them.

        Raises the gateway's error if it has ended the call meanwhile, `InvalidArgumentError` for a batch that cannot be
        sent, and what `batches` raises as it is. The call is to be cancelled then: the gateway waits for more rows, and
        must not take it for their end.
        """
        with translated():
            self._writer.begin(schema, options=_WRITE_OPTIONS)
        for number, batch in enumerate(batches, start=1):
            if not batch.schema.equals(schema):
                raise _other_columns(number, batch.schema, schema)
            for part in _cut(batch):
                # Where the gateway has ended the call, this is what it has ended it with.
                with translated():
                    self._writer.write_batch(part)
        with translated():
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
        # `translated` would take as long as the rest of this, and each batch is read here.
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return None
        except PYARROW_ERRORS as error:
            raise translate(error) from error
        if chunk.data is not None:
            return chunk.data
        note: Note = json.loads(chunk.app_metadata.to_pybytes().decode()) if chunk.app_metadata is not None else {}
        return note

    def cancel(self) -> None:
        """Ends the call, whatever it is at."""
        self._reader.cancel()

    def close(self) -> None:
        """Ends the call if it has not ended, and frees what it holds."""
        with suppress(*PYARROW_ERRORS):
            self._reader.cancel()
        with suppress(*PYARROW_ERRORS):
            self._writer.close()


def _cut(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """The batch in parts of at most so many bytes, as far as its rows are about equally large."""
    parts = -(-batch.nbytes // _MESSAGE_BYTES)
    if parts <= 1:
        return [batch]
    rows = max(1, -(-batch.num_rows // parts))
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]


def _other_columns(number: int, found: pa.Schema, announced: pa.Schema) -> InvalidArgumentError:
    """Why the batch of this number cannot follow the ones before it."""
    if len(found) != len(announced):
        differences = [f"it has {len(found)} columns, not {len(announced)}"]
    else:
        pairs = enumerate(zip(found, announced, strict=True), start=1)
        differences = [
            f"column {position} is {_described(field)}, not {_described(other)}"
            for position, (field, other) in pairs
            if not field.equals(other)
        ]
    if len(differences) > _MOST_DIFFERENCES:
        differences[_MOST_DIFFERENCES:] = [f"and {len(differences) - _MOST_DIFFERENCES} more"]
    return InvalidArgumentError(
        f"batch {number} has other columns than the schema of its stream: {', '.join(differences)}; "
        "cast it to that schema (RecordBatch.cast), or give the stream the schema of its batches"
    )


def _described(field: pa.Field[Any]) -> str:
    return f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"
