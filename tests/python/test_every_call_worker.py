"""Makes every call of a worker, at its address for gateways and at its address for clients. It accepts only sealed
messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import protobuf as pb
import pytest
from credentials import SHORT_SESSIONS, STRANGERS, forget_failures, shown_by_strangers
from every_call import (
    DENIED,
    INVALID,
    REPOSITORY,
    UNAUTHENTICATED,
    UNIMPLEMENTED,
    Made,
    actions_in_the_code,
    methods_of,
)
from grpc import StatusCode
from node_messages import COMMANDS, NEVER, SOON, Addressee, control, introduction, part_of, write, written
from processes import Worker
from pyarrow import flight
from raw_flight import METHODS, OK, Answer, Node, action, basic, command, descriptor, faults, rows_of, ticket, upload
from seals import MAGIC, VERSION, Purpose, Seal, content
from secured import MARKERS, OTHER_SECRET, PASSWORD, QUERY, ROWS, TABLE, VALUE, Secured, secured_cluster
from wiretap import Wiretap, replay

pytestmark = pytest.mark.server

PORTS = ["for gateways", "for clients"]


@dataclass(frozen=True)
class Call:
    """One call, with its code at each address. The credentials do not matter."""

    method: str
    messages: list[bytes]
    for_gateways: StatusCode
    for_clients: StatusCode
    covers: str = ""
    """The action or command that this call tests."""

    def expected(self, port: str) -> StatusCode:
        return self.for_gateways if port == "for gateways" else self.for_clients


def calls_of(made: Made, to: Addressee) -> dict[str, Call]:
    """Returns all calls of a worker by name, except for those that serve clients."""
    stranger = Seal.of_secret(OTHER_SECRET)
    nowhere = (UNIMPLEMENTED, UNIMPLEMENTED)
    calls = {
        "ListFlights": Call("ListFlights", [b""], *nowhere),
        "ListActions": Call("ListActions", [b""], OK, UNIMPLEMENTED),
        "GetFlightInfo": Call("GetFlightInfo", [descriptor(QUERY.encode())], *nowhere),
        "GetFlightInfo of CommandGetTables": Call("GetFlightInfo", [command("CommandGetTables")], *nowhere),
        "PollFlightInfo": Call("PollFlightInfo", [descriptor(QUERY.encode())], *nowhere),
        "GetSchema": Call("GetSchema", [descriptor(QUERY.encode())], *nowhere),
        "DoExchange": Call("DoExchange", upload(descriptor(QUERY.encode())), *nowhere),
        "DoGet of nothing": Call("DoGet", [b""], INVALID, INVALID),
        "DoGet of SQL": Call("DoGet", [ticket(QUERY.encode())], INVALID, INVALID),
        "DoGet of a statement's ticket": Call("DoGet", [ticket(made.ticket)], DENIED, DENIED),
        "DoPut of nothing": Call("DoPut", upload(b""), INVALID, UNIMPLEMENTED),
        "DoPut of SQL": Call("DoPut", upload(descriptor(QUERY.encode())), INVALID, UNIMPLEMENTED),
        "DoPut of a handle": Call("DoPut", upload(descriptor(made.update_handle)), DENIED, UNIMPLEMENTED),
        "DoPut of another secret's": Call(
            "DoPut", written(stranger(Purpose.WRITE, write(to, 1), SOON)), DENIED, UNIMPLEMENTED
        ),
    }
    fragment = stranger(Purpose.FRAGMENT, part_of(content(made.parts[0].ticket.ticket)), SOON)
    calls["DoGet of another secret's fragment"] = Call("DoGet", [ticket(fragment)], DENIED, DENIED)
    for name in COMMANDS:
        sealed = stranger(Purpose.CONTROL, control(to, name, pb.field(1, 1)), SOON)
        for what, body, code in ((f"another secret's {name}", sealed, DENIED), (f"no {name}", b"", INVALID)):
            calls[f"DoAction of {what}"] = Call(
                "DoAction", [action("volary.control", body)], code, UNIMPLEMENTED, covers=name
            )
    for name in (
        "CreatePreparedStatement",
        "CancelFlightInfo",
        "volary.join",
        "volary.leave",
        "volary.check",
        "volary.introduce",
        "",
    ):
        calls[f"DoAction {name!r}"] = Call("DoAction", [action(name)], *nowhere, covers=name)
    return calls


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("every_call"), SHORT_SESSIONS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calls(secured: Secured, keas_tickets: Made) -> dict[str, Call]:
    return calls_of(keas_tickets, Addressee.of(secured.workers[0]))


@pytest.fixture(scope="module")
def internal(secured: Secured) -> Node:
    """The first worker, at its address for gateways."""
    return secured.node(secured.uri_of(secured.workers[0]))


@pytest.fixture(scope="module")
def endpoint(keas_tickets: Made, internal: Node, kea: str) -> flight.FlightEndpoint:
    """The endpoint whose rows are on the first worker."""
    (its,) = [it for it in keas_tickets.parts if fetch(internal, it.ticket.ticket, kea).code == OK]
    return its


@pytest.fixture(scope="module")
def part(endpoint: flight.FlightEndpoint) -> bytes:
    return endpoint.ticket.ticket


@pytest.fixture(scope="module")
def forged_part(secured: Secured, part: bytes) -> bytes:
    """A part that is sealed with the secret of the cluster's nodes. Gateways seal with another key for users."""
    return secured.seal.reseal(part)


