"""Flight as pyarrow speaks it, for clients without a Flight SQL driver."""

import protobuf as pb
import pyarrow as pa
import pytest
from pyarrow import flight


@pytest.fixture
def client(cluster):
    with flight.connect(cluster.uri) as client:
        yield client


def statement(query: str) -> flight.FlightDescriptor:
    """Flight SQL's CommandStatementQuery, which has no class in pyarrow."""
    return flight.FlightDescriptor.for_command(pb.command("CommandStatementQuery", pb.field(1, query)))


def test_a_statement_is_redeemed_at_its_one_endpoint(client, birds):
    info = client.get_flight_info(statement(f"SELECT k, name FROM {birds} ORDER BY k"))
    (endpoint,) = info.endpoints
    assert endpoint.locations == []
    reader = client.do_get(endpoint.ticket)
    assert reader.schema == info.schema
    assert reader.read_all()["k"].to_pylist() == [1, 2, 3, 4, 5]


def test_an_empty_result_has_the_schema_that_was_announced(client, birds):
    info = client.get_flight_info(statement(f"SELECT * FROM {birds} WHERE k < 0"))
    table = client.do_get(info.endpoints[0].ticket).read_all()
    assert table.num_rows == 0
    assert table.schema == info.schema
    assert info.schema.types == [pa.int64(), pa.string(), pa.float64(), pa.date32()]


def test_a_ticket_is_read_twice_and_by_another_client(cluster, client, birds):
    ticket = client.get_flight_info(statement(f"SELECT count(*) AS n FROM {birds}")).endpoints[0].ticket
    with flight.connect(cluster.uri) as other:
        for reader in (client, client, other):
            assert reader.do_get(ticket).read_all()["n"].to_pylist() == [5]


def test_plain_sql_and_a_tables_name_are_descriptors_too(client, birds):
    for descriptor in (
        flight.FlightDescriptor.for_command(f"SELECT * FROM {birds}"),
        flight.FlightDescriptor.for_path(birds),
    ):
        info = client.get_flight_info(descriptor)
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 5
        assert client.get_schema(descriptor).schema == info.schema


def test_bad_sql_is_refused_at_get_flight_info(client):
    with pytest.raises(pa.ArrowInvalid, match="INVALID_ARGUMENT: "):
        client.get_flight_info(statement("SELEC 1"))


def test_an_unknown_table_is_a_key_error(client):
    with pytest.raises(KeyError, match="no_such_table"):
        client.get_flight_info(statement("SELECT * FROM no_such_table"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda ticket: ticket[:-1],
        lambda ticket: bytes([*ticket[:-1], ticket[-1] ^ 1]),
        lambda ticket: ticket[:10],
        lambda ticket: b"",
        lambda ticket: b"SELECT 1",
    ],
    ids=["truncated", "a bit flipped", "only its head", "empty", "not a ticket"],
)
def test_a_damaged_ticket_is_refused(client, birds, damage):
    ticket = client.get_flight_info(statement(f"SELECT * FROM {birds}")).endpoints[0].ticket.ticket
    with pytest.raises((pa.ArrowInvalid, flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)):
        client.do_get(flight.Ticket(damage(ticket))).read_all()


def test_a_message_of_another_kind_is_unimplemented_or_invalid(client):
    unknown = flight.FlightDescriptor.for_command(pb.command("CommandNobodyKnows", b""))
    with pytest.raises((pa.ArrowNotImplementedError, pa.ArrowInvalid)):
        client.get_flight_info(unknown)


def test_a_reader_that_leaves_early_leaves_the_server_working(client):
    endless = "SELECT value FROM generate_series(1, 1000000000) t(value)"
    reader = client.do_get(client.get_flight_info(statement(endless)).endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows > 0
    reader.cancel()
    info = client.get_flight_info(statement("SELECT 1 AS n"))
    assert client.do_get(info.endpoints[0].ticket).read_all()["n"].to_pylist() == [1]
