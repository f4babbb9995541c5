"""A gateway without a database that takes streams of lookups. Each key is a row, and a test says when it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

import grpc
import protobuf as pb
import pyarrow as pa
from processes import PATIENCE_SECONDS
from stub_gateway import StubGateway

_LOOKUP = b"volary.LookupRequest"
_ROWS = pa.schema({"__position": pa.int32(), "k": pa.int64()})


class LookupGateway(StubGateway):
    """A stub that also takes streams of lookups."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[list[int]] = []
        """The batches of keys that have arrived, of all calls. Of a large batch, it has the first keys."""
        self.sequences: dict[int, int] = {}
        """The number that the answer to a batch has, instead of that of the batch. Each of these happens once."""

    def _do_exchange(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        first = next(requests)
        if _LOOKUP in pb.fields(pb.fields(first)[1])[2]:
            messages = (fields for fields in map(pb.fields, chain([first], requests)) if fields.get(2))
            yield from self._take_lookup(messages, context)
        else:
            yield from super()._do_exchange(chain([first], requests), context)

    def _take_lookup(self, messages: Iterator[dict[int, bytes]], context: grpc.ServicerContext) -> Iterator[bytes]:
        schema = _encapsulated(next(messages))
        yield pb.field(3, json.dumps({"query_id": "q1"}))
        yield _flight_data(_ROWS.serialize())
        for number, message in enumerate(messages, start=1):
            keys = pa.ipc.open_stream(schema + _encapsulated(message)).read_all().column(0).combine_chunks()
            self.asked.append(keys.slice(0, 100).to_pylist())
            assert self.may_go_on.wait(timeout=PATIENCE_SECONDS)
            if not context.is_active():
                return
            rows = pa.record_batch([pa.array(range(len(keys)), pa.int32()), keys.cast(pa.int64())], schema=_ROWS)
            note = {"sequence": self.sequences.pop(number, number), "found": len(keys), "rows": len(keys)}
            yield _flight_data(rows.serialize()) + pb.field(3, json.dumps(note))


def _flight_data(message: pa.Buffer) -> bytes:
    data = message.to_pybytes()
    end = 8 + int.from_bytes(data[4:8], "little")
    return pb.field(2, data[8:end]) + pb.field(1000, data[end:])


def _encapsulated(message: dict[int, bytes]) -> bytes:
    return b"\xff\xff\xff\xff" + len(message[2]).to_bytes(4, "little") + message[2] + message.get(1000, b"")
