"""A gateway without a database. A test sets its answers. They come over real gRPC, so pyarrow's error texts are real.

It serves the calls of the client: the handshake, DoExchange of a statement and of GetSqlInfo, DoGet of a part, and
CloseSession. `calls` has the calls that it got.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import protobuf as pb
import pyarrow as pa
from processes import PATIENCE_SECONDS
from pyarrow import flight

import volary

_SERVICE = "arrow.flight.protocol.FlightService"
_SQL_INFO = pa.record_batch({"info_name": [1], "value": ["0.0.0"]})


@dataclass(frozen=True)
class Failure:
    """The gRPC status that a call ends with."""

    code: grpc.StatusCode
    message: str
    sqlstate: str | None = None
    retry_after_ms: int | None = None


@dataclass
class Answer:
    """The answer of the stub to one statement."""

    schema: pa.Schema | None = None
    """The columns of the rows, or None for an update."""
    batches: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    """Number of rows that an update changes for each row of parameters."""
    parts: int = 0
    """Number of parts in which the rows are fetched, or 0. Each part has all `batches` and takes a quarter of its
    timeout.
    """
    fail_at_once: Failure | None = None
    hangs_at_once: bool = False
    """Nothing is sent until the client leaves."""
    waits: bool = False
    """The stub waits for `StubGateway.may_answer` before it answers."""
    fail_after_batches: Failure | None = None
    """The failure after the rows, or after the note that an update is done."""
    hangs_after_batches: bool = False
    """The stream stays open until the client leaves, after the rows or after the note that an update is done."""


class StubGateway:
    """A context manager: `with StubGateway({"SELECT 1": Answer(…)}) as stub: connect(stub.uri)`."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self._answers = answers
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.parameters: list[pa.RecordBatch] = []
        self.seconds_of_parts: list[float] = []
        """The timeout of each DoGet, in seconds."""
        self.may_log_in = threading.Event()
        """Handshakes are answered only while this is set."""
        self.may_log_in.set()
        self.stream_hangs = threading.Event()
        self.may_answer = threading.Event()
        self.stream_ended = threading.Event()
        self.may_go_on = threading.Event()
        """While this is not set, a stream of batches answers none and reads no further one."""
        self.may_go_on.set()
        # As in a gateway, messages may be larger than gRPC's default.
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)])
        handlers = {
            "Handshake": grpc.stream_stream_rpc_method_handler(self._handshake),
            "DoAction": grpc.unary_stream_rpc_method_handler(self._do_action),
            "DoGet": grpc.unary_stream_rpc_method_handler(self._do_get),
            "DoExchange": grpc.stream_stream_rpc_method_handler(self._do_exchange),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, handlers)])
        self.uri = f"grpc://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> StubGateway:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_go_on.set()
        self._server.stop(grace=None).wait()

    def connect(self) -> volary.Connection:
        """Returns a connection of the client."""
        return volary.connect(self.uri)

    def _handshake(self, _requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self._client_left(context)
        self._note("Handshake", context)
        self.may_log_in.wait()
        context.send_initial_metadata([("authorization", "Bearer session-token")])
        yield from ()

    def _do_action(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self._note(pb.fields(request)[1].decode(), context)
        yield from ()

    def _do_exchange(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        messages = [pb.fields(message) for message in requests]
        command = pb.fields(messages[0][1])[2]
        rows = _read_batches(messages)
        self.parameters.extend(rows)
        if command.decode() not in self._answers:
            self._note(f"DoExchange {pb.command_name(command)}", context)
            yield from _stream_of([_SQL_INFO], _SQL_INFO.schema)
            return
        self._note(f"DoExchange {command.decode()}", context)
        answer = self._answers[command.decode()]
        end_with(answer.fail_at_once, context)
        client_left = self._client_left(context)
        if answer.hangs_at_once:
            self.stream_hangs.set()
            client_left.wait()
        if answer.waits:
            self.stream_hangs.set()
            self.may_answer.wait(timeout=PATIENCE_SECONDS)
        if answer.schema is None:
            times = sum(batch.num_rows for batch in rows) if rows else 1
            yield _note_of(query_id="q1", rows_affected=answer.count * times)
        elif answer.parts:
            yield _note_of(query_id="q1", flight_info=_flight_info(command, answer.schema, answer.parts))
        else:
            yield _note_of(query_id="q1")
            yield from _stream_of(answer.batches, answer.schema)
        if answer.hangs_after_batches:
            self.stream_hangs.set()
            client_left.wait()
        end_with(answer.fail_after_batches, context)
        yield _note_of(statistics={"rows": 3, "planning_us": 7, "news_of_a_later_release": {}})

    def _do_get(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self._note("DoGet", context)
        seconds = context.time_remaining()
        self.seconds_of_parts.append(seconds)
        answer = self._answers[pb.fields(request)[1].decode()]
        yield from _stream_of(answer.batches, answer.schema)
        self._client_left(context).wait(seconds / 4)

    def _client_left(self, context: grpc.ServicerContext) -> threading.Event:
        """Returns an event that is set when the call has ended. `stream_ended` is set at the same time."""
        client_left = threading.Event()

        def end() -> None:
            client_left.set()
            self.stream_ended.set()

        if not context.add_callback(end):
            end()
        return client_left

    def _note(self, call: str, context: grpc.ServicerContext) -> None:
        self.calls.append(call)
        self.headers.append({key: str(value) for key, value in context.invocation_metadata()})


def end_with(failure: Failure | None, context: grpc.ServicerContext) -> None:
    """Ends the call with a failure, if there is one."""
    if failure is not None:
        said = {"volary-sqlstate": failure.sqlstate, "grpc-retry-pushback-ms": failure.retry_after_ms}
        context.set_trailing_metadata([(name, str(value)) for name, value in said.items() if value is not None])
        context.abort(failure.code, failure.message)


def _note_of(**fields: object) -> bytes:
    """Returns a message that has only `app_metadata`."""
    return pb.field(3, json.dumps(fields))


def _flight_info(command: bytes, schema: pa.Schema, parts: int) -> str:
    """Returns the FlightInfo of a result. Its tickets are the text of the statement."""
    endpoints = [flight.FlightEndpoint(command, []) for _ in range(parts)]
    info = flight.FlightInfo(schema, flight.FlightDescriptor.for_command(command), endpoints, -1, -1)
    return base64.b64encode(info.serialize()).decode()


def _stream_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    yield _flight_data(schema.serialize())
    for batch in batches:
        yield _flight_data(batch.serialize())


def _flight_data(message: pa.Buffer) -> bytes:
    """Splits an encapsulated IPC message (marker, length, header, body) into Flight's separate header and body."""
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
