"""Tests mistakes of other servers that have broken clients. Each test has the name by which the mistake is known."""

import base64

import adbc_driver_flightsql.dbapi as dbapi
import grpc
import protobuf as pb
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from cluster import ADMIN_PASSWORD, SECURED, LocalCluster
from flight_sql import bound, described, prepared, prepared_command, query_command, rows, statement
from processes import Processes, until
from pyarrow import flight

GET_SQL_INFO = pb.command("CommandGetSqlInfo", b"")
# The ids in FlightSql.proto of release 18 and later.
STANDARD_IDS = {*range(12), 100, 101, *range(500, 577)}
STRINGS = {0, 1, 2, 6, 7, 504, 513, 514, 529, 530, 531}
LISTS = set(range(508, 513))
MAPS = {517}
# "kea:" and seven more bytes need one "=" of padding in base64, which Go's drivers leave out.
LOGIN = {"username": "kea", "password": "feather"}
UNPADDED = base64.b64encode(b"kea:feather").decode().rstrip("=")
DIRECT = "volary-direct-results"
REUSE = b"arrow-flight-reuse-connection://?"


@pytest.fixture
def client(cluster):
    with flight.connect(cluster.uri) as client:
        yield client


def header(value: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", value.encode())])


def adbc_answers(cluster, **options: str) -> bool:
    with dbapi.connect(cluster.uri, db_kwargs=options, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute("SELECT 42")
        return cursor.fetchone() == (42,)


def test_unpadded_base64(cluster, client):
    client.get_flight_info(statement("SELECT 1"), header(f"Basic {UNPADDED}"))
    assert adbc_answers(cluster, **LOGIN)


def test_20_kb_auth_header(cluster, client):
    token = "Bearer " + "x" * 20_000
    client.get_flight_info(statement("SELECT 1"), header(token))
    assert adbc_answers(cluster, **{DatabaseOptions.AUTHORIZATION_HEADER.value: token})


@pytest.mark.parametrize("name", ["x", "ä", "100% <b>"])
def test_20_kb_error_text(client, name):
    columns = ", ".join(f'1 AS "{name} {number}"' for number in range(2_000))
    with pytest.raises(KeyError, match="there is no column nothing") as caught:
        client.get_flight_info(statement(f"SELECT nothing FROM (SELECT {columns})"))
    assert "metadata size" not in str(caught.value)


def test_8_mb_batch_of_parameters(cluster, empty_table):
    text = "x" * (8 << 20)
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute(f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)", (1, text))
        cursor.execute(f"SELECT length(name) FROM {empty_table}")
        assert cursor.fetchone() == (len(text),)


def test_an_8_mb_statement(client):
    assert rows(client, query_command(f"SELECT length('{'x' * (8 << 20)}') AS n"))["n"].to_pylist() == [8 << 20]


def test_empty_result(cluster, client, birds):
    query = f"SELECT k, name FROM {birds} WHERE k < 0"
    # For pyarrow, a stream without a schema is not a result.
    assert rows(client, query_command(query)).schema == client.get_schema(statement(query)).schema
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute(query)
        assert [column[0] for column in cursor.description] == ["k", "name"]
        assert cursor.fetchall() == []


def test_schema_nullability(client, birds):
    # After this join, k cannot be NULL, but other can. The announced schema and the rows must agree on that.
    query = f"SELECT a.k, b.k AS other, count(*) AS n FROM {birds} a LEFT JOIN {birds} b ON a.k = b.k + 1 GROUP BY 1, 2"
    info = client.get_flight_info(statement(query))
    read = client.do_get(info.endpoints[0].ticket).read_all()
    assert read.schema.equals(info.schema, check_metadata=True)
    assert [field.nullable for field in read.schema] == [False, True, False]


def test_int32_into_int64_and_null_parameters(cluster, birds):
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        for value, found in ((pa.scalar(2, pa.int32()), [(2,)]), (pa.scalar(None, pa.int64()), [])):
            cursor.execute(f"SELECT k FROM {birds} WHERE k = ?", pa.record_batch([pa.array([value])], ["0"]))
            assert cursor.fetchall() == found


def test_put_result_handle(client, birds):
    first = prepared(client, f"SELECT name FROM {birds} WHERE k = ?")[1]
    # Drivers bind again to the first handle or to the newest one.
    second = bound(client, first, [1])
    assert second
    handles = [second, second, bound(client, first, [2]), bound(client, second, [4])]
    found = [rows(client, prepared_command(handle))["name"].to_pylist() for handle in handles]
    assert found == [["kea"], ["kea"], ["kaka"], ["tui"]]


def test_get_sql_info_completeness(client):
    info = rows(client, GET_SQL_INFO)
    values = dict(zip(info["info_name"].to_pylist(), info["value"].to_pylist(), strict=True))
    assert set(values) == STANDARD_IDS
    assert {id for id, value in values.items() if isinstance(value, str)} == STRINGS
    assert {id for id, value in values.items() if isinstance(value, list) and id not in MAPS} == LISTS


def test_get_tables_with_a_utf8view_column(client, connection):
    # The view and the catalog keep the types that arrow_cast makes.
    connection.sql("CREATE VIEW of_views AS SELECT arrow_cast('kea', 'Utf8View') AS name, arrow_cast(1, 'UInt64') AS k")
    listed = tables(client, "of_views")
    assert [(field.name, field.type) for field in listed["of_views"]] == [
        ("name", pa.string()),
        ("k", pa.decimal128(20, 0)),
    ]
    connection.sql("DROP VIEW of_views")


def test_field_metadata(client, birds):
    for name, schema in tables(client, "%").items():
        for field in schema:
            assert field.metadata, f"{name}.{field.name}"
    for field in client.get_flight_info(statement(f"SELECT * FROM {birds}")).schema:
        assert field.metadata is None or field.metadata


def tables(client, pattern: str) -> dict[str, pa.Schema]:
    """Returns the schemas of GetTables by the names of the tables."""
    message = pb.field(3, pattern) + pb.field(5, 1)
    listed = rows(client, pb.command("CommandGetTables", message)).to_pylist()
    return {row["table_name"]: pa.ipc.read_schema(pa.py_buffer(row["table_schema"])) for row in listed}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "SELECT 1 WHERE false",
        "CREATE VIEW {v} AS SELECT 1 AS n",
        "DROP VIEW {v}",
        "SET timezone = 'UTC'",
        "SHOW ALL",
    ],
)
def test_get_flight_info_without_schema_never_happens(cluster, query):
    with flight.connect(cluster.uri) as client:
        token = client.authenticate_basic_token("kea", "")
        options = flight.FlightCallOptions(headers=[token])
        info = client.get_flight_info(statement(query.format(v="without_a_schema")), options)
        assert len(info.schema) > 0


