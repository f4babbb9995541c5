"""Makes every call of a gateway with all kinds of invalid credentials. Nothing may be read and nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import protobuf as pb
import pytest
from cluster import ADMIN_PASSWORD
from credentials import SHORT_SESSIONS, STRANGERS, Rotating, forget_failures, shown_by_strangers
from every_call import (
    DENIED,
    UNAUTHENTICATED,
    Call,
    Made,
    actions_in_the_code,
    commands_of_the_gateway,
    gateway_calls,
    methods_of,
)
from grpc import StatusCode
from processes import until
from raw_flight import METHODS, OK, Answer, Node, basic, faults
from secured import COLUMN, MARKERS, PASSWORD, TABLE, VALUE, Secured, secured_cluster

pytestmark = pytest.mark.server

FRIENDS = ["a password", "a token", "a session's token", "a session's token that came by rotation"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("every_call"), SHORT_SESSIONS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateway(secured: Secured) -> Node:
    return secured.node(secured.gateway.uri)


@pytest.fixture(scope="module")
def calls(keas_tickets: Made) -> dict[str, Call]:
    return gateway_calls(keas_tickets)


@pytest.fixture(scope="module")
def strangers(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return shown_by_strangers(secured, tmp_path_factory.mktemp("another_cluster"))


def test_every_call_is_in_the_table(gateway, kea, calls):
    covered = set(chain.from_iterable(call.covers for call in calls.values()))
    methods = {call.method for call in calls.values()}
    assert methods == set(METHODS) == methods_of("gateway/src/flight_sql/service.rs")
    commands = commands_of_the_gateway()
    assert "CommandStatementQuery" in commands
    assert commands <= covered, commands - covered
    listed = gateway.call("ListActions", b"", authorization=kea)
    actions = {pb.fields(message)[1].decode() for message in listed.messages}
    assert "RenewFlightEndpoint" in actions
    assert actions <= covered, actions - covered
    others = actions_in_the_code() - {"volary.control"}
    assert {"volary.join", "volary.introduce"} <= others
    assert others <= covered, others - covered


def shown_by(secured: Secured, name: str, token: str) -> Callable[[], str]:
    """Returns a function that gives kea's header for one call. The sessions of this cluster are short."""
    if name == "a password":
        return lambda: basic("kea", PASSWORD)
    if name == "a token":
        return lambda: token
    if name == "a session's token":
        return lambda: secured.log_in("kea")
    rotating = Rotating(secured, "kea")
    until(lambda: rotating.go_on() != rotating.first, "the session has another token")
    return rotating.go_on


@pytest.mark.parametrize("name", FRIENDS)
def test_every_call_is_served_to_whom_it_is_for(secured, gateway, kea, calls, name):
    shown = shown_by(secured, name, kea)
    found = []
    for what, call in calls.items():
        answer = gateway.call(call.method, *call.messages, headers=call.headers, authorization=shown())
        found += faults(what, answer, call.owner)
        if call.shows and not answer.contains(call.shows):
            found.append(f"{what}: {call.shows!r} is not in the answer: {answer} {answer.messages}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", STRANGERS)
def test_no_call_is_served_to(secured, gateway, calls, strangers, name):
    before, found, tried = secured.rows(), [], set()
    for what, call in calls.items():
        if name == "a wrong password" and call.method not in tried:
            tried.add(call.method)
            forget_failures(secured)
        answer = gateway.call(call.method, *call.messages, headers=call.headers, authorization=strangers[name])
        found += faults(what, answer, call.stranger, *MARKERS)
        if "authorization" in answer.headers or "set-cookie" in answer.headers:
            found.append(f"{what}: the answer has credentials: {answer.headers}")
    assert not found, "\n".join(found)
    assert secured.rows() == before


def denial(answer: Answer, expected: StatusCode) -> StatusCode:
    """Returns the code of a call that must be denied. For a user who may not see a table, the table does not exist."""
    is_hidden = expected == DENIED and f'"{TABLE}" does not exist, or user "' in answer.text
    return StatusCode.NOT_FOUND if is_hidden else expected


def test_every_call_of_another_user_reads_and_writes_nothing(secured, gateway, calls):
    auk = secured.create_token("auk", "of_auk")
    before, found = secured.rows(), []
    for what, call in calls.items():
        answer = gateway.call(call.method, *call.messages, headers=call.headers, authorization=auk)
        # The refusal may contain names that the call itself contains.
        hidden = [marker for marker in MARKERS if not call.sends(marker)]
        found += faults(what, answer, denial(answer, call.other), *hidden, VALUE)
    assert not found, "\n".join(found)
    assert secured.rows() == before


def test_every_call_of_a_user_whose_rights_were_taken_back_reads_and_writes_nothing(secured, gateway, kea, calls):
    before, found = secured.rows(), []
    secured.administer(f"REVOKE ALL ON {TABLE} FROM kea")
    try:
        for what, call in calls.items():
            answer = gateway.call(call.method, *call.messages, headers=call.headers, authorization=kea)
            hidden = [marker for marker in MARKERS if not call.sends(marker)]
            found += faults(what, answer, denial(answer, call.revoked), *hidden)
    finally:
        secured.administer(f"GRANT SELECT, INSERT ON {TABLE} TO kea")
    assert not found, "\n".join(found)
    assert secured.rows() == before
    assert gateway.call("GetSchema", *calls["GetSchema of SQL"].messages, authorization=kea).contains(COLUMN)


def test_a_sessions_token_altered_by_one_bit_of_any_byte_is_refused(secured, gateway):
    header = secured.log_in("kea")
    prefix, sealed = "Bearer volary-bearer-", header.removeprefix("Bearer volary-bearer-")
    assert gateway.call("ListActions", b"", authorization=header).code == OK
    found = []
    for at in range(len(sealed) // 2):
        changed = bytearray.fromhex(sealed)
        changed[at] ^= 1 << at % 8
        answer = gateway.call("ListActions", b"", authorization=prefix + changed.hex())
        found += faults(f"byte {at}", answer, UNAUTHENTICATED)
    assert not found, "\n".join(found)


def test_nothing_has_ended_and_nothing_secret_was_said(secured, gateway, calls):
    secured.assert_serves()
    # This ensures that the log has a login and a refusal, whichever tests have run.
    assert gateway.call("Handshake", b"", authorization=basic("eve", ADMIN_PASSWORD)).code == UNAUTHENTICATED
    until(lambda: "a login has failed" in secured.gateway.running().log(), "it is logged")
    secured.assert_nothing_secret_was_said()
