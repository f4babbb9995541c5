"""Runs one statement in one call: its parameters go to the gateway, and notes and rows come back.

Notes are JSON, in messages without rows. The first note has the `query_id`. It also has `rows_affected` if the
statement has no rows, or `flight_info` if the rows must be fetched with other calls. If it has neither, the rows follow
in this call. If the client asked for the `progress`, notes with it come among the rows. The last note has the
`statistics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import flight

from ._answers import Answer
from ._translate import PYARROW_ERRORS, translate, translated
from .errors import InternalError, InvalidArgumentError

Note: TypeAlias = dict[str, Any]

_NO_COLUMNS = pa.schema([])
# The write options are created once. Without them, pyarrow reads the environment for its default options at every call.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions()
MESSAGE_BYTES = 16 << 20
"""Size above which rows are cut into several messages. The gateway accepts larger ones. With smaller ones, it can
process a message while the next one is on its way.
"""
_MOST_DIFFERENCES = 3


class Exchange:
    """The call of one statement. The thread that reads is blocked until data arrives; another thread may cancel the
    call.
    """

    def __init__(self, writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader, answer: Answer) -> None:
        self._writer = writer
        self._reader = reader
        self._answer = answer
        self._translated = translated(lambda: answer)

    def send(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema = _NO_COLUMNS) -> None:
        """Sends the parameters or the rows to write, and then the end of the stream.

        Raises the gateway's error if the gateway has ended the call in the meantime, and `InvalidArgumentError` for a
        batch that cannot be sent. An error that `batches` raises is passed on unchanged. After an error, the caller
        must cancel the call, because the gateway waits for more rows and must not take the error for the end of the
        rows.
        """
        self.announce(schema)
        for number, batch in enumerate(batches, start=1):
            if not batch.schema.equals(schema):
                raise _other_columns(number, batch.schema, schema)
            for part in cut(batch):
                # If the gateway has ended the call, this raises the error that it ended the call with.
                with self._translated:
                    self._writer.write_batch(part)
        self.finish()

    def announce(self, schema: pa.Schema) -> None:
        """Sets the columns of the batches that follow. pyarrow sends them with the first batch."""
        with self._translated:
            self._writer.begin(schema, options=_WRITE_OPTIONS)

    def write(self, batch: pa.RecordBatch, note: bytes) -> None:
        """Sends one message with rows and a note. Raises the gateway's error if the gateway has ended the call."""
        with self._translated:
            self._writer.write_with_metadata(batch, pa.py_buffer(note))

    def write_rows(self, batch: pa.RecordBatch) -> None:
        """Sends one message with rows. Raises the gateway's error if the gateway has ended the call."""
        with self._translated:
            self._writer.write_batch(batch)

    def finish(self) -> None:
        """Sends the end of the stream. The gateway may still answer."""
        with self._translated:
            self._writer.done_writing()

    def begin(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema = _NO_COLUMNS
    ) -> tuple[Note, pa.Schema | None]:
        """Sends the rows. Returns the first note, and the columns of the result if rows follow."""
        self.send(batches, schema)
        note = self.read()
        if not isinstance(note, dict):
            raise InternalError("the gateway's answer does not begin with a note; does it have another version?")
        if "rows_affected" in note or "flight_info" in note:
            return note, None
        with self._translated:
            return note, self._reader.schema

    def read(self) -> pa.RecordBatch | Note | None:
        """Returns the next batch or note, or None at the end."""
        # This runs for every batch. Using `_translated` here would take as long as the rest of the method.
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return None
        except PYARROW_ERRORS as error:
            raise translate(error, self._answer) from error
        if chunk.data is not None:
            return chunk.data
        note: Note = json.loads(chunk.app_metadata.to_pybytes().decode()) if chunk.app_metadata is not None else {}
        return note

    def columns(self) -> pa.Schema:
        """Returns the columns of the rows that come back. Waits until they have arrived."""
        with self._translated:
            return self._reader.schema

    def read_annotated(self) -> tuple[pa.RecordBatch | None, Note] | None:
        """Returns the next message, with its rows if it has any and with its note, or None at the end."""
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return None
        except PYARROW_ERRORS as error:
            raise translate(error, self._answer) from error
        note: Note = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
        return chunk.data, note

    def cancel(self) -> None:
        """Cancels the call, whatever its state."""
        self._reader.cancel()

    def close(self) -> None:
        """Ends the call if it has not ended, and frees its resources."""
        with suppress(*PYARROW_ERRORS):
            self._reader.cancel()
        with suppress(*PYARROW_ERRORS):
            self._writer.close()


def cut(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Cuts the batch into parts of at most `MESSAGE_BYTES`. A part may be larger if the rows differ much in size."""
    parts = -(-batch.nbytes // MESSAGE_BYTES)
    if parts <= 1:
        return [batch]
    rows = max(1, -(-batch.num_rows // parts))
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]


def _other_columns(number: int, found: pa.Schema, announced: pa.Schema) -> InvalidArgumentError:
    """Returns the error for a batch whose columns differ from the announced schema. `number` counts batches from 1."""
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
        f"the columns of batch {number} differ from the schema of its stream: {', '.join(differences)}; "
        "cast it to that schema (RecordBatch.cast), or give the stream the schema of its batches"
    )


def _described(field: pa.Field[Any]) -> str:
    return f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"
