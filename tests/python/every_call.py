"""All calls of a gateway, with the codes of the answers to several kinds of callers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import protobuf as pb
import pyarrow as pa
from grpc import StatusCode
from key_stream import lookup_command
from processes import until
from pyarrow import flight
from raw_flight import OK, Node, action, command, descriptor, path, ticket, upload
from seals import Purpose, Seal
from secured import COLUMN, INSERT, OTHER_SECRET, QUERY, TABLE, VALUE, Secured

UNAUTHENTICATED = StatusCode.UNAUTHENTICATED
DENIED = StatusCode.PERMISSION_DENIED
INVALID = StatusCode.INVALID_ARGUMENT
UNIMPLEMENTED = StatusCode.UNIMPLEMENTED

DIRECT = (("volary-direct-results", "on"),)
"""The header of a client that fetches rows from the workers."""

REPOSITORY = Path(__file__).resolve().parents[2]

METADATA = {
    "CommandGetCatalogs": b"",
    "CommandGetDbSchemas": b"",
    "CommandGetTables": b"",
    "CommandGetTableTypes": b"",
    "CommandGetSqlInfo": b"",
    "CommandGetXdbcTypeInfo": b"",
    "CommandGetPrimaryKeys": pb.field(3, TABLE),
    "CommandGetExportedKeys": pb.field(3, TABLE),
    "CommandGetImportedKeys": pb.field(3, TABLE),
    "CommandGetCrossReference": pb.field(3, TABLE) + pb.field(6, TABLE),
}
"""The commands whose rows describe tables and types, each with the content of a message."""


@dataclass(frozen=True)
class Call:
    """One call, and the codes that it ends with for each kind of caller."""

    method: str
    messages: list[bytes]
    owner: StatusCode = OK
    """The code for the user for whom the call was made, who may read the table."""
    other: StatusCode = OK
    """The code for another user, who may not read the table."""
    revoked: StatusCode = OK
    """The code for the user for whom the call was made, after the user's rights were revoked."""
    stranger: StatusCode = UNAUTHENTICATED
    """The code for wrong credentials."""
    shows: str = ""
    """A text that is in the owner's answer and that must be in no other answer."""
    headers: tuple[tuple[str, str], ...] = ()
    covers: tuple[str, ...] = ()
    """The commands and actions that this call tests."""

    def sends(self, marker: str) -> bool:
        """Returns whether the marker is in the messages that are sent."""
        return any(marker.encode() in message for message in self.messages)


class Made:
    """What a gateway has made for the user who shows `authorization`: tickets, handles and FlightInfos."""

    def __init__(self, cluster: Secured, authorization: str) -> None:
        self._cluster = cluster
        self._authorization = authorization
        self._gateway = cluster.node(cluster.gateway.uri)
        self.info = self.flight_info(descriptor(QUERY.encode()))
        self.ticket = self.record("a ticket", ticket_of(self.info))
        self.handle = self.record("a handle", self.prepared(QUERY))
        self.update_handle = self.record("a handle of an update", self.prepared(INSERT))
        self.part_info = self._direct()
        self.parts = flight.FlightInfo.deserialize(self.part_info).endpoints
        for part in self.parts:
            self.record("a direct ticket", part.ticket.ticket)

    def node_at(self, endpoint: flight.FlightEndpoint) -> Node:
        """Returns a connection to the node that has the endpoint's rows."""
        return self._cluster.node(endpoint.locations[0].uri.decode())

    def record(self, what: str, sealed: bytes) -> bytes:
        """Notes that `sealed` must be in no log, and returns it."""
        self._cluster.record_sealed(what, sealed)
        return sealed

    def flight_info(self, described: bytes) -> bytes:
        """Returns the FlightInfo of a descriptor."""
        return self._ask("GetFlightInfo", described)

    def metadata_ticket(self, name: str, message: bytes) -> bytes:
        """Returns the ticket of a command about metadata."""
        return self.record(f"a ticket of {name}", ticket_of(self.flight_info(command(name, message))))

    def prepared(self, sql: str) -> bytes:
        """Returns the handle of a prepared statement."""
        request = pb.command("ActionCreatePreparedStatementRequest", pb.field(1, sql))
        result = pb.fields(self._ask("DoAction", action("CreatePreparedStatement", request)))[1]
        return pb.fields(pb.fields(result)[2])[1]

    def continuation(self) -> bytes:
        """Returns the command with which a client polls a running query."""
        poll = pb.field(1, self.info) + pb.field(2, 10)
        return pb.field(1, "type.googleapis.com/volary.PollQuery") + pb.field(2, poll)

    def _direct(self) -> bytes:
        def planned() -> bytes | None:
            info = self._ask("GetFlightInfo", descriptor(QUERY.encode()), DIRECT)
            endpoints = flight.FlightInfo.deserialize(info).endpoints
            return info if all(endpoint.locations for endpoint in endpoints) else None

        return until(planned, "all workers have reported")

    def _ask(self, method: str, message: bytes, headers: Iterable[tuple[str, str]] = ()) -> bytes:
        answer = self._gateway.call(method, message, authorization=self._authorization, headers=headers)
        assert answer.code == OK, answer
        return answer.messages[0]


