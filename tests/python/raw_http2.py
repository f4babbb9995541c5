"""Makes incomplete calls, which no gRPC client makes."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
from grpc import StatusCode
from processes import PATIENCE_SECONDS
from raw_flight import SERVICE

_CODES = {code.value[0]: code for code in StatusCode}
_READ_BYTES = 1 << 16


def head(length: int) -> bytes:
    """Returns the bytes that come before a message of this length."""
    return b"\0" + length.to_bytes(4, "big")


@dataclass
class Ended:
    """The answer to a call: its headers and trailers, its size, and whether the call has ended."""

    headers: dict[str, str] = field(default_factory=dict)
    received: int = 0
    """Number of bytes of the answer."""
    is_over: bool = False

    @property
    def code(self) -> StatusCode | None:
        """The status code of the call, or None if the call was aborted."""
        code = self.headers.get("grpc-status")
        return _CODES[int(code)] if code is not None else None

    @property
    def text(self) -> str:
        """The message that the node sent with the code."""
        return unquote(self.headers.get("grpc-message", ""))


class Connection:
    """A connection to a node. A test decides what it sends. `source` is its local address."""

    def __init__(self, uri: str, seconds: float = PATIENCE_SECONDS, source: str | None = None) -> None:
        host, _, port = uri.split("://")[-1].rpartition(":")
        at = (source, 0) if source is not None else None
        self._socket = socket.create_connection((host, int(port)), timeout=seconds, source_address=at)
        # Small messages are sent at once, as gRPC clients do.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._seconds = seconds
        self._unsent = bytearray()
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._http2 = h2.connection.H2Connection(config)
        # Without this, Python would take a long time for the Huffman codes of large headers.
        self._http2.encoder.encode = partial(self._http2.encoder.encode, huffman=False)
        self._http2.initiate_connection()
        self._calls: dict[int, Ended] = {}
        self._flush()
        # Waits until the node has said how much may be sent in one call and on the whole connection.
        while min(self._http2.remote_settings.initial_window_size, self._http2.outbound_flow_control_window) < 1 << 16:
            self._read()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def begin(self, method: str, *shown: tuple[str, str]) -> int:
        """Starts a call of a method with these headers."""
        stream = self._http2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", SERVICE + method),
            (":authority", "node"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *shown,
        ]
        self._http2.send_headers(stream, headers)
        self._calls[stream] = Ended()
        self._flush()
        return stream

    def send(self, stream: int, data: bytes) -> int:
        """Sends as much as the node allows, and returns how many bytes were sent."""
        sent = 0
        while sent < len(data) and not self._calls[stream].is_over:
            most = min(self._http2.local_flow_control_window(stream), self._http2.max_outbound_frame_size)
            if most == 0:
                break
            self._http2.send_data(stream, data[sent : sent + most])
            sent += len(data[sent : sent + most])
            self._flush()
        return sent

    def send_all(self, stream: int, data: bytes) -> None:
        """Sends all the data, as fast as the node allows, unless the node ends the call."""
        while (data := data[self.send(stream, data) :]) and not self._calls[stream].is_over:
            self._read()

    def ping(self) -> None:
        """Sends a ping, which the node answers when it reads it."""
        self._http2.ping(bytes(8))
        self._flush()

    def finish(self, stream: int) -> None:
        """Ends the client's side of the call."""
        self._http2.end_stream(stream)
        self._flush()

    def await_end(self, stream: int) -> Ended:
        """Waits until a call has ended."""
        self.await_any_end([stream])
        return self._calls[stream]

    def await_any_end(self, streams: list[int]) -> int:
        """Waits until one of these calls has ended, and returns its stream."""
        while True:
            for stream in streams:
                if self._calls[stream].is_over:
                    return stream
            self._read()

    def fileno(self) -> int:
        """Returns the file descriptor, for selectors."""
        return self._socket.fileno()

    def _read(self) -> None:
        received = self._socket.recv(_READ_BYTES)
        assert received, "the node has closed the connection"
        for event in self._http2.receive_data(received):
            self._note(event)
        self._flush()

    def _note(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                self._calls[event.stream_id].headers.update(event.headers)
            case h2.events.DataReceived():
                self._calls[event.stream_id].received += len(event.data)
                self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded() | h2.events.StreamReset():
                self._calls[event.stream_id].is_over = True

    def _flush(self) -> None:
        """Sends the pending bytes. If the socket does not block, sends as many as the socket accepts."""
        self._unsent += self._http2.data_to_send()
        with suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]


class _Upload:
    """The data that one call sends as fast as its node accepts it."""

    def __init__(self, connection: Connection, stream: int, data: bytes) -> None:
        self.connection = connection
        self.stream = stream
        self.rest = memoryview(data)
        connection._socket.setblocking(False)

    def end(self) -> Ended:
        """Makes the socket blocking again, and returns the ended call."""
        self.connection._socket.settimeout(self.connection._seconds)
        return self.connection._calls[self.stream]

    def is_over(self) -> bool:
        """Returns whether the node has ended the call."""
        return self.connection._calls[self.stream].is_over

    def events(self) -> int:
        """Returns the events of the socket that the upload waits for."""
        has_more = self.connection._unsent or self._sendable() > 0
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if has_more else 0)

    def go_on(self, events: int) -> None:
        """Handles events of the socket."""
        if events & selectors.EVENT_READ:
            self.connection._read()
        if events & selectors.EVENT_WRITE and not self.is_over():
            # Only one frame is prepared at a time, because all frames together would need much memory.
            if not self.connection._unsent and (most := self._sendable()):
                self.connection._http2.send_data(self.stream, self.rest[:most])
                self.rest = self.rest[most:]
            self.connection._flush()

    def _sendable(self) -> int:
        if self.is_over():
            return 0
        http2 = self.connection._http2
        return min(http2.local_flow_control_window(self.stream), http2.max_outbound_frame_size, len(self.rest))


def send_until_ended(calls: Mapping[Connection, int], data: bytes) -> list[Ended]:
    """Sends the data in one call on each connection, as fast as the nodes accept it, until all calls have ended."""
    uploads = [_Upload(connection, stream, data) for connection, stream in calls.items()]
    with selectors.DefaultSelector() as selector:
        for upload in uploads:
            selector.register(upload.connection, upload.events(), upload)
        while selector.get_map():
            events = selector.select(PATIENCE_SECONDS)
            assert events, f"{len(selector.get_map())} calls have not ended, and their nodes neither read nor answer"
            for key, ready in events:
                upload = key.data
                upload.go_on(ready)
                if upload.is_over():
                    selector.unregister(upload.connection)
                else:
                    selector.modify(upload.connection, upload.events(), upload)
    return [upload.end() for upload in uploads]
