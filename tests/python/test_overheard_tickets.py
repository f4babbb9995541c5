"""Tests tickets that were overheard on a network without TLS or that were kept: who gets rows for them, where, and
until when.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import protobuf as pb
import pytest
from every_call import DENIED, UNAUTHENTICATED, Made
from grpc import StatusCode
from processes import Worker
from raw_flight import OK, Answer, Node, descriptor, faults, ticket
from seals import HEADER_BYTES, MAGIC, VERSION, Purpose, content
from secured import COLUMN, MARKERS, QUERY, VALUE, Secured
from wiretap import Wiretap, messages

pytestmark = pytest.mark.server

_EXPIRED = StatusCode.DEADLINE_EXCEEDED
_UNAVAILABLE = StatusCode.UNAVAILABLE
OF_FRAGMENTS = bytes([*MAGIC, VERSION, Purpose.FRAGMENT])
FRAGMENT_ITSELF = 5
"""The number of the ticket's field that contains the fragment."""
LONGEST_SECONDS = 71
"""Maximum lifetime of a fragment's ticket, in seconds. It is a minute, plus the times that these clusters wait for a
worker: `retry_for` and `idle_timeout`.
"""


@dataclass(frozen=True)
class Overheard:
    """A cluster of two workers. Somebody listens on the network between the gateway and the first worker."""

    cluster: Secured
    tap: Wiretap
    kea: str
    """The authorization header of kea, who may read the table."""

    @property
    def worker(self) -> Worker:
        return self.cluster.workers[0]

    def node(self) -> Node:
        """Returns a stranger's connection to the first worker."""
        return self.cluster.node(f"grpc://127.0.0.1:{self.tap.target}")

    def fragment(self) -> bytes:
        """Returns the ticket with which the gateway asked the first worker for its rows of kea's query."""
        gateway = self.cluster.node(self.cluster.gateway.uri)
        info = gateway.call("GetFlightInfo", descriptor(QUERY.encode()), authorization=self.kea)
        (endpoint,) = [pb.fields(info.messages[0])[3]]
        rows = gateway.call("DoGet", pb.fields(endpoint)[1], authorization=self.kea)
        assert rows.contains(VALUE), rows
        said = [pb.fields(message).get(1, b"") for sent in self.tap.heard() for message in messages(sent)]
        fragments = [it for it in said if it.startswith(OF_FRAGMENTS)]
        # The gateway sends the fragment once, and only its id to a worker that has it.
        whole = [it for it in fragments if FRAGMENT_ITSELF in pb.fields(content(it)) and COLUMN.encode() in it]
        self.cluster.record_sealed("an overheard ticket", whole[-1])
        return whole[-1]

    def shown(self, sealed: bytes, authorization: str | None = None) -> Answer:
        """Returns the first worker's answer to a caller who shows a ticket without a node's header."""
        with Node(f"grpc://127.0.0.1:{self.tap.target}") as node:
            return node.call("DoGet", ticket(sealed), authorization=authorization)


@pytest.fixture
def overheard(tmp_path: Path) -> Iterator[Overheard]:
    with Secured(tmp_path) as cluster:
        tap = Wiretap()
        worker = Worker(cluster.directory, "worker1", cluster.settings, cluster.gateway.address, tap)
        cluster.workers.append(worker)
        worker.start()
        cluster.add_worker()
        cluster.populate()
        yield Overheard(cluster, tap, cluster.create_token("kea", "of_kea"))


def expiry_of(sealed: bytes) -> int:
    """Returns the expiry time of a sealed message, in seconds since 1970."""
    return int.from_bytes(sealed[4:HEADER_BYTES], "big")


def test_who_has_overheard_a_fragments_ticket_asks_for_its_rows_until_its_time_is_over(overheard):
    """The documentation says this about networks without TLS."""
    asked = int(time.time())
    fragment = overheard.fragment()
    for _ in range(2):
        assert overheard.shown(fragment).contains(VALUE)
    assert asked < expiry_of(fragment) <= int(time.time()) + LONGEST_SECONDS
    late = overheard.cluster.seal.reseal(fragment, expiry_s=int(time.time()) - 1)
    assert not list(faults("a ticket whose time is over", overheard.shown(late), _EXPIRED, *MARKERS))


