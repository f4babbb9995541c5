"""Shows sealed messages that are altered, cut, expired, for another user, at the wrong place, or shown again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import protobuf as pb
import pytest
from every_call import DENIED, INVALID, UNIMPLEMENTED, Made, ticket_of
from grpc import StatusCode
from node_messages import SOON, Addressee, control, introduction, join, leave, part_of, write, written
from pyarrow import flight
from raw_flight import OK, Answer, Node, action, command, descriptor, faults, rows_of, ticket, upload
from seals import HEADER_BYTES, MAC_BYTES, MAGIC, VERSION, Purpose, Seal, content
from secured import INSERT, MARKERS, OTHER_SECRET, QUERY, TABLE, Secured, secured_cluster

pytestmark = pytest.mark.server

_NOT_FOUND = StatusCode.NOT_FOUND
_EXPIRED = StatusCode.DEADLINE_EXCEEDED
_UNAVAILABLE = StatusCode.UNAVAILABLE


@dataclass(frozen=True)
class Place:
    """A place where a sealed message is shown: a node and a call."""

    node: Node
    method: str
    around: Callable[[bytes], bytes]
    """Builds the first message of the call. A refusal comes as the answer to this message."""
    genuine: bytes
    shown_by: str | None = None
    """The credentials of the user that the sealed message is for. None if a node shows it."""
    purposes: tuple[Purpose, ...] = ()
    """The purposes that are accepted at this place."""
    genuine_code: StatusCode = OK
    seal: Seal | None = None
    """The seal of whoever makes the sealed message."""
    headers: tuple[tuple[str, str], ...] = ()

    def call_each(self, sealed: Iterator[bytes], shown_by: str | None = None) -> Iterator[Answer]:
        messages = map(self.around, sealed)
        return self.node.call_each(self.method, messages, shown_by or self.shown_by, self.headers)

    def call(self, sealed: bytes) -> Answer:
        return self.node.call(self.method, self.around(sealed), authorization=self.shown_by, headers=self.headers)


NAMES = [
    "a statement's ticket",
    "a ticket of metadata",
    "a ticket of an outcome",
    "a part's ticket at the gateway",
    "a part's ticket at its worker",
    "a part's ticket at its worker's address for clients",
    "a handle of GetFlightInfo",
    "a handle of GetSchema",
    "a handle of PollFlightInfo",
    "a handle to bind to",
    "a handle of an update",
    "the ticket within what is polled once more",
    "the ticket of CancelFlightInfo",
    "the ticket of CancelQuery",
    "the ticket of RenewFlightEndpoint",
    "a fragment's ticket at a worker",
    "a write's descriptor at a worker",
    "a command to a worker",
    "a worker that joins",
    "a worker that leaves",
    "a client's introduction",
]
OF_USERS = NAMES[:15]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("every_ticket")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateway(secured: Secured) -> Node:
    return secured.node(secured.gateway.uri)


@pytest.fixture(scope="module")
def internal(secured: Secured) -> list[Node]:
    """The workers, at their addresses for gateways."""
    return [secured.node(secured.uri_of(worker)) for worker in secured.workers]


@pytest.fixture(scope="module")
def auk(secured: Secured) -> str:
    """Another user, who may read and write the same table."""
    secured.administer(f"GRANT SELECT, INSERT ON {TABLE} TO auk")
    return secured.create_token("auk", "of_auk")


@pytest.fixture(scope="module")
def parts(keas_tickets: Made, internal: list[Node], kea: str) -> list[tuple[bytes, Node]]:
    """The part of each worker, in the order of the workers, with the worker's connection for clients."""
    found: list[tuple[bytes, Node]] = []
    for node in internal:
        for part in keas_tickets.parts:
            if node.call("DoGet", ticket(part.ticket.ticket), authorization=kea).code == OK:
                found.append((part.ticket.ticket, keas_tickets.node_at(part)))
    assert len(found) == len(internal) == 2
    return found