def test_zero_field_schema_of_what_has_no_rows(client, birds):
    for query in (
        f"INSERT INTO {birds} (k) VALUES (?)",
        "DROP TABLE IF EXISTS nothing",
        "BEGIN",
        "KILL '{}'".format("0" * 32),
    ):
        dataset = prepared(client, query)[2]
        assert pa.ipc.read_schema(pa.py_buffer(dataset)) == pa.schema([])


def test_drop_via_cursor_then_immediate_close(cluster, connection):
    connection.sql("CREATE TABLE dropped (k BIGINT) WITH (shard_key = 'k', shards = 1)")
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute("DROP TABLE dropped")
    assert connection.sql("SELECT name FROM system.tables WHERE name = 'dropped'").rows() == []


def test_five_retries_of_jdbc_are_harmless(client, empty_table):
    # If all endpoints fail, the JDBC driver prepares the statement and asks for its FlightInfo up to five times.
    handles = [prepared(client, f"SELECT * FROM {empty_table}")[1] for _ in range(5)]
    for handle in handles:
        client.get_flight_info(described(prepared_command(handle)))
    for handle in (*handles, handles[0]):
        body = pb.command("ActionClosePreparedStatementRequest", pb.field(1, handle))
        assert list(client.do_action(flight.Action("ClosePreparedStatement", body))) == []


def test_a_ticket_is_renewed_and_says_when_it_ends(client, birds):
    (endpoint,) = client.get_flight_info(statement(f"SELECT count(*) AS n FROM {birds}")).endpoints
    assert endpoint.expiration_time is not None
    (result,) = client.do_action(flight.Action("RenewFlightEndpoint", pb.field(1, endpoint.serialize())))
    renewed = flight.FlightEndpoint.deserialize(result.body.to_pybytes())
    assert renewed.expiration_time.as_py() >= endpoint.expiration_time.as_py()
    assert client.do_get(renewed.ticket).read_all()["n"].to_pylist() == [5]
    with pytest.raises(pa.ArrowInvalid, match="not a ticket of Volary"):
        list(client.do_action(flight.Action("RenewFlightEndpoint", pb.field(1, pb.field(1, pb.field(1, "x"))))))


