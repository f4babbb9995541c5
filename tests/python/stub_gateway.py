"""A gateway without a database: it says over real gRPC what a test tells it to, so that the driver's texts are true.

It speaks the part of Flight SQL that the ADBC driver uses for a statement: CreatePreparedStatement, DoPut of parameters
or of an update, GetFlightInfo, DoGet, ClosePreparedStatement. What it was asked is kept in `calls`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import protobuf as pb
import pyarrow as pa

_SERVICE = "arrow.flight.protocol.FlightService"
_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True)
class Failure:
    """The gRPC status that a call ends with."""

    code: grpc.StatusCode
    message: str


@dataclass
class Answer:
    """What the stub says to one statement."""

    schema: pa.Schema | None = None
    """None: it is an update."""
    batches: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    """How many rows an update changes, for each row of parameters."""
    fail_prepare: Failure | None = None
    fail_execute: Failure | None = None
    fail_after_batches: Failure | None = None
    hangs_after_batches: bool = False
    """The stream stays open until its client leaves."""


class StubGateway:
    """A context manager: `with StubGateway({"SELECT 1": Answer(…)}) as stub: connect(stub.uri)`."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self._answers = answers
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.parameters: list[pa.RecordBatch] = []
        self.stream_hangs = threading.Event()
        self.stream_ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(8))
        handlers = {
            "Handshake": grpc.stream_stream_rpc_method_handler(self._handshake),
            "GetFlightInfo": grpc.unary_unary_rpc_method_handler(self._get_flight_info),
            "DoAction": grpc.unary_stream_rpc_method_handler(self._do_action),
            "DoGet": grpc.unary_stream_rpc_method_handler(self._do_get),
            "DoPut": grpc.stream_stream_rpc_method_handler(self._do_put),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, handlers)])
        self.uri = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> StubGateway:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    def _handshake(self, _requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self._note("Handshake", context)
        context.send_initial_metadata([("authorization", "Bearer session-token")])
        yield from ()

    def _do_action(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        action = pb.fields(request)
        kind = action[1].decode()
        self._note(kind, context)
        if kind != "CreatePreparedStatement":
            return
        query = pb.fields(pb.fields(action[2])[2])[1]
        answer = self._answers[query.decode()]
        _end_with(answer.fail_prepare, context)
        result = pb.field(1, query) + pb.field(2, _encapsulated(answer.schema)) + pb.field(3, _encapsulated(None))
        yield pb.field(1, pb.command("ActionCreatePreparedStatementResult", result))

    def _get_flight_info(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        command = pb.fields(request)[2]
        kind = pb.command_name(command)
        self._note(f"GetFlightInfo {kind}", context)
        if kind != "CommandPreparedStatementQuery":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"UNIMPLEMENTED: the stub knows no {kind}")
        query = pb.fields(pb.fields(command)[2])[1]
        answer = self._answers[query.decode()]
        _end_with(answer.fail_execute, context)
        endpoint = pb.field(1, pb.field(1, query))
        return pb.field(1, _encapsulated(answer.schema)) + pb.field(3, endpoint) + pb.field(4, -1) + pb.field(5, -1)

    def _do_get(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self._note("DoGet", context)
        client_left = threading.Event()

        def end() -> None:
            client_left.set()
            self.stream_ended.set()

        if not context.add_callback(end):
            end()
        answer = self._answers[pb.fields(request)[1].decode()]
        yield _flight_data((answer.schema or _NO_COLUMNS).serialize())
        for batch in answer.batches:
            yield _flight_data(batch.serialize())
        if answer.hangs_after_batches:
            self.stream_hangs.set()
            client_left.wait()
        _end_with(answer.fail_after_batches, context)

    def _do_put(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        messages = [pb.fields(message) for message in requests]
        command = pb.fields(messages[0][1])[2]
        kind = pb.command_name(command)
        self._note(f"DoPut {kind}", context)
        rows = _read_batches(messages)
        self.parameters.extend(rows)
        query = pb.fields(pb.fields(command)[2])[1]
        if kind == "CommandPreparedStatementQuery":
            yield pb.field(1, pb.field(1, query))
            return
        answer = self._answers[query.decode()]
        _end_with(answer.fail_execute, context)
        times = sum(batch.num_rows for batch in rows) if rows else 1
        yield pb.field(1, pb.field(1, answer.count * times))

    def _note(self, call: str, context: grpc.ServicerContext) -> None:
        self.calls.append(call)
        self.headers.append({key: str(value) for key, value in context.invocation_metadata()})


def _end_with(failure: Failure | None, context: grpc.ServicerContext) -> None:
    if failure is not None:
        context.abort(failure.code, failure.message)


def _encapsulated(schema: pa.Schema | None) -> bytes:
    return (schema or _NO_COLUMNS).serialize().to_pybytes()


def _flight_data(message: pa.Buffer) -> bytes:
    """An encapsulated IPC message (marker, length, header, body) as Flight's separate header and body."""
    data = message.to_pybytes()
    end = 8 + int.from_bytes(data[4:8], "little")
    return pb.field(2, data[8:end]) + pb.field(1000, data[end:])


def _read_batches(messages: list[dict[int, bytes]]) -> list[pa.RecordBatch]:
    stream = b"".join(
        b"\xff\xff\xff\xff" + len(message[2]).to_bytes(4, "little") + message[2] + message.get(1000, b"")
        for message in messages
        if message.get(2)
    )
    if not stream:
        return []
    return [batch for batch in pa.ipc.open_stream(stream) if batch.num_columns > 0]