@pytest.fixture(scope="module")
def places(
    secured: Secured, gateway: Node, internal: list[Node], kea: str, keas_tickets: Made, parts: list[tuple[bytes, Node]]
) -> dict[str, Place]:
    seal, first = secured.seal, Addressee.of(secured.workers[0])
    (part, clients), _ = parts
    rows = (Purpose.QUERY, Purpose.DIRECT)
    handle = (Purpose.PREPARED_STATEMENT,)
    outcome = ticket_of(keas_tickets.flight_info(command("CommandStatementQuery", pb.field(1, INSERT))))
    metadata = keas_tickets.metadata_ticket("CommandGetTables", b"")

    def handle_of(name: str) -> Callable[[bytes], bytes]:
        return lambda sealed: command(name, pb.field(1, sealed))

    def upload_of(name: str) -> Callable[[bytes], bytes]:
        return lambda sealed: upload(command(name, pb.field(1, sealed)))[0]

    def info_of(sealed: bytes) -> bytes:
        return pb.field(3, endpoint_of(sealed))

    def endpoint_of(sealed: bytes) -> bytes:
        return pb.field(1, ticket(sealed))

    def cancel_query(sealed: bytes) -> bytes:
        return action("CancelQuery", pb.command("ActionCancelQueryRequest", pb.field(1, info_of(sealed))))

    query = "CommandPreparedStatementQuery"
    update = "CommandPreparedStatementUpdate"
    continued = "type.googleapis.com/volary.PollQuery"
    of_kea = {
        NAMES[0]: Place(gateway, "DoGet", ticket, keas_tickets.ticket, kea, rows),
        NAMES[1]: Place(gateway, "DoGet", ticket, metadata, kea, rows),
        NAMES[2]: Place(gateway, "DoGet", ticket, outcome, kea, rows),
        NAMES[3]: Place(gateway, "DoGet", ticket, part, kea, rows),
        NAMES[4]: Place(internal[0], "DoGet", ticket, part, kea, (Purpose.FRAGMENT, Purpose.DIRECT)),
        NAMES[5]: Place(clients, "DoGet", ticket, part, kea, (Purpose.DIRECT,)),
        NAMES[6]: Place(gateway, "GetFlightInfo", handle_of(query), keas_tickets.handle, kea, handle),
        NAMES[7]: Place(gateway, "GetSchema", handle_of(query), keas_tickets.handle, kea, handle),
        NAMES[8]: Place(gateway, "PollFlightInfo", handle_of(query), keas_tickets.handle, kea, handle),
        NAMES[9]: Place(gateway, "DoPut", upload_of(query), keas_tickets.handle, kea, handle),
        NAMES[10]: Place(gateway, "DoPut", upload_of(update), keas_tickets.update_handle, kea, handle),
        NAMES[11]: Place(
            gateway,
            "PollFlightInfo",
            lambda sealed: descriptor(pb.field(1, continued) + pb.field(2, pb.field(1, info_of(sealed)))),
            keas_tickets.ticket,
            kea,
            rows,
        ),
        # A part of a query cannot be cancelled, so the ticket of a part can be shown any number of times.
        NAMES[12]: Place(
            gateway,
            "DoAction",
            lambda sealed: action("CancelFlightInfo", pb.field(1, info_of(sealed))),
            part,
            kea,
            rows,
        ),
        NAMES[13]: Place(gateway, "DoAction", cancel_query, part, kea, rows),
        NAMES[14]: Place(
            gateway,
            "DoAction",
            lambda sealed: action("RenewFlightEndpoint", pb.field(1, endpoint_of(sealed))),
            keas_tickets.ticket,
            kea,
            rows,
        ),
    }
    assert list(of_kea) == OF_USERS

    def action_of(name: str) -> Callable[[bytes], bytes]:
        return lambda sealed: action(name, sealed)

    membership = (Purpose.MEMBERSHIP,)
    fragment = seal(Purpose.FRAGMENT, part_of(content(part)), SOON)
    of_nodes = {
        NAMES[15]: Place(internal[0], "DoGet", ticket, fragment, None, (Purpose.FRAGMENT, Purpose.DIRECT)),
        # The seal is accepted, but the write is for an earlier start of the worker.
        NAMES[16]: Place(
            internal[0],
            "DoPut",
            lambda sealed: written(sealed)[0],
            seal(Purpose.WRITE, write(first, 1), SOON),
            None,
            (Purpose.WRITE,),
            _UNAVAILABLE,
        ),
        NAMES[17]: Place(
            internal[0],
            "DoAction",
            action_of("volary.control"),
            seal(Purpose.CONTROL, control(first, "ListSegments"), SOON),
            None,
            (Purpose.CONTROL,),
        ),
        # The seal is accepted, but the content is invalid.
        NAMES[18]: Place(
            gateway,
            "DoAction",
            action_of("volary.join"),
            seal(Purpose.MEMBERSHIP, join("no id"), SOON),
            None,
            membership,
            INVALID,
        ),
        NAMES[19]: Place(
            gateway,
            "DoAction",
            action_of("volary.leave"),
            seal(Purpose.MEMBERSHIP, leave(first.worker), SOON),
            None,
            membership,
        ),
        NAMES[20]: Place(
            gateway,
            "DoAction",
            action_of("volary.introduce"),
            seal(Purpose.INTRODUCTION, introduction(kea, part), SOON),
            None,
            (Purpose.INTRODUCTION,),
        ),
    }
    for name, place in of_nodes.items():
        secured.record_sealed(name, place.genuine)
    # The header of a node is needed, because other callers may not send as much data as the tests of nonsense do.
    headers = (seal.node_header(SOON),)
    return {
        **{name: replace(place, seal=secured.gateways_seal) for name, place in of_kea.items()},
        **{name: replace(place, seal=seal, headers=headers) for name, place in of_nodes.items()},
    }


