"""Tests messages that Flight SQL drivers rarely or never send, and the answers to requests that are not supported."""

import protobuf as pb
import pyarrow as pa
import pytest
from flight_sql import described, prepared, prepared_command, put, query_command, rows, statement
from processes import until
from pyarrow import flight

NO_TRANSACTIONS = "there are no transactions: each statement commits by itself; connect with autocommit on"
ACTIONS = {
    "CreatePreparedStatement",
    "ClosePreparedStatement",
    "SetSessionOptions",
    "GetSessionOptions",
    "CloseSession",
    "CancelFlightInfo",
    "CancelQuery",
    "RenewFlightEndpoint",
    "volary.batch_status",
}
ROW = pa.record_batch([[1]], ["k"])


@pytest.fixture
def client(cluster):
    with flight.connect(cluster.uri) as client:
        yield client


def act(client, action: str, body: bytes = b"", options=None) -> list[bytes]:
    return [result.body.to_pybytes() for result in client.do_action(flight.Action(action, body), options)]


def test_actions_are_listed_with_what_they_take(client):
    listed = {action.type: action.description for action in client.list_actions()}
    assert set(listed) == ACTIONS
    assert all("Request: " in description and "Result: " in description for description in listed.values())


def test_tables_are_listed_as_flights_by_a_part_of_their_name(client, birds):
    (found,) = [info for info in client.list_flights(birds.encode()) if info.descriptor.path[-1].decode() == birds]
    assert [part.decode() for part in found.descriptor.path] == ["volary", "public", birds]
    read = client.do_get(found.endpoints[0].ticket).read_all()
    assert read.num_rows == 5
    assert read.schema == found.schema
    assert list(client.list_flights(b"no such table")) == []
    assert len(list(client.list_flights())) > 1


def test_a_schema_is_told_without_running_anything(client, connection, empty_table):
    assert client.get_schema(statement(f"SELECT k, name FROM {empty_table}")).schema.names == ["k", "name"]
    insert = f"INSERT INTO {empty_table} (k) VALUES (1)"
    handle = prepared(client, insert)[1]
    for descriptor in (statement(insert), described(prepared_command(handle))):
        assert client.get_schema(descriptor).schema.names == ["count"]
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]


@pytest.mark.parametrize("action", ["BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"])
def test_there_are_no_transactions(client, action):
    with pytest.raises(pa.ArrowNotImplementedError, match=NO_TRANSACTIONS):
        act(client, action, pb.command(f"Action{action}Request", b""))


def test_what_belongs_to_a_transaction_is_refused(client, birds):
    of_one = pb.field(1, f"SELECT k FROM {birds}") + pb.field(2, b"a transaction")
    with pytest.raises(pa.ArrowInvalid, match=NO_TRANSACTIONS):
        rows(client, pb.command("CommandStatementQuery", of_one))
    with pytest.raises(pa.ArrowInvalid, match=NO_TRANSACTIONS):
        client.get_schema(described(pb.command("CommandStatementQuery", of_one)))
    with pytest.raises(pa.ArrowInvalid, match=NO_TRANSACTIONS):
        put(client, pb.command("CommandStatementUpdate", of_one), ROW)
    with pytest.raises(pa.ArrowInvalid, match=NO_TRANSACTIONS):
        act(client, "CreatePreparedStatement", pb.command("ActionCreatePreparedStatementRequest", of_one))
    of_none = pb.field(1, f"SELECT k FROM {birds}") + pb.field(2, b"")
    assert rows(client, pb.command("CommandStatementQuery", of_none)).num_rows == 5
    assert client.get_schema(described(pb.command("CommandStatementQuery", of_none))).schema.names == ["k"]


def test_substrait_plans_are_not_taken(client):
    plan = pb.field(1, pb.field(1, b"plan"))
    refusal = "Substrait plans are not supported; send SQL"
    with pytest.raises(pa.ArrowNotImplementedError, match=refusal):
        rows(client, pb.command("CommandStatementSubstraitPlan", plan))
    with pytest.raises(pa.ArrowNotImplementedError, match=refusal):
        put(client, pb.command("CommandStatementSubstraitPlan", plan), ROW)
    body = pb.command("ActionCreatePreparedSubstraitPlanRequest", plan)
    with pytest.raises(pa.ArrowNotImplementedError):
        act(client, "CreatePreparedSubstraitPlan", body)