def ticket_of(info: bytes) -> bytes:
    """Returns the ticket of a FlightInfo that has only one endpoint."""
    (endpoint,) = flight.FlightInfo.deserialize(info).endpoints
    return endpoint.ticket.ticket


def gateway_calls(made: Made) -> dict[str, Call]:
    """Returns all calls of a gateway by name, as the user of `made` makes them.

    The first call of each method comes before all others. The last call ends the session if the caller shows a session.
    """
    calls = dict(
        [
            ("Handshake", Call("Handshake", [b""])),
            ("ListFlights", Call("ListFlights", [b""], shows=TABLE)),
            ("ListActions", Call("ListActions", [b""])),
            *_descriptors(made),
            *_tickets(made),
            *_uploads(made),
            *_exchanges(made),
            *_actions(made),
            *_actions_of_workers(),
        ]
    )
    first: dict[str, str] = {}
    for name, call in calls.items():
        first.setdefault(call.method, name)
    last = "DoAction CloseSession"
    names = dict.fromkeys([*first.values(), *calls])
    return {name: calls[name] for name in [*(name for name in names if name != last), last]}


def _descriptors(made: Made) -> Iterator[tuple[str, Call]]:
    prepared = pb.field(1, made.handle)
    queries = {
        "SQL": descriptor(QUERY.encode()),
        "a path": path("volary", "public", TABLE),
        "CommandStatementQuery": command("CommandStatementQuery", pb.field(1, QUERY)),
        "CommandPreparedStatementQuery": command("CommandPreparedStatementQuery", prepared),
    }
    for method in ("GetFlightInfo", "GetSchema", "PollFlightInfo"):
        for name, described in queries.items():
            yield f"{method} of {name}", Call(method, [described], OK, DENIED, DENIED, shows=COLUMN, covers=(name,))
        for name, message in METADATA.items():
            yield f"{method} of {name}", Call(method, [command(name, message)], covers=(name,))
    direct = Call("GetFlightInfo", [queries["SQL"]], OK, DENIED, DENIED, shows=COLUMN, headers=DIRECT)
    yield "GetFlightInfo of parts", direct
    insert = command("CommandStatementQuery", pb.field(1, INSERT))
    yield "GetFlightInfo of an INSERT", Call("GetFlightInfo", [insert], OK, DENIED, DENIED)
    again = descriptor(made.continuation())
    yield "PollFlightInfo once more", Call("PollFlightInfo", [again], OK, DENIED, shows=COLUMN)


def _tickets(made: Made) -> Iterator[tuple[str, Call]]:
    yield "DoGet of a statement", Call("DoGet", [ticket(made.ticket)], OK, DENIED, DENIED, shows=VALUE)
    for number, part in enumerate(made.parts):
        # A part may have no rows, so only the column is sure to be in the answer.
        yield f"DoGet of part {number}", Call("DoGet", [ticket(part.ticket.ticket)], OK, DENIED, DENIED, shows=COLUMN)
    for name, message in METADATA.items():
        shows = TABLE if name == "CommandGetTables" else ""
        sealed = made.metadata_ticket(name, message)
        yield f"DoGet of {name}", Call("DoGet", [ticket(sealed)], OK, DENIED, shows=shows, covers=(name,))
    yield "DoGet of SQL", Call("DoGet", [ticket(QUERY.encode())], *[INVALID] * 3)


def _uploads(made: Made) -> Iterator[tuple[str, Call]]:
    update = "CommandPreparedStatementUpdate"
    uploads = {**_writes(), update: upload(command(update, pb.field(1, made.update_handle)))}
    for name, messages in uploads.items():
        yield f"DoPut of {name}", Call("DoPut", messages, OK, DENIED, DENIED, covers=(name,))
    # Binding only seals the values into a handle, and only the user of that handle can use it.
    query = "CommandPreparedStatementQuery"
    bound = upload(command(query, pb.field(1, made.handle)))
    yield f"DoPut of {query}", Call("DoPut", bound, OK, DENIED, shows=COLUMN, covers=(query,))
    yield "DoPut of SQL", Call("DoPut", upload(descriptor(INSERT.encode())), *[UNIMPLEMENTED] * 3)


def _exchanges(made: Made) -> Iterator[tuple[str, Call]]:
    queries = {
        "SQL": descriptor(QUERY.encode()),
        "a path": path(TABLE),
        "CommandStatementQuery": command("CommandStatementQuery", pb.field(1, QUERY)),
    }
    for name, described in queries.items():
        yield (
            f"DoExchange of {name}",
            Call("DoExchange", upload(described), OK, DENIED, DENIED, shows=VALUE, covers=(name,)),
        )
    yield "DoExchange of parts", Call("DoExchange", upload(queries["SQL"]), OK, DENIED, DENIED, headers=DIRECT)
    lookup = upload(descriptor(lookup_command(TABLE)), pa.record_batch({"k": pa.array([7], pa.int64())}))
    yield "DoExchange of keys", Call("DoExchange", lookup, OK, DENIED, DENIED, shows=VALUE)
    for name, messages in _writes().items():
        yield f"DoExchange of {name}", Call("DoExchange", messages, OK, DENIED, DENIED, covers=(name,))
    for name, message in METADATA.items():
        shows = TABLE if name == "CommandGetTables" else ""
        yield f"DoExchange of {name}", Call("DoExchange", upload(command(name, message)), shows=shows, covers=(name,))
    for name in ("CommandPreparedStatementQuery", "CommandPreparedStatementUpdate"):
        prepared = upload(command(name, pb.field(1, made.handle)))
        yield f"DoExchange of {name}", Call("DoExchange", prepared, *[UNIMPLEMENTED] * 3, covers=(name,))