def code_of(sealed: bytes) -> StatusCode:
    """Returns the code of the refusal of bytes that no node has sealed. It depends on what is wrong with the first
    bytes.
    """
    if len(sealed) < HEADER_BYTES + MAC_BYTES or sealed[:2] != MAGIC or sealed[2] != VERSION:
        return INVALID
    return DENIED


def assert_all_refused(
    place: Place, damaged: dict[str, bytes], shown_by: str | None = None, code: StatusCode | None = None
) -> None:
    """Checks that all these messages are refused, without rows and names in the answers, and that the genuine one is
    accepted.
    """
    found = []
    for (what, sealed), answer in zip(damaged.items(), place.call_each(iter(damaged.values()), shown_by), strict=True):
        found += faults(what, answer, code or code_of(sealed), *MARKERS)
    assert not found, "\n".join(found)
    taken = place.call(place.genuine)
    assert taken.code == place.genuine_code, taken


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    return places[request.param]


def test_the_tests_seal_as_nodes_do(secured, keas_tickets, parts):
    for genuine in (keas_tickets.ticket, keas_tickets.handle, parts[0][0]):
        assert secured.gateways_seal.reseal(genuine) == genuine


def test_what_is_altered_by_one_bit_in_any_byte_is_refused(place):
    def flipped(at: int) -> bytes:
        changed = bytearray(place.genuine)
        changed[at] ^= 1 << at % 8
        return bytes(changed)

    assert_all_refused(place, {f"byte {at}": flipped(at) for at in range(len(place.genuine))})


def test_what_is_cut_short_or_longer_is_refused(place):
    whole = len(place.genuine)
    lengths = [*range(min(64, whole)), *(whole - less for less in (1, MAC_BYTES, MAC_BYTES + 1) if whole - less >= 64)]
    longer = {"a byte longer": place.genuine + b"\0", "twice": place.genuine * 2}
    assert_all_refused(place, {f"{length} bytes": place.genuine[:length] for length in lengths} | longer)


def test_nonsense_is_refused(place):
    random_bytes = random.Random(4711).randbytes
    purpose = bytes([place.genuine[3]])
    nonsense = {
        "nothing": b"",
        "zeros": bytes(1 << 20),
        "random bytes": random_bytes(1000),
        "random bytes after a head": MAGIC + bytes([VERSION]) + purpose + random_bytes(1000),
        "SQL": QUERY.encode(),
        "a head alone": place.genuine[:HEADER_BYTES] + place.genuine[-MAC_BYTES:],
    }
    assert_all_refused(place, nonsense)


def test_what_another_secret_has_sealed_is_refused(place):
    assert_all_refused(place, {"of another secret": Seal.of_secret(OTHER_SECRET).reseal(place.genuine)})


