"""Sends data that is not Flight to every port of every node. Only the connection that it comes on may end."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from certificates import Certificates
from every_call import Made
from processes import PATIENCE_SECONDS, Processes, until
from pyarrow import flight
from raw_flight import OK, Node, ticket
from secured import SECRET, Secured, secured_cluster

pytestmark = pytest.mark.server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Returns an HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


ENDS = {
    "bytes of all kinds": random.Random(4711).randbytes(64 * 1024),
    "zeros": bytes(64 * 1024),
    "a request of HTTP/1": b"POST /arrow.flight.protocol.FlightService/ListFlights HTTP/1.1\r\nHost: x\r\n\r\n",
    "a request of HTTP/1 that goes over to HTTP/2": (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABk\r\n\r\n"
    ),
    "a greeting of TLS": bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + bytes(512),
    "a preface and no frame": PREFACE + b"\xff" * 64,
    "a frame that is too long": PREFACE + SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "rows of no call": PREFACE + SETTINGS + frame(0, 0, 7, b"rows"),
    "headers that are none": PREFACE + SETTINGS + frame(1, 5, 1, b"\xff" * 200),
    "headers without an end": PREFACE + SETTINGS + frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"\x00" * 16000) * 64,
}
"""Data after which the node must close the connection, by description."""

WAITS = {
    "nothing": b"",
    "half of a preface": PREFACE[:11],
    "a preface and nothing": PREFACE,
    "a preface, settings and nothing": PREFACE + SETTINGS,
    "half of a frame": PREFACE + SETTINGS + SETTINGS[:5],
}
"""Data after which the node waits for more data, by description."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("every_port")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ports(secured: Secured, keas_tickets: Made) -> dict[str, int]:
    """All ports, by who owns them."""
    uris = {"the gateway": secured.gateway.uri}
    for number, (worker, part) in enumerate(zip(secured.workers, keas_tickets.parts, strict=True)):
        uris[f"worker {number}"] = secured.uri_of(worker)
        uris[f"clients of worker {number}"] = part.locations[0].uri.decode()
    found = {what: int(uri.rsplit(":", 1)[1]) for what, uri in uris.items()}
    assert len(set(found.values())) == 5
    return found


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def read_to_its_end(connection: socket.socket) -> bytes:
    """Reads everything until the other side closes the connection. Fails if it does not."""
    read = bytearray()
    with suppress(ConnectionError, ssl.SSLError):
        while chunk := connection.recv(1 << 16):
            read += chunk
    return bytes(read)


@pytest.mark.parametrize("sent", ENDS)
def test_what_is_no_http2_ends_its_connection(secured, ports, sent):
    for what, port in ports.items():
        with connected(port) as connection:
            # The node may close the connection before all the data has arrived.
            with suppress(ConnectionError):
                connection.sendall(ENDS[sent])
            try:
                answered = read_to_its_end(connection)
            except TimeoutError:
                pytest.fail(f"{what} does not close a connection after {sent}")
            assert b"whisper" not in answered
    secured.assert_serves()


def test_connections_on_which_nothing_comes_keep_nobody_waiting(secured, ports, keas_tickets, kea):
    with ExitStack() as open_ones:
        for port in ports.values():
            for sent in list(WAITS.values()) * 20:
                connection = open_ones.enter_context(connected(port))
                connection.sendall(sent)
        secured.assert_serves()
        for part in keas_tickets.parts:
            with Node(part.locations[0].uri.decode()) as clients:
                assert clients.call("DoGet", ticket(part.ticket.ticket), authorization=kea).code == OK
    secured.assert_serves()


