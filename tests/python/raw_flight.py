"""Flight calls in which the test chooses every byte and sees the whole answer. Drivers do not allow that."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import grpc
import protobuf as pb
import pyarrow as pa
from processes import PATIENCE_SECONDS

SERVICE = "/arrow.flight.protocol.FlightService/"
METHODS = (
    "Handshake",
    "ListFlights",
    "GetFlightInfo",
    "PollFlightInfo",
    "GetSchema",
    "DoGet",
    "DoPut",
    "DoExchange",
    "DoAction",
    "ListActions",
)
"""All RPCs of Flight.proto."""

OK = grpc.StatusCode.OK

_NO_ANSWER = "Deadline Exceeded"
_COMMAND, _PATH = 2, 1
_AT_ONCE = 64


class Answer(NamedTuple):
    """How a call ended, and everything that was received before."""

    code: grpc.StatusCode
    text: str
    messages: list[bytes]
    headers: dict[str, str]

    def contains(self, marker: str) -> bool:
        """Returns whether the marker is anywhere in the answer."""
        everything = [self.text.encode(), *self.messages, *(value.encode() for value in self.headers.values())]
        return any(marker.encode() in part for part in everything)

    def __str__(self) -> str:
        return f"{self.code.name} {self.text!r} and {len(self.messages)} messages"


def faults(what: str, answer: Answer, expected: grpc.StatusCode, *hidden: str) -> Iterator[str]:
    """Yields what is wrong with an answer. It must end with `expected` and contain nothing of `hidden`."""
    if answer.code != expected:
        yield f"{what}: {answer}, not {expected.name}"
    if answer.code != OK and not answer.text.startswith(f"{answer.code.name}: "):
        yield f"{what}: the text does not begin with the code: {answer.text!r}"
    if expected != OK and answer.messages:
        yield f"{what}: there are messages before the error: {answer.messages}"
    for marker in hidden:
        if answer.contains(marker):
            yield f"{what}: {marker!r} is in the answer: {answer}, {answer.messages}, {answer.headers}"


class Node:
    """A connection to a node. It keeps the texts of all errors."""

    def __init__(self, uri: str) -> None:
        address = uri.split("://")[-1]
        # Each object has its own network connection, so that tests do not affect each other.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(address, options)
        self.texts: set[str] = set()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call_each(
        self,
        method: str,
        messages: Iterable[bytes],
        authorization: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> Iterator[Answer]:
        """Makes calls of one message each, many at the same time, and yields the answers.

        An answer without an error must have one message.
        """
        rpc = self._channel.unary_unary(SERVICE + method, request_serializer=bytes, response_deserializer=bytes)
        shown = [*headers, *([("authorization", authorization)] if authorization is not None else [])]
        remaining = iter(messages)
        while some := list(islice(remaining, _AT_ONCE)):
            answers = [rpc.future(message, metadata=shown, timeout=PATIENCE_SECONDS) for message in some]
            for answer in answers:
                got = [answer.result()] if answer.exception() is None else []
                yield self._noted(method, answer, got)

    def call(
        self,
        method: str,
        *messages: bytes,
        authorization: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> Answer:
        """Makes a call of any method and waits for its end. Fails if the call does not end."""
        # A unary call and a stream of one message have the same bytes, but the stream needs another thread of the
        # client.
        kind = self._channel.unary_stream if len(messages) == 1 else self._channel.stream_stream
        rpc = kind(SERVICE + method, request_serializer=bytes, response_deserializer=bytes)
        shown = [*headers, *([("authorization", authorization)] if authorization is not None else [])]
        sent = messages[0] if len(messages) == 1 else iter(messages)
        answers = rpc(sent, metadata=shown, timeout=PATIENCE_SECONDS)
        got: list[bytes] = []
        with suppress(grpc.RpcError):
            got.extend(answers)
        return self._noted(method, answers, got)

    def _noted(self, method: str, ended: grpc.Call, messages: list[bytes]) -> Answer:
        text = ended.details() or ""
        assert text != _NO_ANSWER, f"{method} did not end within {PATIENCE_SECONDS} s"
        self.texts.add(text)
        metadata = {key: str(value) for key, value in [*ended.initial_metadata(), *ended.trailing_metadata()]}
        return Answer(ended.code(), text, messages, metadata)


def basic(user: str, password: str) -> str:
    """Returns the authorization header for a name and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(token: str) -> str:
    """Returns the authorization header for a token."""
    return f"Bearer {token}"


# Messages


def command(name: str, message: bytes = b"") -> bytes:
    """Encodes the descriptor of a Flight SQL command."""
    return descriptor(pb.command(name, message))


def descriptor(cmd: bytes) -> bytes:
    """Encodes a descriptor of any bytes."""
    return pb.field(1, _COMMAND) + pb.field(2, cmd)


def path(*names: str) -> bytes:
    """Encodes the descriptor of a table."""
    return pb.field(1, _PATH) + b"".join(pb.field(3, name) for name in names)


def ticket(sealed: bytes) -> bytes:
    """Encodes a ticket."""
    return pb.field(1, sealed)


def action(name: str, body: bytes = b"") -> bytes:
    """Encodes an action."""
    return pb.field(1, name) + pb.field(2, body)


def upload(described: bytes, rows: pa.RecordBatch | None = None) -> list[bytes]:
    """Returns the messages of a DoPut: the descriptor with a schema, and the rows."""
    schema = rows.schema if rows is not None else pa.schema([])
    first = pb.field(1, described) + _flight_data(schema.serialize())
    return [first, _flight_data(rows.serialize())] if rows is not None else [first]


def _flight_data(encapsulated: pa.Buffer) -> bytes:
    message = pa.ipc.read_message(encapsulated)
    body = message.body.to_pybytes() if message.body is not None else b""
    return pb.field(2, message.metadata.to_pybytes()) + pb.field(1000, body)


def rows_of(answer: Answer) -> pa.Table:
    """Returns the rows of a DoGet."""
    assert answer.code == OK, answer
    said = [pb.fields(message) for message in answer.messages]
    stream = b"".join(
        b"\xff\xff\xff\xff" + len(message[2]).to_bytes(4, "little") + message[2] + message.get(1000, b"")
        for message in said
        if message.get(2)
    )
    return pa.ipc.open_stream(stream).read_all()