@pytest.mark.parametrize("name", OF_USERS)
def test_what_nodes_could_seal_is_refused_of_users(secured, places, name):
    """Workers have the nodes' secret. Nobody who has this secret may be able to make a user's ticket with it."""
    place = places[name]
    assert_all_refused(place, {"as a node seals": secured.seal.reseal(place.genuine)}, code=DENIED)


def test_what_has_expired_is_refused(place):
    now = int(time.time())
    late = {f"{age} s ago": place.seal.reseal(place.genuine, expiry_s=now - age) for age in (5, 3600, now)}
    assert_all_refused(place, late, code=_EXPIRED)


def test_what_is_for_another_purpose_is_refused(place):
    others = {
        f"for {purpose!r}": place.seal.reseal(place.genuine, purpose=purpose)
        for purpose in [*Purpose, 0, 15, 255]
        if purpose not in place.purposes
    }
    assert len(others) >= 8
    assert_all_refused(place, others, code=DENIED)


@pytest.mark.parametrize("name", OF_USERS)
def test_what_is_for_another_user_is_refused(places, auk, name):
    place = places[name]
    assert_all_refused(place, {"as it is": place.genuine}, shown_by=auk, code=DENIED)


def test_what_is_sealed_for_one_user_by_a_name_that_is_none_is_refused(secured, places, kea):
    """The ticket is from before the cluster had users, and therefore names no user."""
    place = places["a statement's ticket"]
    user = pb.field(10, "kea")
    said = content(place.genuine)
    assert said.count(user) == 1
    assert_all_refused(place, {"without a user": place.seal(Purpose.QUERY, said.replace(user, b""), SOON)}, code=DENIED)


# Sealed messages at the wrong place


def test_a_ticket_of_the_gateways_is_nothing_at_a_worker(internal, parts, keas_tickets, kea):
    for node in (*internal, *(clients for _, clients in parts)):
        for sealed in (keas_tickets.ticket, keas_tickets.handle):
            answer = node.call("DoGet", ticket(sealed), authorization=kea)
            assert not list(faults("a ticket", answer, DENIED, *MARKERS))


def test_what_is_for_one_worker_is_nothing_at_another_one_nor_in_another_cluster(secured, internal, parts, kea):
    first = Addressee.of(secured.workers[0])
    elsewhere = Addressee(first.worker, "00000000-0000-4000-8000-000000000000")
    (part, _), (_, others_clients) = parts
    fragment = secured.seal(Purpose.FRAGMENT, part_of(content(part)), SOON)
    found = []
    for node in (internal[1], others_clients):
        found += faults("a part", node.call("DoGet", ticket(part), authorization=kea), _UNAVAILABLE, *MARKERS)
    found += faults("a fragment", internal[1].call("DoGet", ticket(fragment)), _UNAVAILABLE, *MARKERS)
    for to, node in ((first, internal[1]), (elsewhere, internal[0])):
        command_ = action("volary.control", secured.seal(Purpose.CONTROL, control(to, "ListSegments"), SOON))
        found += faults(f"a command to {to}", node.call("DoAction", command_), _UNAVAILABLE, *MARKERS)
        rows = written(secured.seal(Purpose.WRITE, write(to, 1), SOON))
        found += faults(f"a write to {to}", node.call("DoPut", *rows), _UNAVAILABLE, *MARKERS)
    assert not found, "\n".join(found)


def test_what_nodes_say_to_each_other_is_nothing_at_the_address_for_clients(places, parts):
    (_, clients), _ = parts
    fragment = places["a fragment's ticket at a worker"]
    assert clients.call(fragment.method, fragment.around(fragment.genuine)).code == DENIED
    for name in ("a write's descriptor at a worker", "a command to a worker"):
        place = places[name]
        assert clients.call(place.method, place.around(place.genuine)).code == UNIMPLEMENTED


# Sealed messages that are shown again


@pytest.mark.parametrize("name", NAMES[:6])
def test_rows_are_read_as_often_as_their_ticket_is_shown(places, name):
    place = places[name]

    def read() -> list[dict[str, Any]]:
        answer = place.call(place.genuine)
        return sorted(rows_of(answer).to_pylist(), key=str)

    first = read()
    assert first
    for _ in range(2):
        assert read() == first


