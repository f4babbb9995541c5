"""Looks up keys with the messages of the protocol, as a client of any language would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import protobuf as pb
import pyarrow as pa
from pyarrow import flight

Note = dict[str, Any]

KEYS = pa.schema({"k": pa.int64()})


def lookup_command(
    table: str, columns: Sequence[str] = (), schema: str = "", catalog: str = "", one_snapshot: bool = False
) -> bytes:
    """Encodes a LookupRequest."""
    message = pb.field(1, table)
    message += pb.field(2, schema) if schema else b""
    message += pb.field(3, catalog) if catalog else b""
    message += b"".join(pb.field(4, column) for column in columns)
    message += pb.field(5, 1) if one_snapshot else b""
    return pb.field(1, "type.googleapis.com/volary.LookupRequest") + pb.field(2, message)


class KeyStream:
    """An open stream of lookups. `opened` is the gateway's first note, and the first batch of keys has no key."""

    def __init__(
        self,
        client: flight.FlightClient,
        command: bytes,
        schema: pa.Schema = KEYS,
        call: flight.FlightCallOptions | None = None,
    ) -> None:
        descriptor = flight.FlightDescriptor.for_command(command)
        self._writer, self._reader = client.do_exchange(descriptor, call)
        self._schema = schema
        self._writer.begin(schema)
        # pyarrow sends nothing before the first rows.
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema))
        opened = self._reader.read_chunk()
        assert opened.data is None
        self.opened: Note = json.loads(opened.app_metadata.to_pybytes())
        self.columns = self._reader.schema
        assert self.answer() == ({"sequence": 1, "found": 0, "rows": 0}, [])

    def send(self, *keys: Any) -> None:
        """Sends a batch of keys."""
        self.send_array(pa.array(keys, self._schema.field(0).type))

    def send_array(self, keys: pa.Array) -> None:
        """Sends a batch of keys."""
        self._writer.write_batch(pa.record_batch([keys], schema=self._schema))

    def close(self) -> None:
        """Says that no batch follows."""
        self._writer.done_writing()

    def messages(self) -> tuple[list[Note], list[pa.RecordBatch]]:
        """Waits for the messages of the next answer."""
        notes, batches = [], []
        while True:
            chunk = self._reader.read_chunk()
            notes.append(json.loads(chunk.app_metadata.to_pybytes()))
            if chunk.data is not None:
                batches.append(chunk.data)
            if not notes[-1].get("more"):
                return notes, batches

    def answer(self) -> tuple[Note, list[tuple[Any, ...]]]:
        """Waits for the next answer, and returns its last note and its rows."""
        notes, batches = self.messages()
        assert {note["sequence"] for note in notes} == {notes[-1]["sequence"]}
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        return notes[-1], rows

    def answers(self) -> list[tuple[Note, list[tuple[Any, ...]]]]:
        """Returns the answers up to the end of the stream."""
        answers = []
        try:
            while True:
                answers.append(self.answer())
        except StopIteration:
            return answers

    def failure(self) -> tuple[list[tuple[Note, list[tuple[Any, ...]]]], BaseException]:
        """Returns the answers up to the error with which the stream ends, and the error.

        pyarrow makes a KeyboardInterrupt of a cancellation.
        """
        answers = []
        try:
            while True:
                answers.append(self.answer())
        except StopIteration:
            raise AssertionError("the stream ended without an error") from None
        except (pa.ArrowException, KeyboardInterrupt) as error:
            return answers, error

    def cancel(self) -> None:
        """Breaks the stream off, as a client that dies does."""
        self._reader.cancel()
