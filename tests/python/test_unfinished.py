"""Messages of which only a part comes: how much they take, of whom, and how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from every_call import DENIED, INVALID, UNAUTHENTICATED
from grpc import StatusCode
from node_messages import SOON
from processes import until
from raw_flight import descriptor, ticket
from raw_http2 import Connection, Ended, head
from secured import PASSWORD, TABLE, VALUE, Secured, secured_cluster

import volary

pytestmark = pytest.mark.server

MIB = 1 << 20
MAX_UNFINISHED = 8 * MIB
LARGE = 200 * MIB
CONNECTIONS, CALLS = 12, 4


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {"VOLARY_GATEWAY__QUERY__MAX_UNFINISHED": str(MAX_UNFINISHED)}
    with secured_cluster(tmp_path_factory.mktemp("unfinished"), settings) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["a gateway", "a worker"])
def node(request: pytest.FixtureRequest, secured: Secured):
    """A node, its address, and a call that whoever knows nobody can begin there."""
    if request.param == "a gateway":
        return secured.gateway, secured.gateway.uri, "DoAction"
    worker = secured.workers[0]
    return worker, secured.uri_of(worker), "DoGet"


def test_strangers_make_a_node_hold_next_to_nothing(secured, node):
    process, uri, method = node[0].running(), node[1], node[2]
    before = process.memory_bytes()
    connections = [Connection(uri) for _ in range(CONNECTIONS)]
    ended = []
    for connection in connections:
        streams = [connection.begin(method) for _ in range(CALLS)]
        for stream in streams:
            connection.send_all(stream, head(LARGE) + bytes(4 * MIB))
        ended += [connection.ended(stream) for stream in streams]
    # What is refused is let go: what the windows let through at once is all that there was.
    assert process.peak_memory_bytes() - before < CONNECTIONS * CALLS * MIB
    assert {it.code for it in ended} == {UNAUTHENTICATED}, {it.text for it in ended}
    for connection in connections:
        connection.__exit__()
    secured.assert_serves()


def test_what_a_stranger_begins_and_does_not_go_on_with_is_ended(node):
    _, uri, method = node
    with Connection(uri) as connection:
        stream = connection.begin(method)
        connection.send(stream, head(1000) + bytes(10))
        assert_does_not_go_on(connection.ended(stream))


def test_what_a_user_begins_and_does_not_go_on_with_is_ended(secured):
    kea = secured.token("kea", "slow")
    with Connection(secured.gateway.uri) as connection:
        slow = connection.begin("GetFlightInfo", ("authorization", kea))
        connection.send(slow, head(LARGE) + bytes(10_000))
        # Another one of the same connection's is not held up.
        other = connection.begin("ListActions", ("authorization", kea))
        connection.send_all(other, head(0))
        connection.finish(other)
        assert connection.ended(other).code == StatusCode.OK
        assert_does_not_go_on(connection.ended(slow))


def assert_does_not_go_on(ended: Ended) -> None:
    assert ended.code == StatusCode.DEADLINE_EXCEEDED, ended
    assert "does not go on" in ended.text


def whole(message: bytes) -> bytes:
    return head(len(message)) + message


def test_messages_of_one_user_have_half_of_the_memory_for_all(secured):
    kea, auk = secured.token("kea", "of_kea"), secured.token("auk", "of_auk")
    message = whole(descriptor(bytes(3 * MIB)))
    part, rest = message[: 2 * MIB + MIB // 2], message[2 * MIB + MIB // 2 :]
    with Connection(secured.gateway.uri) as connection:
        of_kea = [connection.begin("GetFlightInfo", ("authorization", kea)) for _ in range(2)]
        for stream in of_kea:
            connection.send_all(stream, part)
        refused = connection.any_ended(of_kea)
        (taken,) = set(of_kea) - {refused}
        in_use = "SELECT in_use FROM system.limits WHERE name = 'messages that are not whole' AND scope = 'node'"
        until(lambda: secured.administer(in_use)[0]["in_use"] == len(part), "it is listed what has come")
        ended = connection.ended(refused)
        assert ended.code == StatusCode.RESOURCE_EXHAUSTED, ended
        assert "messages of this sender that are not whole yet" in ended.text
        assert "gateway.query.max_unfinished" in ended.text
        with Connection(secured.gateway.uri) as of_auk:
            others = of_auk.begin("GetFlightInfo", ("authorization", auk))
            of_auk.send_all(others, part)
            for whose, stream in ((of_auk, others), (connection, taken)):
                whose.send_all(stream, rest)
                whose.finish(stream)
                # It was whole: what it says is wrong.
                assert whose.ended(stream).code == INVALID


def test_a_message_whose_length_is_not_taken_is_refused_by_its_length(secured):
    kea = secured.token("kea", "too_large")
    with Connection(secured.gateway.uri) as connection:
        stream = connection.begin("GetFlightInfo", ("authorization", kea))
        connection.send(stream, head(257 * MIB))
        ended = connection.ended(stream)
        assert ended.code == StatusCode.RESOURCE_EXHAUSTED, ended
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
        ended = connection.ended(stream)
        assert ended.code == (INVALID if of_our_secret else DENIED), ended


def test_a_client_whose_ticket_is_large_is_asked_who_it_is_and_served(secured):
    comment = "-" * 100_000
    with volary.connect(secured.gateway.uri, username="kea", password=PASSWORD) as connection:
        rows = connection.sql(f"SELECT murmur FROM {TABLE} WHERE k > 0 --{comment}", direct=True)
        assert {value for (value,) in rows.rows()} == {VALUE}


def test_nothing_has_ended(secured):
    secured.assert_serves()