def test_connections_that_are_cut_in_the_middle_of_a_call_leave_nothing(secured, ports):
    path = b"/arrow.flight.protocol.FlightService/DoPut"
    # The headers are literals without an index. The call has begun, and a part of its first message has arrived.
    headers = b"\x83\x86" + b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in (
            (b":path", path),
            (b":authority", b"x"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    begun = PREFACE + SETTINGS + frame(1, 4, 1, headers) + frame(0, 0, 1, b"\x00\x00\x10\x00\x00" + bytes(100))
    for port in ports.values():
        for length in range(0, len(begun), 7):
            with connected(port) as connection:
                connection.sendall(begun[:length])
    secured.assert_serves()


# TLS


class Encrypted:
    """A cluster whose nodes have certificates. Its worker has an address for clients, who need no certificate."""

    def __init__(self, directory: Path, processes: Processes) -> None:
        self._processes = processes
        self.authority = directory / "authority.pem"
        self.gateway = int(processes.gateway.address.rsplit(":", 1)[1])
        self.worker = int(processes.workers[0].running().await_ready().rsplit(":", 1)[1])
        self.clients = until(self._clients, "the worker has reported")

    @property
    def ports(self) -> dict[str, int]:
        return {"the gateway": self.gateway, "the worker": self.worker, "clients of the worker": self.clients}

    def assert_serves(self) -> None:
        """Checks that the table can be read from the gateway and from the worker."""
        rows = 0
        for endpoint in self._info().endpoints:
            with flight.connect(endpoint.locations[0], tls_root_certs=self.authority.read_bytes()) as worker:
                rows += (
                    worker.do_get(endpoint.ticket, flight.FlightCallOptions(timeout=PATIENCE_SECONDS))
                    .read_all()
                    .num_rows
                )
        assert rows == 10
        for node in (self._processes.gateway, *self._processes.workers):
            assert node.running().is_alive(), node.running().tail()
            assert "panicked" not in node.running().log(), node.running().tail()

    def run(self, statement: str, *headers: tuple[bytes, bytes]) -> flight.FlightInfo:
        options = flight.FlightCallOptions(headers=list(headers), timeout=PATIENCE_SECONDS)
        uri = self._processes.gateway.uri
        with flight.connect(uri, tls_root_certs=self.authority.read_bytes()) as client:
            return client.get_flight_info(flight.FlightDescriptor.for_command(statement.encode()), options)

    def _info(self) -> flight.FlightInfo:
        return self.run("SELECT * FROM eggs", (b"volary-direct-results", b"on"))

    def _clients(self) -> int | None:
        self.run("CREATE TABLE IF NOT EXISTS eggs AS SELECT value AS k FROM generate_series(1, 10)")
        (endpoint,) = self._info().endpoints
        return int(endpoint.locations[0].uri.rsplit(b":", 1)[1]) if endpoint.locations else None


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    settings = certificates.of_nodes() | {"VOLARY_SECRET": SECRET, "VOLARY_WORKER__CLIENTS__LISTEN": "127.0.0.1:0"}
    with Processes(tmp_path_factory.mktemp("encrypted"), settings) as processes:
        processes.add_worker()
        yield Encrypted(certificates.directory, processes)


@pytest.fixture(scope="module")
def greeting(encrypted: Encrypted) -> bytes:
    """The first message of a TLS client."""
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(encrypted.authority))
    context.set_alpn_protocols(["h2"])
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def test_handshakes_that_stop_halfway_keep_nobody_waiting_and_are_given_up(encrypted, greeting):
    with ExitStack() as open_ones:
        stopped = []
        for what, port in encrypted.ports.items():
            for sent in (b"", greeting[:1], greeting[:100], greeting):
                connection = open_ones.enter_context(connected(port))
                connection.sendall(sent)
                stopped.append((what, len(sent), connection))
        encrypted.assert_serves()
        for what, length, connection in stopped:
            try:
                read_to_its_end(connection)
            except TimeoutError:
                pytest.fail(f"{what} waits without an end for the rest of a handshake of {length} bytes")
    encrypted.assert_serves()


@pytest.mark.parametrize("sent", [*ENDS, "a preface and nothing"])
def test_what_is_no_tls_ends_its_connection(encrypted, sent):
    for what, port in encrypted.ports.items():
        with connected(port) as connection:
            with suppress(ConnectionError):
                connection.sendall((ENDS | WAITS)[sent])
            try:
                answered = read_to_its_end(connection)
            except TimeoutError:
                pytest.fail(f"{what} does not close a connection after {sent}")
            # The answer is a TLS alert, or nothing.
            assert answered[:1] in (b"", b"\x15")
    encrypted.assert_serves()


def test_a_greeting_altered_by_one_bit_ends_its_connection_at_most(encrypted, greeting):
    with ExitStack() as open_ones:
        for at in range(len(greeting)):
            altered = bytearray(greeting)
            altered[at] ^= 1 << at % 8
            connection = open_ones.enter_context(connected(list(encrypted.ports.values())[at % 3]))
            connection.sendall(altered)
        encrypted.assert_serves()


@pytest.mark.parametrize("protocols", [[], ["http/1.1"], ["h3"]])
def test_tls_for_another_protocol_is_no_way_around_http2(encrypted, protocols):
    context = ssl.create_default_context(cafile=str(encrypted.authority))
    if protocols:
        context.set_alpn_protocols(protocols)
    for port in (encrypted.gateway, encrypted.clients):
        with (
            connected(port) as connection,
            suppress(ssl.SSLError, ConnectionError),
            context.wrap_socket(connection, server_hostname="localhost") as tls,
        ):
            tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not read_to_its_end(tls).startswith(b"HTTP/1")
    encrypted.assert_serves()


def test_nothing_secret_was_said(secured, keas_tickets):
    # This ensures that a part of what was sent is in the logs.
    with Node(secured.gateway.uri) as stranger:
        secured.node(secured.gateway.uri).call("ListFlights", b"", authorization="Bearer volary-bearer-00")
        assert stranger.call("ListFlights", b"").code != OK
    until(lambda: "a connection broke" in secured.gateway.running().log(), "it is logged")
    secured.assert_nothing_secret_was_said()
