"""Tests messages of which only a part arrives: how much memory they take, from whom, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from every_call import DENIED, DIRECT, INVALID, UNAUTHENTICATED
from grpc import StatusCode
from node_messages import SOON
from processes import Process, until
from pyarrow import flight
from raw_flight import OK, basic, descriptor, ticket
from raw_http2 import Connection, Ended, head, send_until_ended
from secured import COLUMN, PASSWORD, TABLE, VALUE, Secured, secured_cluster

import volary

pytestmark = pytest.mark.server

KIB = 1 << 10
MIB = 1 << 20
MAX_UNFINISHED = 8 * MIB
LARGE = 200 * MIB
WINDOW = 4 * MIB
"""Number of bytes that a node lets a call send before it has read any of them."""
CONNECTIONS, CALLS = 40, 4
HELD = 64 * KIB
"""Threshold in bytes. Until a node knows a user of a connection, it reads ahead less than this of its calls."""
SLACK = 8 * MIB
"""Growth of a process because of its other work and its detailed log, in bytes."""
CHECKS = 3 * 19 * MIB
"""Memory that Argon2 takes, in bytes. Two passwords are checked at the same time. Meanwhile, the allocator may be
giving back the memory of a third check, which has ended.
"""
WAITING = 100
REFUSED, TOO_LATE = StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {"VOLARY_GATEWAY__QUERY__MAX_UNFINISHED": str(MAX_UNFINISHED)}
    with secured_cluster(tmp_path_factory.mktemp("unfinished"), settings) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["a gateway", "a worker"])
def node(request: pytest.FixtureRequest, secured: Secured):
    """A node, its address, and a call that a caller without credentials can begin there."""
    if request.param == "a gateway":
        return secured.gateway, secured.gateway.uri, "DoAction"
    worker = secured.workers[0]
    return worker, secured.uri_of(worker), "DoGet"


@contextmanager
def growth_below(process: Process, most: int) -> Iterator[None]:
    """Fails if the memory of the process grows by more than `most` bytes at any time."""
    before = process.memory_bytes()
    # This makes Linux reset the peak.
    Path(f"/proc/{process._process.pid}/clear_refs").write_text("5")
    yield
    grown = process.peak_memory_bytes() - before
    assert grown < most, f"{grown / MIB:.1f} MiB, not less than {most / MIB:.1f} MiB"


@contextmanager
def connected(uri: str, sources: Iterable[str | None]) -> Iterator[list[Connection]]:
    """Opens a connection from each of these addresses."""
    with ExitStack() as stack:
        yield [stack.enter_context(Connection(uri, source=source)) for source in sources]


def test_strangers_make_a_node_hold_next_to_nothing(secured, node):
    process, uri, method = node[0].running(), node[1], node[2]
    ended = []
    with growth_below(process, CONNECTIONS * HELD + SLACK), connected(uri, [None] * CONNECTIONS) as connections:
        for _ in range(CALLS):
            calls = {connection: connection.begin(method) for connection in connections}
            ended += send_until_ended(calls, head(LARGE) + bytes(WINDOW))
    codes = {it.code for it in ended}
    # The first frames of all calls together are more than strangers from one address may send.
    assert UNAUTHENTICATED in codes, codes
    assert codes <= {UNAUTHENTICATED, REFUSED}, {it.text for it in ended}
    secured.assert_serves()


def test_calls_whose_passwords_wait_to_be_checked_make_a_gateway_hold_next_to_nothing(secured):
    wrong = "not the password of kea"
    secured.record("a wrong password", wrong)
    # Each call has its own address, because only a few calls of one address may wait or have wrong passwords.
    sources = [f"127.0.1.{last}" for last in range(1, WAITING + 1)]
    most = CHECKS + WAITING * HELD + SLACK
    with connected(secured.gateway.uri, sources) as connections, growth_below(secured.gateway.running(), most):
        calls = {it: it.begin("GetFlightInfo", ("authorization", basic("kea", wrong))) for it in connections}
        ended = send_until_ended(calls, head(WINDOW) + bytes(WINDOW))
    codes = {it.code for it in ended}
    # On a slow machine, some calls wait too long.
    assert UNAUTHENTICATED in codes, codes
    assert codes <= {UNAUTHENTICATED, REFUSED}, {it.text for it in ended}
    secured.assert_serves()


def test_large_headers_of_strangers_are_refused_or_their_calls_are_ended(secured, node):
    process, uri, method = node[0].running(), node[1], node[2]
    large = ("large", "x" * 30_000)
    with growth_below(process, 16 * MIB), connected(uri, [None] * 4) as connections:
        begun = [(it, [it.begin(method, large) for _ in range(500)]) for it in connections]
        ended = [connection.await_end(stream) for connection, streams in begun for stream in streams]
    assert {it.code for it in ended} == {REFUSED, TOO_LATE}, {it.text for it in ended}
    for it in ended:
        assert ("calls of unidentified clients" if it.code == REFUSED else "has stalled") in it.text
    secured.assert_serves()


def test_few_calls_of_a_connection_wait_until_it_is_known_who_makes_them(secured, node):
    _, uri, method = node
    with Connection(uri) as connection:
        ended = [connection.await_end(stream) for stream in [connection.begin(method) for _ in range(200)]]
    refused = [it for it in ended if it.code == REFUSED]
    assert refused
    assert all("128 calls of this connection" in it.text for it in refused), {it.text for it in refused}
    late = [it for it in ended if it.code != REFUSED]
    assert len(late) >= 128
    for it in late:
        assert_does_not_go_on(it)
    secured.assert_serves()


def test_what_a_stranger_begins_and_does_not_go_on_with_is_ended(node):
    _, uri, method = node
    with Connection(uri) as connection:
        nothing, part, message = (connection.begin(method) for _ in range(3))
        connection.send(part, head(1000) + bytes(10))
        # The whole message is sent, but the call is not ended.
        connection.send(message, whole(ticket(b"of nothing")))
        for stream in (nothing, part, message):
            assert_does_not_go_on(connection.await_end(stream))


def test_what_a_user_begins_and_does_not_go_on_with_is_ended(secured):
    kea = secured.create_token("kea", "slow")
    with Connection(secured.gateway.uri) as connection:
        slow = connection.begin("GetFlightInfo", ("authorization", kea))
        connection.send(slow, head(LARGE) + bytes(10_000))
        # Another call of the same connection must not be delayed.
        other = connection.begin("ListActions", ("authorization", kea))
        connection.send_all(other, head(0))
        connection.finish(other)
        assert connection.await_end(other).code == StatusCode.OK
        assert_does_not_go_on(connection.await_end(slow))


def assert_does_not_go_on(ended: Ended) -> None:
    assert ended.code == TOO_LATE, ended
    assert "has stalled" in ended.text


def whole(message: bytes) -> bytes:
    return head(len(message)) + message


def test_messages_of_one_user_have_half_of_the_memory_for_all(secured):
    kea, auk = secured.create_token("kea", "of_kea"), secured.create_token("auk", "of_auk")
    message = whole(descriptor(bytes(3 * MIB)))
    part, rest = message[: 2 * MIB + MIB // 2], message[2 * MIB + MIB // 2 :]
    with Connection(secured.gateway.uri) as connection:
        of_kea = [connection.begin("GetFlightInfo", ("authorization", kea)) for _ in range(2)]
        for stream in of_kea:
            connection.send_all(stream, part)
        refused = connection.await_any_end(of_kea)
        (taken,) = set(of_kea) - {refused}
        in_use = "SELECT in_use FROM system.limits WHERE name = 'incomplete messages' AND scope = 'node'"
        until(lambda: secured.administer(in_use)[0]["in_use"] == len(part), "it is listed what has come")
        ended = connection.await_end(refused)
        assert ended.code == REFUSED, ended
        assert "incomplete messages of this sender" in ended.text
        assert "gateway.query.max_unfinished" in ended.text
        with Connection(secured.gateway.uri) as of_auk:
            others = of_auk.begin("GetFlightInfo", ("authorization", auk))
            of_auk.send_all(others, part)
            for whose, stream in ((of_auk, others), (connection, taken)):
                whose.send_all(stream, rest)
                whose.finish(stream)
                # The message was complete, but its content is invalid.
                assert whose.await_end(stream).code == INVALID


def test_a_message_whose_length_is_not_taken_is_refused_by_its_length(secured):
    kea = secured.create_token("kea", "too_large")
    with Connection(secured.gateway.uri) as connection:
        stream = connection.begin("GetFlightInfo", ("authorization", kea))
        connection.send(stream, head(257 * MIB))
        ended = connection.await_end(stream)
        assert ended.code == REFUSED, ended
        assert "gateway.query.max_message" in ended.text


@pytest.mark.parametrize("of_our_secret", [True, False])
def test_nodes_are_known_by_their_header(secured, of_our_secret):
    seal = secured.seal if of_our_secret else secured.gateways_seal
    name, value = seal.node_header(SOON)
    with Connection(secured.uri_of(secured.workers[0])) as connection:
        stream = connection.begin("DoGet", (name, value))
        if of_our_secret:
            connection.send_all(stream, whole(ticket(bytes(MIB))))
            connection.finish(stream)
        ended = connection.await_end(stream)
        assert ended.code == (INVALID if of_our_secret else DENIED), ended


def test_a_client_whose_ticket_is_large_is_asked_who_it_is_and_served(secured):
    comment = "-" * 100_000
    with volary.connect(secured.gateway.uri, username="kea", password=PASSWORD) as connection:
        rows = connection.sql(f"SELECT murmur FROM {TABLE} WHERE k > 0 --{comment}", direct=True)
        assert {value for (value,) in rows.rows()} == {VALUE}


def test_who_is_known_uploads_as_much_at_once_as_ever(secured):
    message = whole(descriptor(bytes(3 * MIB)))
    for shown in (secured.create_token("kea", "uploads"), basic("kea", PASSWORD)):
        with Connection(secured.gateway.uri) as connection:
            stream = connection.begin("GetFlightInfo", ("authorization", shown))
            assert connection.send(stream, message) == len(message)
            connection.finish(stream)
            # The message was complete, but its content is invalid.
            assert connection.await_end(stream).code == INVALID


def parts_of(secured: Secured, query: str, authorization: str) -> list[flight.FlightEndpoint]:
    """Returns the parts of a result that a client fetches from the workers."""
    gateway = secured.node(secured.gateway.uri)

    def planned() -> list[flight.FlightEndpoint] | None:
        message = descriptor(query.encode())
        answer = gateway.call("GetFlightInfo", message, authorization=authorization, headers=DIRECT)
        assert answer.code == OK, answer
        parts = flight.FlightInfo.deserialize(answer.messages[0]).endpoints
        return parts if all(part.locations for part in parts) else None

    return until(planned, "all workers have reported")


def test_a_download_goes_on_beside_calls_of_strangers(secured):
    kea = secured.create_token("kea", "downloads")
    # The worker knows kea by the ticket, but knows no user of the connection.
    part = parts_of(secured, f"SELECT repeat({COLUMN}, 20000) FROM {TABLE} WHERE k > 0", kea)[0]
    secured.record_sealed("a direct ticket", part.ticket.ticket)
    with Connection(part.locations[0].uri.decode()) as connection:
        stuck = connection.begin("DoGet")
        connection.send(stuck, head(1000) + bytes(10))
        download = connection.begin("DoGet", ("authorization", kea))
        connection.send_all(download, whole(ticket(part.ticket.ticket)))
        connection.finish(download)
        # These are more bytes than a node reads ahead of the calls of a connection.
        for _ in range(2 * HELD // 17):
            connection.ping()
        assert connection.await_any_end([stuck, download]) == download
        assert connection.await_end(download).code == OK
        assert connection.await_end(download).received > MIB
        assert_does_not_go_on(connection.await_end(stuck))


def test_nothing_has_ended(secured):
    secured.assert_serves()
