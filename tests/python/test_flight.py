"""Tests Flight in the way pyarrow uses it, for clients without a Flight SQL driver."""

import adbc_driver_manager as adbc
import protobuf as pb
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from pyarrow import flight

# The values of SetSessionOptionsResult.ErrorValue.
INVALID_NAME = 1
INVALID_VALUE = 2


@pytest.fixture
def client(cluster):
    with flight.connect(cluster.uri) as client:
        yield client


def statement(query: str) -> flight.FlightDescriptor:
    """Returns the descriptor of Flight SQL's CommandStatementQuery, for which pyarrow has no class."""
    return flight.FlightDescriptor.for_command(pb.command("CommandStatementQuery", pb.field(1, query)))


def time_zone(client, options=None) -> str | None:
    info = client.get_flight_info(statement("SHOW timezone"), options)
    return client.do_get(info.endpoints[0].ticket, options).read_all()["value"].to_pylist()[0]


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


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k AS n FROM {t} UNION ALL SELECT price FROM {t}",
        "SELECT 1 AS n UNION SELECT 2.5 UNION SELECT NULL",
        "SELECT NULL AS n UNION ALL SELECT k FROM {t}",
        "SELECT * FROM (SELECT 1 AS n UNION ALL SELECT price FROM {t}) u WHERE n > 1",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "SELECT k FROM {t} INTERSECT SELECT 2",
        "SELECT k FROM {t} EXCEPT SELECT 2",
        "VALUES (1, 'a'), (2.5, NULL)",
        "SELECT CASE WHEN k > 2 THEN k ELSE price END AS n, coalesce(price, k) AS p, NULL AS nothing FROM {t}",
        "SELECT count(*), sum(k), avg(k), min(day), median(price), array_agg(k) FROM {t} GROUP BY name",
        "SELECT k, row_number() OVER (ORDER BY k), lag(price) OVER (ORDER BY k), day + INTERVAL '1 day' FROM {t}",
        "SELECT a.k, b.name FROM {t} a LEFT JOIN {t} b ON a.k = b.k + 1",
        "SELECT named_struct('a', k), make_array(k, price), map(['x'], [k]), arrow_cast(k, 'UInt64') FROM {t}",
        "SELECT table_name, ordinal_position FROM information_schema.columns",
        "SELECT * FROM system.nodes",
        "DESCRIBE {t}",
        "SHOW timezone",
        "EXPLAIN SELECT k FROM {t}",
        "EXPLAIN ANALYZE SELECT k FROM {t}",
    ],
)
def test_the_schema_is_the_same_wherever_it_is_stated(cluster, client, birds, query):
    query = query.format(t=birds)
    info = client.get_flight_info(statement(query))
    rows = client.do_get(info.endpoints[0].ticket).read_all()
    assert info.schema.equals(rows.schema, check_metadata=True)
    assert client.get_schema(statement(query)).schema.equals(rows.schema, check_metadata=True)
    with (
        dbapi.connect(cluster.uri, autocommit=True) as driver,
        adbc.AdbcStatement(driver.adbc_connection) as prepared,
    ):
        prepared.set_sql_query(query)
        prepared.prepare()
        assert pa.schema(prepared.execute_schema()).equals(rows.schema, check_metadata=True)


def test_a_ticket_is_read_twice_and_by_another_client(cluster, client, birds):
    ticket = client.get_flight_info(statement(f"SELECT count(*) AS n FROM {birds}")).endpoints[0].ticket
    with flight.connect(cluster.uri) as other:
        for reader in (client, client, other):
            assert reader.do_get(ticket).read_all()["n"].to_pylist() == [5]