def _writes() -> dict[str, list[bytes]]:
    """Returns the messages that write a row, by command."""
    rows = pa.record_batch({"k": pa.array([8], pa.int64()), COLUMN: pa.array([VALUE])})
    # The options append to the table and fail if it does not exist (FAIL, APPEND).
    options = pb.field(1, pb.field(1, 2) + pb.field(2, 2))
    return {
        "CommandStatementUpdate": upload(command("CommandStatementUpdate", pb.field(1, INSERT))),
        "CommandStatementIngest": upload(command("CommandStatementIngest", options + pb.field(2, TABLE)), rows),
    }


def _actions(made: Made) -> Iterator[tuple[str, Call]]:
    prepare = pb.command("ActionCreatePreparedStatementRequest", pb.field(1, QUERY))
    close = pb.command("ActionClosePreparedStatementRequest", pb.field(1, made.handle))
    cancel = pb.command("ActionCancelQueryRequest", pb.field(1, made.part_info))
    (endpoint, *_) = made.parts
    batch = json.dumps({"table": TABLE, "producer": "kea"}).encode()
    bodies = {
        "CreatePreparedStatement": (prepare, DENIED, DENIED),
        # The gateway stores nothing for a handle, so closing one does nothing.
        "ClosePreparedStatement": (close, OK, OK),
        "SetSessionOptions": (b"", OK, OK),
        "GetSessionOptions": (b"", OK, OK),
        "CloseSession": (b"", OK, OK),
        # A part of a query cannot be cancelled, so the test can try it any number of times.
        "CancelFlightInfo": (pb.field(1, made.part_info), DENIED, OK),
        "CancelQuery": (cancel, DENIED, OK),
        "RenewFlightEndpoint": (pb.field(1, endpoint.serialize()), DENIED, OK),
        "volary.batch_status": (batch, StatusCode.NOT_FOUND, StatusCode.NOT_FOUND),
    }
    for name, (body, other, revoked) in bodies.items():
        yield f"DoAction {name}", Call("DoAction", [action(name, body)], OK, other, revoked, covers=(name,))
    for name in ("BeginTransaction", "BeginSavepoint", "CreatePreparedSubstraitPlan", "volary.control", "volary.x", ""):
        yield f"DoAction {name!r}", Call("DoAction", [action(name)], *[UNIMPLEMENTED] * 3)


def _actions_of_workers() -> Iterator[tuple[str, Call]]:
    """Yields the actions of workers.

    Workers show no credentials in these calls, and credentials do not help: the messages are sealed with the nodes'
    secret.
    """
    sealed = {
        "volary.join": Purpose.MEMBERSHIP,
        "volary.leave": Purpose.MEMBERSHIP,
        "volary.check": Purpose.CHECK,
        "volary.introduce": Purpose.INTRODUCTION,
    }
    stranger = Seal.of_secret(OTHER_SECRET)
    for name, purpose in sealed.items():
        body = stranger(purpose, pb.field(1, 1), 2**40)
        yield f"DoAction {name}", Call("DoAction", [action(name, body)], *[DENIED] * 4, covers=(name,))
        yield f"DoAction {name} of nothing", Call("DoAction", [action(name)], *[INVALID] * 4, covers=(name,))


# The following functions read the source code, so that the tests notice new commands, actions and RPCs.


def commands_of_the_gateway() -> set[str]:
    """Returns the Flight SQL messages that the gateway reads."""
    sources = (REPOSITORY / "gateway" / "src" / "flight_sql").rglob("*.rs")
    return {name for source in sources for name in re.findall(r"Command::(Command\w+)", source.read_text())}


def actions_in_the_code() -> set[str]:
    """Returns the actions of clients and of nodes that have their own constant."""
    sources = (REPOSITORY / "flight-proto" / "src").rglob("*.rs")
    return {name for source in sources for name in re.findall(r'const \w+_ACTION: &str = "(.+?)"', source.read_text())}


def methods_of(service: str) -> set[str]:
    """Returns the RPCs that a service implements, by their names in Flight.proto."""
    implemented = re.split(r"^impl.* Flight(?:Service)? for", (REPOSITORY / service).read_text(), flags=re.MULTILINE)[1]
    names = re.findall(r"^    async fn (\w+)\(", implemented, re.MULTILINE)
    return {"".join(part.capitalize() for part in name.split("_")) for name in names}