def test_who_has_overheard_a_fragments_ticket_makes_no_other_one_of_it(overheard):
    fragment = overheard.fragment()
    longer = fragment[:4] + (expiry_of(fragment) + 3600).to_bytes(8, "big") + fragment[HEADER_BYTES:]
    found = list(faults("one that lasts longer", overheard.shown(longer), DENIED, *MARKERS))
    for purpose in Purpose:
        if purpose != Purpose.FRAGMENT:
            of_another_kind = fragment[:3] + bytes([purpose]) + fragment[4:]
            found += faults(f"for {purpose!r}", overheard.shown(of_another_kind, overheard.kea), DENIED, *MARKERS)
    assert not found, "\n".join(found)


def test_a_fragments_ticket_is_nothing_at_other_nodes(overheard):
    cluster, fragment = overheard.cluster, overheard.fragment()
    with Node(cluster.uri_of(cluster.workers[1])) as other, Node(cluster.gateway.uri) as gateway:
        found = list(faults("another worker", other.call("DoGet", ticket(fragment)), _UNAVAILABLE, *MARKERS))
        for who, shown, code in (("a stranger", None, UNAUTHENTICATED), ("kea", overheard.kea, DENIED)):
            answer = gateway.call("DoGet", ticket(fragment), authorization=shown)
            found += faults(f"{who} at the gateway", answer, code, *MARKERS)
    assert not found, "\n".join(found)


def test_a_fragments_ticket_lasts_until_its_time_is_over_also_when_its_worker_starts_again(overheard):
    """The ticket names a worker and its rows, which are unchanged. Only tickets that change rows are for one start of a
    worker.
    """
    fragment = overheard.fragment()
    overheard.worker.running().stop()
    overheard.worker.start()
    assert overheard.shown(fragment).contains(VALUE)
    late = overheard.cluster.seal.reseal(fragment, expiry_s=int(time.time()) - 1)
    assert not list(faults("a ticket whose time is over", overheard.shown(late), _EXPIRED, *MARKERS))
    overheard.cluster.assert_serves()


def test_a_clients_ticket_is_its_users_alone_also_when_its_worker_starts_again(overheard):
    cluster = overheard.cluster
    made = Made(cluster, overheard.kea)
    (part,) = [
        it.ticket.ticket for it in made.parts if overheard.shown(it.ticket.ticket, overheard.kea).contains(VALUE)
    ]
    auk = cluster.create_token("auk", "of_auk")
    overheard.worker.running().stop()
    overheard.worker.start()
    # The worker's address for clients has another port now, which its report names.
    clients = [made.node_at(endpoint) for endpoint in Made(cluster, overheard.kea).parts]
    at_clients = [node for node in clients if node.call("DoGet", ticket(part), authorization=overheard.kea).code == OK]
    assert len(at_clients) == 1
    nodes = {"the worker": overheard.node(), "its address for clients": at_clients[0]}
    found = []
    for where, node in {**nodes, "the gateway": cluster.node(cluster.gateway.uri)}.items():
        assert node.call("DoGet", ticket(part), authorization=overheard.kea).contains(VALUE), where
        found += faults(f"auk at {where}", node.call("DoGet", ticket(part), authorization=auk), DENIED, *MARKERS)
        found += faults(f"a stranger at {where}", node.call("DoGet", ticket(part)), UNAUTHENTICATED, *MARKERS)
    forged = cluster.seal.reseal(part)
    for where, node in nodes.items():
        answer = node.call("DoGet", ticket(forged), authorization=overheard.kea)
        found += faults(f"a forged one at {where}", answer, DENIED, *MARKERS)
    late = cluster.gateways_seal.reseal(part, expiry_s=int(time.time()) - 1)
    for where, node in nodes.items():
        answer = node.call("DoGet", ticket(late), authorization=overheard.kea)
        found += faults(f"one whose time is over at {where}", answer, _EXPIRED, *MARKERS)
    assert not found, "\n".join(found)