def test_a_ticket_is_refused_when_what_it_reads_is_not_what_was_planned(client, connection, birds):
    view = f"{birds}_view"
    connection.sql(f"CREATE VIEW {view} AS SELECT k, name FROM {birds} WHERE k < 3")
    of_table, of_view, of_both = (
        client.get_flight_info(statement(query)).endpoints[0].ticket
        for query in (
            f"SELECT * FROM {birds}",
            f"SELECT count(*) AS n FROM {view}",
            f"SELECT count(*) AS n FROM {view} v JOIN {birds} b ON v.k = b.k",
        )
    )
    assert [client.do_get(ticket).read_all().num_rows for ticket in (of_table, of_view, of_both)] == [5, 1, 1]
    connection.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT k, name FROM {birds}")
    for ticket in (of_view, of_both):
        with pytest.raises(KeyError, match=f"{view}.* was dropped or recreated"):
            client.do_get(ticket).read_all()
    assert client.do_get(of_table).read_all().num_rows == 5
    connection.sql(f"DROP TABLE {birds}")
    with pytest.raises(KeyError, match=f"{birds}.* was dropped or recreated"):
        client.do_get(of_table).read_all()
    connection.sql(f"CREATE TABLE {birds} (k BIGINT, other VARCHAR) WITH (shard_key = 'k', shards = 8)")
    connection.sql(f"INSERT INTO {birds} VALUES (1, 'kea')")
    with pytest.raises(KeyError, match="run the query again"):
        client.do_get(of_table).read_all()
    connection.sql(f"DROP VIEW {view}")


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


def test_a_message_of_another_kind_is_unimplemented_or_invalid(client):
    unknown = flight.FlightDescriptor.for_command(pb.command("CommandNobodyKnows", b""))
    with pytest.raises((pa.ArrowNotImplementedError, pa.ArrowInvalid)):
        client.get_flight_info(unknown)


def test_a_reader_that_leaves_early_leaves_the_server_working(client):
    endless = "SELECT value FROM generate_series(1, 9000000000000000000) t(value)"
    reader = client.do_get(client.get_flight_info(statement(endless)).endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows > 0
    reader.cancel()
    info = client.get_flight_info(statement("SELECT 1 AS n"))
    assert client.do_get(info.endpoints[0].ticket).read_all()["n"].to_pylist() == [1]


def test_the_token_of_the_handshake_is_the_session(client):
    header = client.authenticate_basic_token("ada", "")
    options = flight.FlightCallOptions(headers=[header])
    client.get_flight_info(statement("SET timezone = '+02:00'"), options)
    assert time_zone(client, options) == "+02:00"
    assert time_zone(client) != "+02:00"


class TakesHeaders(flight.ClientMiddlewareFactory):
    """Sends back, from the second call on, what the headers of the gateway's answers contained."""

    def __init__(self, answered: str, shown: str) -> None:
        super().__init__()
        self.answered, self.shown, self.value = answered, shown, None

    def start_call(self, info):
        factory = self

        class Call(flight.ClientMiddleware):
            def sending_headers(self):
                return {} if factory.value is None else {factory.shown: factory.value}

            def received_headers(self, headers):
                if factory.answered in headers:
                    (factory.value,) = headers[factory.answered]

        return Call()


@pytest.mark.parametrize(("answered", "shown"), [("authorization", "authorization"), ("set-cookie", "cookie")])
def test_a_client_without_a_user_is_told_its_session_by_the_first_answer(cluster, answered, shown):
    middleware = TakesHeaders(answered, shown)
    with flight.connect(cluster.uri, middleware=[middleware]) as client:
        default = time_zone(client)
        session = middleware.value
        client.get_flight_info(statement("SET timezone = '+02:00'"))
        assert time_zone(client) == "+02:00" != default
        assert middleware.value == session


def test_a_setting_of_a_client_that_names_no_session_is_refused(client):
    with pytest.raises(pa.ArrowInvalid, match="names no session"):
        client.get_flight_info(statement("SET timezone = '+02:00'"))
    client.get_flight_info(statement("RESET timezone"))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("timezone", "Europe/Berlin", None),
        ("catalog", "volary", None),
        ("volary-types", "native", None),
        ("no_such_option", "1", INVALID_NAME),
        ("datafusion.catalog.location", "/", INVALID_NAME),
        ("timezone", "Mars/Phobos", INVALID_VALUE),
        ("default_null_ordering", "nulls_somewhere", INVALID_VALUE),
        ("catalog", "other", INVALID_VALUE),
        ("volary-types", "newest", INVALID_VALUE),
    ],
)
def test_a_session_option_that_is_not_set_comes_back_with_the_reason(client, name, value, reason):
    options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("ada", "")])
    option = pb.field(1, name) + pb.field(2, pb.field(1, value))
    (result,) = client.do_action(flight.Action("SetSessionOptions", pb.field(1, option)), options)
    errors = pb.fields(result.body.to_pybytes())
    if reason is None:
        assert errors == {}
    else:
        assert pb.fields(errors[1]) == {1: name.encode(), 2: pb.field(1, reason)}