def test_a_statement_that_writes_is_run_once_however_often_its_rows_are_asked_for(secured, gateway, keas_tickets, kea):
    before = secured.rows()
    for method in ("GetFlightInfo", "PollFlightInfo"):
        answer = gateway.call(method, descriptor(INSERT.encode()), authorization=kea)
        assert answer.code == OK, answer
        info = answer.messages[0] if method == "GetFlightInfo" else pb.fields(answer.messages[0])[1]
        again = pb.field(1, "type.googleapis.com/volary.PollQuery") + pb.field(2, pb.field(1, info))
        for _ in range(2):
            assert gateway.call("DoGet", ticket(ticket_of(info)), authorization=kea).code == OK
            assert gateway.call("PollFlightInfo", descriptor(again), authorization=kea).code == OK
        # The statement has ended, so there is nothing left to cancel.
        cancelled = gateway.call("DoAction", action("CancelFlightInfo", pb.field(1, info)), authorization=kea)
        assert cancelled.code == OK, cancelled
        before += 1
        assert secured.rows() == before, method


def test_a_ticket_that_was_renewed_is_its_users_alone(secured, gateway, keas_tickets, kea, auk):
    (endpoint,) = flight.FlightInfo.deserialize(keas_tickets.info).endpoints
    renewed = gateway.call(
        "DoAction", action("RenewFlightEndpoint", pb.field(1, endpoint.serialize())), authorization=kea
    )
    assert renewed.code == OK, renewed
    sealed = pb.fields(pb.fields(pb.fields(renewed.messages[0])[1])[1])[1]
    keas_tickets.record("a renewed ticket", sealed)
    assert sealed[HEADER_BYTES:-MAC_BYTES] == content(keas_tickets.ticket)
    assert gateway.call("DoGet", ticket(sealed), authorization=kea).code == OK
    assert not list(faults("another user", gateway.call("DoGet", ticket(sealed), authorization=auk), DENIED, *MARKERS))


# Unsealed parts of messages


@pytest.mark.parametrize(
    "around", ["CancelFlightInfo", "CancelQuery", "RenewFlightEndpoint", "GetFlightInfo", "PollFlightInfo"]
)
def test_a_message_altered_by_one_bit_in_any_byte_crashes_nothing(gateway, keas_tickets, kea, around):
    cancel = pb.field(1, keas_tickets.part_info)
    genuine, method, wrap = {
        "CancelFlightInfo": (cancel, "DoAction", lambda body: action("CancelFlightInfo", body)),
        "CancelQuery": (
            pb.command("ActionCancelQueryRequest", cancel),
            "DoAction",
            lambda body: action("CancelQuery", body),
        ),
        "RenewFlightEndpoint": (
            pb.field(1, keas_tickets.parts[0].serialize()),
            "DoAction",
            lambda body: action("RenewFlightEndpoint", body),
        ),
        "GetFlightInfo": (
            pb.command("CommandPreparedStatementQuery", pb.field(1, keas_tickets.handle)),
            "GetFlightInfo",
            descriptor,
        ),
        "PollFlightInfo": (keas_tickets.continuation(), "PollFlightInfo", descriptor),
    }[around]
    assert gateway.call(method, wrap(genuine), authorization=kea).code == OK

    def altered() -> Iterator[bytes]:
        for at in range(len(genuine)):
            changed = bytearray(genuine)
            changed[at] ^= 1 << at % 8
            yield wrap(bytes(changed))

    # A change of an unsealed part may only change the message, for example to another location.
    expected = {OK, INVALID, DENIED, UNIMPLEMENTED, _NOT_FOUND}
    answers = list(gateway.call_each(method, altered(), kea))
    found = [f"byte {at}: {answer}" for at, answer in enumerate(answers) if answer.code not in expected]
    assert not found, "\n".join(found)
    assert {INVALID, DENIED} & {answer.code for answer in answers}


def test_nothing_has_ended_and_nothing_secret_was_said(secured, places):
    secured.assert_serves()
    secured.assert_nothing_secret_was_said()
