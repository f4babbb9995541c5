"""Tests gateways without the nodes' secret. No worker may join them, or believe what they say about a client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import protobuf as pb
import pytest
from every_call import Made
from processes import Process, until
from raw_flight import OK, Node, basic, ticket
from rogue_gateway import RogueGateway
from seals import Purpose, Seal, content
from secured import MARKERS, OTHER_SECRET, PASSWORD, SECRET, Secured, secured_cluster

pytestmark = pytest.mark.server

STRANGER = Seal.of_secret(OTHER_SECRET)
WITHOUT_SECRET = Seal.of_secret("")
"""The seal of nodes that have no secret."""
READY = "listening on grpc"


def soon() -> int:
    return int(time.time()) + 60


# Joining

A_CLUSTER = "00000000-0000-4000-8000-000000000000"
WELCOME = pb.field(1, 1) + pb.field(2, A_CLUSTER) + pb.field(3, bytes(32)) + pb.field(4, 1000)
"""The answer of a gateway that accepts a worker: the worker's number, the cluster, a key, and the heartbeat interval.
"""

WELCOMES: dict[str, Callable[[str, bytes], bytes | None]] = {
    "nothing": lambda _action, _body: None,
    "an empty message": lambda _action, _body: b"",
    "what is not sealed": lambda _action, _body: WELCOME,
    "what another secret has sealed": lambda _action, _body: STRANGER(Purpose.MEMBERSHIP, WELCOME, soon()),
    "what no secret has sealed": lambda _action, _body: WITHOUT_SECRET(Purpose.MEMBERSHIP, WELCOME, soon()),
    "what the worker has said": lambda _action, body: body,
}


@pytest.mark.parametrize("welcome", WELCOMES)
def test_a_worker_joins_no_gateway_without_the_secret(tmp_path: Path, welcome: str) -> None:
    data_dir = tmp_path / "data"
    with RogueGateway(WELCOMES[welcome]) as rogue:
        arguments = ["worker", "--listen=127.0.0.1:0", f"--gateway={rogue.address}", f"--data-dir={data_dir}"]
        worker = Process(tmp_path, "worker", arguments, {"VOLARY_SECRET": SECRET})
        try:
            # The worker logs the refusal, and ends or tries again.
            until(lambda: rogue.received and rogue.address in worker.log(), "the worker is not content with the answer")
            assert READY not in worker.output()
        finally:
            if worker.is_alive():
                worker.kill()
    assert {told.action for told in rogue.received} <= {"volary.join", "volary.leave"}
    assert not any(told.contains(SECRET) for told in rogue.received)
    identity = json.loads((data_dir / "volary.json").read_text())
    assert identity.get("worker_id") is None, identity
    assert identity.get("cluster_id") is None, identity


# Clients


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    # The gateway must ask the worker, and must not take it for lost before that.
    settings = {"VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "1h"}
    with secured_cluster(tmp_path_factory.mktemp("rogue"), settings) as cluster:
        yield cluster


@contextmanager
def in_place_of(secured: Secured, answer: Callable[[str, bytes], bytes | None]) -> Iterator[RogueGateway]:
    """Puts a rogue gateway in the place of the real one, which starts again afterwards."""
    secured.gateway.kill()
    try:
        with RogueGateway(answer, secured.gateway.address) as rogue:
            yield rogue
    finally:
        secured.gateway.start()


def introduced(part: bytes) -> bytes:
    """Returns the answer of a gateway that says that the ticket is kea's, with the ticket's content."""
    return pb.field(1, "Bearer volary-bearer-00") + pb.field(2, "kea") + pb.field(3, content(part))


ANSWERS: dict[str, Callable[[bytes], Callable[[str, bytes], bytes | None]]] = {
    "nothing": lambda _part: lambda _action, _body: None,
    "an empty message": lambda _part: lambda _action, _body: b"",
    "what is not sealed": lambda part: lambda _action, _body: introduced(part),
    "what another secret has sealed": lambda part: (
        lambda _action, _body: STRANGER(Purpose.INTRODUCTION, introduced(part), soon())
    ),
    "what no secret has sealed": lambda part: (
        lambda _action, _body: WITHOUT_SECRET(Purpose.INTRODUCTION, introduced(part), soon())
    ),
    "what the worker has said": lambda _part: lambda _action, body: body,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_worker_believes_no_gateway_without_the_secret_who_a_client_is(
    secured: Secured, keas_tickets: Made, kea: str, answer: str
) -> None:
    (worker, endpoint), part = _at_the_first_worker(secured, keas_tickets, kea)
    shown = basic("kea", PASSWORD)
    found = []
    with in_place_of(secured, ANSWERS[answer](part)) as rogue:
        for where, node in {"for gateways": worker, "for clients": endpoint}.items():
            for who, authorization in {"kea": shown, "a stranger": None, "a liar": basic("kea", "a lie")}.items():
                rows = node.call("DoGet", ticket(part), authorization=authorization)
                if rows.code == OK or any(rows.contains(marker) for marker in MARKERS):
                    found.append(f"{who} is served {where}: {rows}")
                greeted = node.call("Handshake", b"", authorization=authorization)
                # A caller without credentials learns nothing, and no gateway is asked about it.
                if "authorization" in greeted.headers or any(greeted.messages):
                    found.append(f"{who} is told a token {where}: {greeted}, {greeted.messages}, {greeted.headers}")
                if authorization is not None and greeted.code == OK:
                    found.append(f"{who} is let in {where}")
    asked = rogue.received_of("volary.introduce")
    assert asked
    # Without TLS, everybody who listens learns what a client shows. But nobody learns the secret.
    assert not any(told.contains(SECRET) for told in rogue.received)
    assert not found, "\n".join(found)
    until(lambda: worker.call("DoGet", ticket(part), authorization=shown).code == OK, "the gateway is there again")


def _at_the_first_worker(secured: Secured, keas_tickets: Made, kea: str) -> tuple[tuple[Node, Node], bytes]:
    """Returns connections to both addresses of the first worker, and kea's ticket for its rows."""
    worker = secured.node(secured.uri_of(secured.workers[0]))

    def its() -> list[tuple[bytes, Node]]:
        parts = [(it.ticket.ticket, keas_tickets.node_at(it)) for it in keas_tickets.parts]
        return [it for it in parts if worker.call("DoGet", ticket(it[0]), authorization=kea).code == OK]

    # A gateway that has just restarted may not be connected yet.
    ((part, clients),) = until(its, "the worker serves kea")
    return (worker, clients), part


def test_nothing_has_ended(secured: Secured) -> None:
    until(lambda: secured.rows() > 0, "the gateway has its workers again")
    secured.assert_serves()
