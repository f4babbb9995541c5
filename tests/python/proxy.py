"""A TCP proxy in front of a server. A test can stop it or cut its connections at any byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_HOST = "127.0.0.1"
_CHUNK = 64 * 1024


class Proxy:
    """Forwards connections to `target`, a port of this machine. If nobody listens there, it closes them.

    While it holds, it accepts connections but forwards no bytes, like a network that loses all packets.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((_HOST, 0))
        self.address = f"{_HOST}:{self._listener.getsockname()[1]}"
        self.target: int | None = None
        self._changed = threading.Condition()
        self._up = _Flow(self._changed)
        self._down = _Flow(self._changed)
        self._open: set[socket.socket] = set()
        self._busy_bytes: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def downloaded(self) -> int:
        """Number of bytes from the server that were forwarded."""
        return self._down.forwarded

    @property
    def uploaded(self) -> int:
        """Number of bytes to the server that were forwarded."""
        return self._up.forwarded

    def hold(self) -> None:
        """Stops forwarding in both directions."""
        self._up.limit_to(0)
        self._down.limit_to(0)

    def hold_after(self, *, up: int | None = None, down: int | None = None) -> None:
        """Forwards `up` more bytes to the server and `down` more bytes from it, and then holds. None means no limit."""
        self._up.limit_to(up)
        self._down.limit_to(down)

    def hold_busy_connections(self, down: int) -> None:
        """Forwards nothing more from the server on connections that have brought more than `down` bytes. This holds
        until the connection is cut.
        """
        with self._changed:
            self._busy_bytes = down

    @property
    def is_holding(self) -> bool:
        """Returns whether bytes have arrived that the proxy holds back."""
        return self._up.is_holding or self._down.is_holding

    def release(self) -> None:
        """Forwards everything again."""
        self.hold_after()

    def cut(self) -> None:
        """Closes all connections. Bytes that are held back are lost."""
        with self._changed:
            self._busy_bytes = None
            connections, self._open = self._open, set()
            self._changed.notify_all()
        for connection in connections:
            _shut(connection)
        self._up.forget()
        self._down.forget()

    def close(self) -> None:
        """Stops the proxy."""
        _shut(self._listener)
        self._listener.close()
        self.cut()
        self.release()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client:
            try:
                if self.target is None:
                    return
                server = socket.create_connection((_HOST, self.target))
            except OSError:
                return
            with server:
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._changed:
                    self._open |= {client, server}
                upload = threading.Thread(target=_pump, args=(client, server, self._up), daemon=True)
                upload.start()
                _pump(server, client, self._down, self._wait_if_busy)
                upload.join()
                with self._changed:
                    self._open -= {client, server}

    def _wait_if_busy(self, server: socket.socket, forwarded: int) -> None:
        with self._changed:
            while self._busy_bytes is not None and forwarded > self._busy_bytes and server in self._open:
                self._changed.wait()


class _Flow:
    """The bytes of one direction, over all connections."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._limit: int | None = None
        self._epoch = 0
        self.forwarded = 0
        self.is_holding = False

    def limit_to(self, more: int | None) -> None:
        with self._changed:
            self._limit = None if more is None else self.forwarded + more
            self.is_holding = False
            self._changed.notify_all()

    def forget(self) -> None:
        """Drops the bytes that are held back now. They are never forwarded."""
        with self._changed:
            self._epoch += 1
            self.is_holding = False
            self._changed.notify_all()

    def send(self, chunk: bytes, to: socket.socket) -> bool:
        """Forwards a chunk as soon as the limit allows. Returns false if the connections were cut in the meantime."""
        with self._changed:
            epoch = self._epoch
        while chunk:
            with self._changed:
                while self._limit is not None and self.forwarded >= self._limit:
                    if self._epoch != epoch:
                        return False
                    self.is_holding = True
                    self._changed.wait()
                if self._epoch != epoch:
                    return False
                size = len(chunk) if self._limit is None else min(len(chunk), self._limit - self.forwarded)
                self.forwarded += size
            to.sendall(chunk[:size])
            chunk = chunk[size:]
        return True


def _pump(
    source: socket.socket,
    to: socket.socket,
    flow: _Flow,
    before: Callable[[socket.socket, int], None] = lambda _source, _forwarded: None,
) -> None:
    """Forwards all bytes of a connection. `before` is called before each chunk, with the bytes forwarded so far."""
    forwarded = 0
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            before(source, forwarded)
            if not flow.send(chunk, to):
                break
            forwarded += len(chunk)
    # HTTP/2 has no half-open connections, so the end of one side closes both.
    _shut(source)
    _shut(to)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