@pytest.fixture(scope="module")
def nodes(keas_tickets: Made, internal: Node, endpoint: flight.FlightEndpoint) -> dict[str, Node]:
    """The first worker at both addresses, by who connects there."""
    return dict(zip(PORTS, (internal, keas_tickets.node_at(endpoint)), strict=True))


@pytest.fixture(scope="module")
def strangers(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return shown_by_strangers(secured, tmp_path_factory.mktemp("another_cluster"))


def fetch(node: Node, sealed: bytes, shown: str | None) -> Answer:
    return node.call("DoGet", ticket(sealed), authorization=shown)


def test_every_call_is_in_the_table(nodes, calls):
    methods = {call.method for call in calls.values()} | {"Handshake"}
    # The trait refuses the calls that a service does not implement.
    assert methods == set(METHODS) == methods_of("node/src/flight.rs")
    for port, service in zip(PORTS, ("worker/src/service.rs", "worker/src/clients/service.rs"), strict=True):
        served = {call.method for call in calls.values() if call.expected(port) != UNIMPLEMENTED}
        assert methods_of(service) == served | {"Handshake"}
    listed = nodes["for gateways"].call("ListActions", b"").messages
    assert [pb.fields(message)[1] for message in listed] == [b"volary.control"]
    of_nodes = {name for name in actions_in_the_code() if name.startswith("volary.")}
    assert of_nodes - {call.covers for call in calls.values()} == {"volary.control"}
    choices = (REPOSITORY / "flight-proto" / "src" / "control.rs").read_text().partition("enum Command {")[2]
    assert set(re.findall(r"^        (\w+)\(super::", choices, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("port", PORTS)
def test_the_user_of_a_ticket_is_served_and_nobody_else(secured, nodes, calls, part, kea, port):
    node = nodes[port]
    session = secured.log_in("kea")
    for shown in (kea, session, basic("kea", PASSWORD)):
        assert VALUE in str(rows_of(fetch(node, part, shown)))
    secured.administer(f"GRANT SELECT ON {TABLE} TO auk")
    found = []
    # The first user may read the table, and the second one may do everything.
    for who, shown in {
        "auk": secured.log_in("auk"),
        "the administrator": secured.create_token("admin", f"of_{port[4:]}"),
    }.items():
        found += faults(who, fetch(node, part, shown), DENIED, *MARKERS)
    secured.administer(f"REVOKE SELECT ON {TABLE} FROM auk", f"REVOKE SELECT ON {TABLE} FROM kea")
    try:
        found += faults("kea, who may not any more", fetch(node, part, kea), DENIED, VALUE)
    finally:
        secured.administer(f"GRANT SELECT ON {TABLE} TO kea")
    assert not found, "\n".join(found)
    assert fetch(node, part, kea).code == OK


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("port", PORTS)
def test_no_rows_go_to(secured, nodes, calls, strangers, part, forged_part, port, name):
    node, shown = nodes[port], strangers[name]
    if name == "a wrong password":
        forget_failures(secured)
    found = []
    for what, its in {"a part": part, "a forged part": forged_part}.items():
        found += faults(f"DoGet of {what}", fetch(node, its, shown), UNAUTHENTICATED, *MARKERS)
    greeted = node.call("Handshake", b"", authorization=shown)
    if shown is None:
        # A caller without credentials gets nothing and learns nothing.
        assert greeted.code == OK
        assert not any(greeted.messages)
    else:
        found += faults("Handshake", greeted, UNAUTHENTICATED)
    assert "authorization" not in greeted.headers
    for what, call in calls.items():
        answer = node.call(call.method, *call.messages, authorization=shown)
        found += faults(what, answer, call.expected(port), *MARKERS)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("port", PORTS)
def test_no_credentials_let_a_user_do_what_nodes_do(secured, nodes, calls, forged_part, kea, port):
    administrator = secured.create_token("admin", f"nodes_{port[4:]}")
    before, found = secured.rows(), []
    for who, shown in {"kea": kea, "the administrator": administrator}.items():
        found += faults(f"a forged part by {who}", fetch(nodes[port], forged_part, shown), DENIED, *MARKERS)
        for what, call in calls.items():
            answer = nodes[port].call(call.method, *call.messages, authorization=shown)
            found += faults(f"{what} by {who}", answer, call.expected(port), *MARKERS)
    assert not found, "\n".join(found)
    assert secured.rows() == before


def test_a_gateways_seal_is_taken_where_gateways_connect_to_and_nowhere_else(secured, nodes, part):
    to, seal = Addressee.of(secured.workers[0]), secured.seal
    sealed = {
        name: action("volary.control", seal(Purpose.CONTROL, control(to, name, pb.field(1, NEVER)), SOON))
        for name in ("ListSegments", "DropTable", "AbortWrite")
    }
    listed = nodes["for gateways"].call("DoAction", sealed["ListSegments"])
    assert listed.contains(".log"), listed
    for name, message in sealed.items():
        assert nodes["for gateways"].call("DoAction", message).code == OK, name
        refused = nodes["for clients"].call("DoAction", message)
        assert not list(faults(name, refused, UNIMPLEMENTED, ".log", ".parquet"))
    # Rows that a gateway asks for need no login.
    fragment = ticket(seal(Purpose.FRAGMENT, part_of(content(part)), SOON))
    assert nodes["for gateways"].call("DoGet", fragment).code == OK
    assert not list(faults("a fragment", nodes["for clients"].call("DoGet", fragment), DENIED, *MARKERS))


def test_what_workers_ask_of_clients_is_answered_to_workers_alone(secured, kea, part):
    """A caller who shows a gateway a client's login gets a session token for it."""
    gateway = secured.node(secured.gateway.uri)
    login = introduction(basic("kea", PASSWORD))
    for seal, code in ((secured.seal, OK), (Seal.of_secret(OTHER_SECRET), DENIED)):
        message = action("volary.introduce", seal(Purpose.INTRODUCTION, login, SOON))
        answer = gateway.call("DoAction", message, authorization=kea)
        assert not list(faults("introduce", answer, code))
        assert answer.contains("volary-bearer-") == (code == OK)


# Messages that were overheard


def test_a_write_that_was_overheard_and_is_sent_again_is_counted_once(tmp_path):
    with Secured(tmp_path) as cluster:
        tap = Wiretap()
        worker = Worker(cluster.directory, "worker1", cluster.settings, cluster.gateway.address, tap)
        cluster.workers.append(worker)
        worker.start()
        cluster.populate()
        assert cluster.rows() == ROWS
        (write_of_the_rows,) = [sent for sent in tap.heard() if bytes([*MAGIC, VERSION, Purpose.WRITE]) in sent]
        assert replay(tap.target, write_of_the_rows)
        assert cluster.rows() == ROWS
        assert cluster.administer(f"SELECT rows FROM system.tables WHERE name = '{TABLE}'") == [{"rows": ROWS}]


def test_nothing_has_ended_and_nothing_secret_was_said(secured, nodes):
    secured.assert_serves()
    secured.assert_nothing_secret_was_said()
