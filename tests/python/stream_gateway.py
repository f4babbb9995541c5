"""A gateway without a database that takes streams of batches. A test says which batches it refuses, and when it
fails.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import grpc
import protobuf as pb
import pyarrow as pa
from processes import PATIENCE_SECONDS
from stub_gateway import Answer, Failure, StubGateway, end_with

WINDOW_BYTES = 1 << 20
BAD = {"code": "INVALID_ARGUMENT", "sqlstate": "23502", "message": "column name is NULL in row 1"}
"""The error of a batch that the gateway refuses."""

_INGEST = "CommandStatementIngest"
_GET_TABLES = "CommandGetTables"
_TEMPORARY = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'pg_temp' AND table_name = ?"
_CURRENT = pa.record_batch({"current_schema": ["public"], "count": [0]})


class StreamGateway(StubGateway):
    """A stub that also takes streams. It applies each batch once, as a gateway does."""

    def __init__(self) -> None:
        super().__init__(
            {f"SELECT current_schema(), ({_TEMPORARY})": Answer(schema=_CURRENT.schema, batches=[_CURRENT])}
        )
        self.decided: dict[str, list[pa.Table | None]] = defaultdict(list)
        """The batches of each producer. None stands for one that was refused."""
        self.streams: list[dict[str, str]] = []
        """The options of each call with batches."""
        self.begun_at: list[float] = []
        """The times at which the calls of streams have begun, by the monotonic clock. The first call has no batches."""
        self.statuses: list[dict[str, Any]] = []
        """The questions about batches."""
        self.messages = 0
        """Number of messages with rows."""
        self.columns = pa.schema({"k": pa.int64()})
        """The columns of every table, for clients that ask."""
        self.unknown_column = ""
        """A column that no table has."""
        self.fails_to_open: Failure | None = None
        self.failures: dict[int, Failure] = {}
        """How a call ends when it gets the batch of this number. Each failure happens once."""
        self.refusals: dict[int, dict[str, object]] = {}
        """The errors of batches that are refused. Each of them is refused once."""
        self.when_applied: dict[int, Callable[[], None]] = {}
        """What happens when a batch is applied and not yet answered. Each of these happens once."""
        self.answers: dict[int, dict[str, object]] = {}
        """What is answered to the batch of this number, instead of the usual."""

    def _do_action(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        fields = pb.fields(request)
        if fields[1] != b"volary.batch_status":
            yield from super()._do_action(request, context)
            return
        asked = json.loads(fields[2])
        self.statuses.append(asked)
        last = len(self.decided[asked["producer"]])
        status = {"last_sequence": last, "sequence": last, "status": "committed" if last else "unknown", "rows": None}
        yield pb.field(1, json.dumps({**asked, **status}))

    def _do_exchange(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        first = next(requests)
        command = pb.fields(pb.fields(first)[1])[2]
        if _GET_TABLES.encode() in command:
            deque(requests, maxlen=0)
            yield from _columns_of_table(self.columns)
        elif _INGEST.encode() in command:
            yield from self._take_stream(_options_of(command), map(pb.fields, requests), context)
        else:
            yield from super()._do_exchange(chain([first], requests), context)

    def _take_stream(
        self, options: dict[str, str], messages: Iterator[dict[int, bytes]], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        schema = next(messages)
        self.calls.append("stream")
        self.begun_at.append(time.monotonic())
        end_with(self.fails_to_open, context)
        columns = pa.ipc.open_stream(_encapsulated(schema)).schema.names
        if self.unknown_column in columns:
            end_with(Failure(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT: there is no such column"), context)
        decided = self.decided[options["producer"]]
        yield _note(query_id=f"q{len(self.calls)}", last_sequence=len(decided), window=WINDOW_BYTES)
        refused: list[None] = []
        for sequence, rows in self._batches(_encapsulated(schema), options, messages):
            end_with(self.failures.pop(sequence, None), context)
            assert self.may_go_on.wait(timeout=PATIENCE_SECONDS)
            if not context.is_active():
                return
            if (error := self.refusals.pop(sequence, None)) is not None:
                yield _note(sequence=sequence, outcome="refused", error=error, window=WINDOW_BYTES)
                if options.get("continue") != "true" or error["code"] != "INVALID_ARGUMENT":
                    code = str(error["code"])
                    end_with(Failure(grpc.StatusCode[code], f"{code}: {error['message']}"), context)
                # A gateway remembers it only if a later batch commits.
                refused.append(None)
                continue
            is_new = sequence == len(decided) + len(refused) + 1
            if sequence > len(decided) + len(refused) + 1:
                end_with(Failure(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT: there is a gap"), context)
            if is_new:
                decided.extend([*refused, rows])
                refused.clear()
            elif (earlier := decided[sequence - 1]) is None or not earlier.equals(rows):
                end_with(Failure(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS: other rows"), context)
            self.when_applied.pop(sequence, lambda: None)()
            outcome = "committed" if is_new else "duplicate"
            usual = {"sequence": sequence, "rows": rows.num_rows, "outcome": outcome, "window": WINDOW_BYTES}
            yield _note(**self.answers.pop(sequence, usual))

    def _batches(
        self, schema: bytes, options: dict[str, str], messages: Iterator[dict[int, bytes]]
    ) -> Iterator[tuple[int, pa.Table]]:
        parts: list[bytes] = []
        is_first = True
        for message in messages:
            if is_first:
                self.streams.append(options)
                is_first = False
            self.messages += 1
            note = json.loads(message[3])
            parts.append(_encapsulated(message))
            if not note.get("more", False):
                yield note["sequence"], pa.ipc.open_stream(schema + b"".join(parts)).read_all()
                parts.clear()


def rows(*values: int) -> pa.RecordBatch:
    """Returns a batch."""
    return pa.record_batch({"k": list(values)})


def large(number: int) -> pa.RecordBatch:
    """Returns a batch of one row. Two of them are larger than the window."""
    return pa.record_batch({"k": pa.array([number]), "text": pa.array(["x" * (WINDOW_BYTES // 2 + 1)])})


def values_of(gateway: StreamGateway) -> list[Any]:
    """Returns the values that the only producer has written."""
    (batches,) = gateway.decided.values()
    return [value for batch in batches if batch is not None for value in batch.column("k").to_pylist()]


def _options_of(command: bytes) -> dict[str, str]:
    """Returns the options of a CommandStatementIngest, and its table and schema."""
    ingest = pb.fields(command)[2]
    options = {"table": pb.fields(ingest)[2].decode(), "schema": pb.fields(ingest)[3].decode()}
    for entry in map(pb.fields, pb.repeated(ingest, 1000)):
        options[entry[1].decode()] = entry[2].decode()
    return options


def _columns_of_table(columns: pa.Schema) -> Iterator[bytes]:
    listed = pa.record_batch({"table_name": ["birds"], "table_schema": [columns.serialize().to_pybytes()]})
    for message in (listed.schema.serialize(), listed.serialize()):
        encoded = message.to_pybytes()
        end = 8 + int.from_bytes(encoded[4:8], "little")
        yield pb.field(2, encoded[8:end]) + pb.field(1000, encoded[end:])


def _encapsulated(message: dict[int, bytes]) -> bytes:
    header = message.get(2, b"")
    return b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + message.get(1000, b"")


def _note(**fields: object) -> bytes:
    return pb.field(3, json.dumps(fields))