def test_close_session_of_what_was_begun_keeps_what_is_committed(cluster, connection, empty_table):
    # There are no transactions. If ADBC closes a session with an open transaction, each of its statements was
    # committed.
    with flight.connect(cluster.uri) as client:
        options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("kea", "")])
        for query in ("BEGIN", f"INSERT INTO {empty_table} (k) VALUES (1)"):
            client.get_flight_info(statement(query), options)
        list(client.do_action(flight.Action("CloseSession", b""), options))
        # The BEGIN of the session ended with the session.
        client.get_flight_info(statement("ROLLBACK"), options)
    assert connection.sql(f"SELECT count(*) AS n FROM {empty_table}").rows() == [(1,)]


def test_token_rotation(tmp_path):
    settings = SECURED | {"VOLARY_GATEWAY__SECURITY__TOKEN_LIFETIME": "3s"}
    login = {"username": "admin", "password": ADMIN_PASSWORD}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, flight.connect(cluster.uri) as client:
        first = flight.FlightCallOptions(headers=[client.authenticate_basic_token("admin", ADMIN_PASSWORD)])

        def has_expired() -> bool:
            try:
                client.get_flight_info(statement("SELECT 1"), first)
            except flight.FlightUnauthenticatedError as error:
                return "expired" in str(error)
            return False

        with dbapi.connect(cluster.uri, db_kwargs=login, autocommit=True) as driver, driver.cursor() as cursor:

            def outlived() -> bool:
                # The gateway has sent the driver another token, and the driver uses it.
                cursor.execute("SELECT user_name FROM system.queries")
                assert cursor.fetchall() == [("admin",)]
                return has_expired()

            until(outlived, "the token that it began with has expired")
            assert outlived()


def handshake(address: str, shown: str) -> str | None:
    """Returns the token in the headers of the answer to a handshake with one empty message, as drivers send it."""
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream("/arrow.flight.protocol.FlightService/Handshake")
        answers = call(iter([b""]), metadata=[("authorization", shown)])
        list(answers)
        return dict(answers.initial_metadata()).get("authorization")


def test_worker_handshake(tmp_path):
    with Processes(tmp_path) as processes:
        worker = processes.add_worker()
        address = worker.running().await_ready().rsplit("://", 1)[1]
        bearer = handshake(address, f"Basic {UNPADDED}")
        assert bearer is not None
        assert bearer.startswith("Bearer ")
        handshake(address, bearer)
        with flight.connect(processes.gateway.uri) as client:
            assert rows(client, query_command("SELECT 7 AS n"), header(bearer))["n"].to_pylist() == [7]


def test_reuse_and_dead_locations(tmp_path):
    # The workers give clients an address at which nobody listens.
    with Processes(tmp_path, {"VOLARY_WORKER__CLIENTS__ADVERTISE": "127.0.0.1:1"}) as processes:
        for _ in range(2):
            processes.add_worker()
        processes.sql("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 1000)")
        query = "SELECT k FROM eggs"
        with flight.connect(processes.gateway.uri) as client:
            asked = flight.FlightCallOptions(headers=[(DIRECT.encode(), b"on")])

            def locations() -> list[list[bytes]]:
                endpoints = client.get_flight_info(statement(query), asked).endpoints
                return [[location.uri for location in endpoint.locations] for endpoint in endpoints]

            until(lambda: locations() == [[b"grpc://127.0.0.1:1", REUSE]] * 2, "both workers have reported")
        options = {f"{DatabaseOptions.RPC_CALL_HEADER_PREFIX.value}{DIRECT}": "on"}
        with (
            dbapi.connect(processes.gateway.uri, db_kwargs=options, autocommit=True) as driver,
            driver.cursor() as cursor,
        ):
            cursor.execute(query)
            assert sorted(cursor.fetch_arrow_table()["k"].to_pylist()) == list(range(1, 1001))


def test_rst_stream_ends_the_query(client, connection):
    endless = "SELECT value FROM generate_series(1, 9000000000000000000) t(value)"
    reader = client.do_get(client.get_flight_info(statement(endless)).endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows > 0
    running = f"SELECT query_id FROM system.queries WHERE statement = '{endless}'"
    assert len(connection.sql(running).rows()) == 1
    reader.cancel()
    until(lambda: connection.sql(running).rows() == [], "the query has ended")
