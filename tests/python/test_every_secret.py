"""Tests that nobody can read secrets: passwords in right and wrong statements, all other secrets in detailed logs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from threading import Event

import protobuf as pb
import pyarrow as pa
import pytest
from cluster import ADMIN_PASSWORD
from every_call import UNAUTHENTICATED, Made, gateway_calls
from processes import until
from raw_flight import OK, Answer, action, basic, command, descriptor, ticket, upload
from secured import PASSWORD, Secured, secured_cluster

pytestmark = pytest.mark.server

_numbers = itertools.count()

STATEMENTS = [
    "CREATE USER {user} PASSWORD '{password}'",
    "create user if not exists {user} with password '{password}' admin",
    "/* a bird */ CREATE USER {user} -- that is new\n PASSWORD '{password}';",
    "ALTER USER bird PASSWORD '{password}' NOADMIN",
    # Statements with typing mistakes
    "CREATE OR REPLACE USER {user} PASSWORD '{password}'",
    "CREATE USER {user} PASSWORD '{password}",
    'CREATE USER {user} PASSWORD "{password}"',
    "CREATE USER {user} PASSWORD = '{password}'",
    "CREATE USER {user} ENCRYPTED PASSWORD '{password}'",
    "ALTER USER bird PASSWORT '{password}'",
    "ALTER USER bird WITH PASSWORD $${password}$$",
    "ALTER USER bird PASSWORD {password}",
    "CRAETE USER {user} PASSWORD '{password}'",
    "CREATE USERS {user} PASSWORD '{password}'",
    "ALTER USER bird PASSWORD 'it's {password}'",
    "CRAETE USER {user} PASSWORD don't-tell-{password}",
    "SELECT 'a bird's nest'; ALTER USER bird PASSWORD {password}",
    "ALTER USER bird PASSWORD 'one of many words' -- no longer {password}",
    "(CREATE USER {user} PASSWORD '{password}')",
    # Statements as in other databases
    "ALTER USER bird IDENTIFIED BY '{password}'",
    "ALTER LOGIN bird WITH PASSWORD = '{password}'",
    "SET PASSWORD FOR bird = '{password}'",
    "ALTER USER bird PASSWORD {password}?$1",
    "CREATE SECRET s (TYPE s3, PASSWORD '{password}')",
    "CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (user 'bob', password '{password}')",
    "GRANT SELECT ON whisperers TO kea IDENTIFIED BY '{password}'",
    "GRANT SELECT ON whisperers TO bird IDENTIFIED BY q'[{password}]'",
    # Statements within other statements or next to them
    "EXPLAIN CREATE USER {user} PASSWORD '{password}'",
    "EXPLAIN ANALYZE VERBOSE CREATE USER {user} PASSWORD '{password}'",
    "PREPARE later AS CREATE USER {user} PASSWORD '{password}'",
    "CREATE ROLE of_{user}; CREATE USER {user} PASSWORD '{password}'",
    "SELECT 1; CREATE USER {user} PASSWORD '{password}'",
    "BEGIN; ALTER USER bird PASSWORD '{password}'; COMMIT",
    "GRANT SELECT ON whisperers TO kea; ALTER USER bird PASSWORD '{password}'",
]


def prepare(sql: str) -> bytes:
    return action("CreatePreparedStatement", pb.command("ActionCreatePreparedStatementRequest", pb.field(1, sql)))


WAYS: dict[str, Callable[[str], tuple[str, list[bytes]]]] = {
    "GetFlightInfo": lambda sql: ("GetFlightInfo", [descriptor(sql.encode())]),
    "CommandStatementQuery": lambda sql: ("GetFlightInfo", [command("CommandStatementQuery", pb.field(1, sql))]),
    "PollFlightInfo": lambda sql: ("PollFlightInfo", [descriptor(sql.encode())]),
    "GetSchema": lambda sql: ("GetSchema", [descriptor(sql.encode())]),
    "CreatePreparedStatement": lambda sql: ("DoAction", [prepare(sql)]),
    "DoPut": lambda sql: ("DoPut", upload(command("CommandStatementUpdate", pb.field(1, sql)))),
    "DoExchange": lambda sql: ("DoExchange", upload(descriptor(sql.encode()))),
}
"""The ways to send a statement, with the calls."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("every_secret")) as cluster:
        cluster.administer(f"CREATE USER bird PASSWORD '{PASSWORD}'")
        yield cluster


