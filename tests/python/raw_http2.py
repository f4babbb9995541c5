"""Calls of which only a part is sent: no client of gRPC does that."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
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
    """What comes before a message of this length."""
    return b"\0" + length.to_bytes(4, "big")


@dataclass
class Ended:
    """How a call ended."""

    headers: dict[str, str] = field(default_factory=dict)
    is_over: bool = False

    @property
    def code(self) -> StatusCode | None:
        """None if the call was broken off."""
        code = self.headers.get("grpc-status")
        return _CODES[int(code)] if code is not None else None

    @property
    def text(self) -> str:
        """What the node says about it."""
        return unquote(self.headers.get("grpc-message", ""))


class Connection:
    """A connection to a node, on which nothing is sent by itself."""

    def __init__(self, uri: str, seconds: float = PATIENCE_SECONDS) -> None:
        host, _, port = uri.split("://")[-1].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=seconds)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._http2 = h2.connection.H2Connection(config)
        self._http2.initiate_connection()
        self._calls: dict[int, Ended] = {}
        self._flush()
        # The node's settings say how much may be sent.
        while not self._http2.remote_settings.initial_window_size > 1 << 16:
            self._read()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def begin(self, method: str, *shown: tuple[str, str]) -> int:
        """Begins a call of a method, with these headers."""
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
        """Sends as much as the node lets: how much that is."""
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
        """Sends all of it, as the node lets, unless the node ends the call."""
        while (data := data[self.send(stream, data) :]) and not self._calls[stream].is_over:
            self._read()

    def finish(self, stream: int) -> None:
        """Says that nothing more is sent."""
        self._http2.end_stream(stream)
        self._flush()

    def ended(self, stream: int) -> Ended:
        """Waits for the end of a call."""
        self.any_ended([stream])
        return self._calls[stream]

    def any_ended(self, streams: list[int]) -> int:
        """Waits for the end of one of these calls, and says which that is."""
        while True:
            for stream in streams:
                if self._calls[stream].is_over:
                    return stream
            self._read()

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
                self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded() | h2.events.StreamReset():
                self._calls[event.stream_id].is_over = True

    def _flush(self) -> None:
        self._socket.sendall(self._http2.data_to_send())
