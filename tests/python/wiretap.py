"""A TCP proxy in front of a node. It records what clients send, so that a test can send it again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

from processes import until

_HOST = "127.0.0.1"
_CHUNK = 64 * 1024
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER_BYTES = 9
_MESSAGE_HEADER_BYTES = 5
_DATA, _HEADERS, _RST_STREAM = 0, 1, 3
_END_STREAM = 1


class Wiretap:
    """Forwards connections to `target`, a port of this machine, and keeps what each connection sends to it.

    `source` is the address of this machine from which it connects to the target.
    """

    def __init__(self, source: str = _HOST) -> None:
        self._source = source
        self._listener = socket.create_server((_HOST, 0))
        self.address = f"{_HOST}:{self._listener.getsockname()[1]}"
        self.target: int | None = None
        self._heard: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def heard(self) -> list[bytes]:
        """Returns what each connection has sent so far."""
        return [bytes(sent) for sent in self._heard]

    def close(self) -> None:
        """Accepts no more connections. Open connections end when one of their sides closes."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        sent = bytearray()
        self._heard.append(sent)
        target, source = (_HOST, self.target or 0), (self._source, 0)
        with client, suppress(OSError), socket.create_connection(target, source_address=source) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upload = threading.Thread(target=_pump, args=(client, server, sent), daemon=True)
            upload.start()
            _pump(server, client, bytearray())
            upload.join()


def messages(sent: bytes) -> Iterator[bytes]:
    """Yields the complete gRPC messages in the bytes of an HTTP/2 connection."""
    calls: dict[int, bytearray] = {}
    for kind, _, stream, payload in _frames(sent[len(_PREFACE) :]):
        if kind == _DATA:
            calls.setdefault(stream, bytearray()).extend(payload)
    for call in calls.values():
        at = 0
        while at + _MESSAGE_HEADER_BYTES <= len(call):
            start = at + _MESSAGE_HEADER_BYTES
            at = start + int.from_bytes(call[at + 1 : start], "big")
            if at <= len(call):
                yield bytes(call[start:at])


def replay(port: int, sent: bytes) -> bytes:
    """Sends the bytes of an HTTP/2 connection again on a new one, and waits until each of its calls has ended."""
    calls = {stream for kind, flags, stream, _ in _frames(sent[len(_PREFACE) :]) if _ends(kind, flags)}
    answered = bytearray()
    with socket.create_connection((_HOST, port), timeout=1) as connection:
        connection.sendall(sent)

        def have_ended() -> bool:
            with suppress(TimeoutError):
                answered.extend(connection.recv(_CHUNK))
            return calls <= {stream for kind, flags, stream, _ in _frames(bytes(answered)) if _ends(kind, flags)}

        until(have_ended, "each call that was sent again has ended")
    return bytes(answered)


def _ends(kind: int, flags: int) -> bool:
    return kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and bool(flags & _END_STREAM))


def _frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yields the kind, the flags, the stream and the payload of each complete frame."""
    at = 0
    while at + _FRAME_HEADER_BYTES <= len(data):
        length = int.from_bytes(data[at : at + 3], "big")
        end = at + _FRAME_HEADER_BYTES + length
        if end > len(data):
            return
        stream = int.from_bytes(data[at + 5 : at + _FRAME_HEADER_BYTES], "big") & 0x7FFF_FFFF
        yield data[at + 3], data[at + 4], stream, data[at + _FRAME_HEADER_BYTES : end]
        at = end


def _pump(source: socket.socket, to: socket.socket, kept: bytearray) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            kept += chunk
            to.sendall(chunk)
    for end in (source, to):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
