"""Streams batches into a table with the messages of the protocol, as a client of any language would."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import protobuf as pb
import pyarrow as pa
from pyarrow import flight

Note = dict[str, Any]

_FAIL = 2
_APPEND = 2


def ingest_command(table: str, options: dict[str, str], if_not_exist: int = _FAIL, if_exists: int = _APPEND) -> bytes:
    """Encodes a CommandStatementIngest."""
    entries = b"".join(pb.field(1000, pb.field(1, key) + pb.field(2, value)) for key, value in options.items())
    existence = pb.field(1, if_not_exist) + pb.field(2, if_exists)
    return pb.command("CommandStatementIngest", pb.field(1, existence) + pb.field(2, table) + entries)


class BatchStream:
    """An open stream. `opened` is the gateway's first note."""

    def __init__(
        self,
        client: flight.FlightClient,
        table: str,
        schema: pa.Schema,
        call: flight.FlightCallOptions | None = None,
        if_not_exist: int = _FAIL,
        **options: str,
    ) -> None:
        command = ingest_command(table, {"stream": "true", **options}, if_not_exist)
        descriptor = flight.FlightDescriptor.for_command(command)
        self._writer, self._reader = client.do_exchange(descriptor, call)
        self._writer.begin(schema)
        # pyarrow sends nothing before the first rows.
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        self.opened = self.note()

    def send(self, sequence: int, rows: pa.RecordBatch, more: bool | None = None) -> None:
        """Sends rows of a batch."""
        note = {"sequence": sequence} if more is None else {"sequence": sequence, "more": more}
        self.send_raw(rows, json.dumps(note).encode())

    def send_raw(self, rows: pa.RecordBatch, metadata: bytes) -> None:
        """Sends rows with any metadata."""
        self._writer.write_with_metadata(rows, metadata)

    def close(self) -> None:
        """Says that no batch follows."""
        self._writer.done_writing()

    def note(self) -> Note:
        """Waits for the next note."""
        chunk = self._reader.read_chunk()
        assert chunk.data is None
        note: Note = json.loads(chunk.app_metadata.to_pybytes())
        return note

    def notes(self) -> list[Note]:
        """Returns the notes up to the end of the stream."""
        notes = []
        try:
            while True:
                notes.append(self.note())
        except StopIteration:
            return notes

    def failure(self) -> tuple[list[Note], BaseException]:
        """Returns the notes up to the error with which the stream ends, and the error.

        pyarrow makes a KeyboardInterrupt of a cancellation.
        """
        notes = []
        try:
            while True:
                notes.append(self.note())
        except StopIteration:
            raise AssertionError("the stream ended without an error") from None
        except (pa.ArrowException, KeyboardInterrupt) as error:
            return notes, error

    def cancel(self) -> None:
        """Breaks the stream off, as a client that dies does."""
        self._reader.cancel()


def outcomes(notes: Iterable[Note]) -> list[tuple[int, str, int | None]]:
    """Returns the numbers, outcomes and rows of answers."""
    return [(note["sequence"], note["outcome"], note.get("rows")) for note in notes]


def committed(sequences: Sequence[int], rows: int = 1) -> list[tuple[int, str, int | None]]:
    """Returns what `outcomes` says of committed batches with so many rows each."""
    return [(sequence, "committed", rows) for sequence in sequences]