@pytest.mark.parametrize("descriptor", [described("a table"), flight.FlightDescriptor.for_path("a table")])
def test_a_do_put_of_rows_without_a_command_is_refused(client, descriptor):
    def put_rows() -> None:
        writer, _ = client.do_put(descriptor, ROW.schema)
        with writer:
            writer.write_batch(ROW)

    with pytest.raises(pa.ArrowNotImplementedError, match="load rows with CommandStatementIngest, COPY or INSERT"):
        put_rows()


def test_cancel_query_ends_a_query(client, connection):
    endless = "SELECT value FROM generate_series(1, 100000000002) t(value)"
    running = f"SELECT query_id FROM system.queries WHERE statement = '{endless}'"
    info = client.get_flight_info(statement(endless))
    reader = client.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows > 0
    (answer,) = act(client, "CancelQuery", pb.command("ActionCancelQueryRequest", pb.field(1, info.serialize())))
    # CANCEL_RESULT_CANCELLED
    assert pb.fields(answer)[2] == pb.field(1, 1)
    until(lambda: connection.sql(running).rows() == [], "the query has ended")
    with pytest.raises(KeyError, match="does not run here"):
        act(client, "CancelFlightInfo", pb.field(1, info.serialize()))
    reader.cancel()


def test_a_prepared_statement_is_closed_as_often_as_one_likes(client):
    handle = prepared(client, "SELECT 7 AS n")[1]
    body = pb.command("ActionClosePreparedStatementRequest", pb.field(1, handle))
    for _ in range(2):
        assert act(client, "ClosePreparedStatement", body) == []
    # A handle contains everything that it needs, so closing it takes nothing away.
    assert rows(client, prepared_command(handle))["n"].to_pylist() == [7]


def test_an_update_is_sent_by_itself_or_with_rows_of_parameters(client, connection, empty_table):
    update = pb.command("CommandStatementUpdate", pb.field(1, f"INSERT INTO {empty_table} (k) VALUES (1), (2)"))
    assert put(client, update, pa.record_batch([], [])) == pb.field(1, 2)
    handle = prepared(client, f"INSERT INTO {empty_table} (k) VALUES (?)")[1]
    command = pb.command("CommandPreparedStatementUpdate", pb.field(1, handle))
    assert put(client, command, pa.record_batch([[3, 4, 5]], ["0"])) == pb.field(1, 3)
    fixed = prepared(client, f"INSERT INTO {empty_table} (k) VALUES (6)")[1]
    command = pb.command("CommandPreparedStatementUpdate", pb.field(1, fixed))
    # A batch without rows means no parameters, so the statement runs once.
    assert put(client, command, pa.record_batch([], [])) == pb.field(1, 1)
    keys = connection.sql(f"SELECT k FROM {empty_table} ORDER BY k").rows()
    assert keys == [(1,), (2,), (3,), (4,), (5,), (6,)]


def test_a_session_ends_when_it_is_closed(client):
    login = flight.FlightCallOptions(headers=[client.authenticate_basic_token("kea", "")])
    client.get_flight_info(statement("SET timezone = '+02:00'"), login)
    shown = query_command("SHOW timezone")
    assert rows(client, shown, login)["value"].to_pylist() == ["+02:00"]
    # CLOSED
    assert act(client, "CloseSession", b"", login) == [pb.field(1, 1)]
    assert rows(client, shown, login)["value"].to_pylist() != ["+02:00"]


def test_the_options_of_a_session_are_told(client):
    login = flight.FlightCallOptions(headers=[client.authenticate_basic_token("kea", "")])
    (answer,) = act(client, "GetSessionOptions", b"", login)
    for name, value in (("catalog", "volary"), ("schema", "public")):
        # An entry of the map: its key, and a string as the value.
        assert pb.field(1, name) + pb.field(2, pb.field(1, value)) in answer