class Told:
    """The answers that an administrator gets, and what is logged and listed in the meantime."""

    def __init__(self, secured: Secured) -> None:
        self._secured = secured
        self._gateway = secured.node(secured.gateway.uri)
        self._administrator = secured.log_in("admin", ADMIN_PASSWORD)
        self._nodes = [secured.gateway, *secured.workers]
        self._logged = [len(node.running().log()) for node in self._nodes]
        self.answers: dict[str, Answer] = {}

    def ask(self, way: str, method: str, messages: list[bytes]) -> None:
        """Makes a call and keeps its answer."""
        self.answers[way] = self._gateway.call(method, *messages, authorization=self._administrator)

    def where(self, *passwords: str) -> list[str]:
        """Returns all places that contain one of the passwords."""
        places = [f"the answer of {way}: {answer.text}" for way, answer in self.answers.items()]
        for table in ("system.queries", "system.query_log"):
            places += [f"{table}: {row}" for row in self._secured.administer(f"SELECT * FROM {table}")]
        for node, length in zip(self._nodes, self._logged, strict=True):
            places += [f"the log of {node.name}: {line}" for line in node.running().log()[length:].splitlines()]
        return [place for place in places if any(password in place for password in passwords)]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_password_in_a_statement_is_in_no_log_no_list_and_no_error(secured, statement):
    told, users, passwords = Told(secured), [], []
    for way, call in WAYS.items():
        number = next(_numbers)
        users.append(f"user_{number}" if "{user}" in statement else "bird")
        passwords.append(f"unseen{number:04}unseen")
        told.ask(way, *call(statement.format(user=users[-1], password=passwords[-1])))
    found = told.where(*passwords)
    assert not found, "\n".join(found)
    # The statements are listed, but without a password.
    assert told.where(*users)


def test_a_password_is_not_listed_while_its_statement_runs(secured, background):
    over = Event()

    def create_users() -> None:
        """Creates users until a statement was listed, however fast passwords are hashed."""
        while not over.is_set():
            secured.administer(f"CREATE USER waits_{next(_numbers)} PASSWORD 'unseen and waiting'")

    def listed() -> list[str]:
        rows = secured.administer("SELECT statement FROM system.queries")
        return [row["statement"] for row in rows if "waits_" in row["statement"]]

    creating = [background(create_users) for _ in range(4)]
    try:
        assert "unseen and waiting" not in str(until(listed, "one is listed"))
    finally:
        over.set()
    for thread in creating:
        thread.result()


@pytest.mark.parametrize("statement", ["ALTER USER bird PASSWORD ?", "CREATE USER bound PASSWORD $1"])
def test_a_password_that_is_bound_is_in_no_log_no_list_and_no_error(secured, statement):
    told, password = Told(secured), "unseen and bound"
    told.ask("DoExchange", "DoExchange", upload(descriptor(statement.encode()), pa.record_batch({"0": [password]})))
    told.ask("CreatePreparedStatement", "DoAction", [prepare(statement)])
    found = told.where(password)
    assert not found, "\n".join(found)
    # Passwords cannot be parameters, so nobody needs to bind one in another way.
    assert all(answer.code != OK for answer in told.answers.values())


def test_no_secret_is_in_the_most_detailed_log(tmp_path):
    with secured_cluster(tmp_path, {"VOLARY_LOG__FILTER": "trace"}) as secured:
        assert_nothing_is_logged_of(secured)


def assert_nothing_is_logged_of(secured: Secured) -> None:
    """Makes all calls with all valid credentials and some invalid ones. Checks that no log contains a secret."""
    gateway, kea = secured.node(secured.gateway.uri), secured.create_token("kea", "of_kea")
    for shown in (kea, secured.log_in("kea"), basic("kea", PASSWORD)):
        made = Made(secured, shown)
        for part in made.parts:
            with made.node_at(part) as clients:
                assert clients.call("DoGet", ticket(part.ticket.ticket), authorization=shown).code == OK
                assert clients.call("Handshake", b"", authorization=shown).code == OK
        for what, call in gateway_calls(made).items():
            assert (
                gateway.call(call.method, *call.messages, headers=call.headers, authorization=shown).code == call.owner
            ), what
    for wrong in (basic("kea", f"{PASSWORD} is wrong"), "Bearer volary-token-" + "17" * 32):
        secured.record_header("who is refused", wrong)
        assert gateway.call("Handshake", b"", authorization=wrong).code == UNAUTHENTICATED
    for node in (secured.gateway, *secured.workers):
        assert " TRACE " in node.running().log()
    secured.assert_nothing_secret_was_said()
    secured.assert_serves()
