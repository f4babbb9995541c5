"""Tests direct results: clients fetch each worker's part of a result from the worker itself."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator

import protobuf as pb
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from certificates import Certificates
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import IMPATIENT, PATIENCE_SECONDS, Processes, until
from pyarrow import flight

import volary

pytestmark = pytest.mark.server

HEADER = "volary-direct-results"
DIRECT = (HEADER.encode(), b"on")
REUSE = b"arrow-flight-reuse-connection://?"
ROWS = 1_000
_numbers = itertools.count()


def options(*headers: tuple[bytes, bytes], timeout: float = PATIENCE_SECONDS) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=list(headers), timeout=timeout)


def info_of(client: flight.FlightClient, query: str, *headers: tuple[bytes, bytes]) -> flight.FlightInfo:
    return client.get_flight_info(flight.FlightDescriptor.for_command(query.encode()), options(DIRECT, *headers))


def at_worker(endpoint: flight.FlightEndpoint, *headers: tuple[bytes, bytes], **tls: bytes) -> pa.Table:
    """Fetches the rows of an endpoint from its first location."""
    location = endpoint.locations[0]
    assert endpoint.locations[1].uri == REUSE
    with flight.connect(location, **tls) as worker:
        return worker.do_get(endpoint.ticket, options(*headers)).read_all()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[flight.FlightClient]:
    with flight.connect(cluster.uri) as client:
        yield client


@pytest.fixture(scope="module")
def eggs(cluster: LocalCluster) -> Iterator[str]:
    """The name of a table with the keys from 1 to ROWS, which is on all workers."""
    with cluster.connect() as connection:
        connection.sql(
            "CREATE TABLE direct_eggs (k BIGINT NOT NULL, name VARCHAR, price DECIMAL(10, 2), laid DATE, "
            "n INT UNSIGNED) WITH (shard_key = 'k', shards = 16)"
        )
        connection.sql(
            "INSERT INTO direct_eggs SELECT value, 'egg ' || value, value / 4, DATE '2026-01-01', value % 7 "
            f"FROM generate_series(1, {ROWS})"
        )
        # Workers report the address for clients, so the gateway knows it only after their reports.
        with flight.connect(cluster.uri) as client:
            until(lambda: len(info_of(client, "SELECT * FROM direct_eggs").endpoints) == 3, "all workers have reported")
        yield "direct_eggs"
        connection.sql("DROP TABLE direct_eggs")


# Results that come from workers, and results that do not


def test_each_worker_gives_its_part_and_all_of_them_are_the_result(client, eggs):
    info = info_of(client, f"SELECT * FROM {eggs}")
    assert len(info.endpoints) == 3
    assert not info.ordered
    assert all(endpoint.expiration_time is not None for endpoint in info.endpoints)
    parts = [at_worker(endpoint) for endpoint in info.endpoints]
    assert all(part.schema.equals(info.schema, check_metadata=True) for part in parts)
    assert all(0 < part.num_rows < ROWS for part in parts)
    together = pa.concat_tables(parts).sort_by("k")
    ticket = client.get_flight_info(flight.FlightDescriptor.for_command(f"SELECT * FROM {eggs} ORDER BY k"))
    assert together.equals(client.do_get(ticket.endpoints[0].ticket).read_all())


def test_a_ticket_gives_the_same_rows_at_its_worker_and_at_the_gateway_as_often_as_it_is_shown(cluster, client, eggs):
    for endpoint in info_of(client, f"SELECT k, name FROM {eggs} WHERE k % 3 = 0").endpoints:
        with flight.connect(cluster.uri) as other:
            tables = [
                at_worker(endpoint),
                client.do_get(endpoint.ticket).read_all(),
                other.do_get(endpoint.ticket).read_all(),
                at_worker(endpoint),
            ]
        keys = [sorted(table["k"].to_pylist()) for table in tables]
        assert keys[0]
        assert all(other == keys[0] for other in keys)
        assert all(table.schema == tables[0].schema for table in tables)


@pytest.mark.parametrize(
    ("query", "workers"),
    [
        ("SELECT * FROM {t}", 3),
        ("SELECT k + 1, upper(name) FROM {t} WHERE price > 10", 3),
        ("SELECT k, count(*), max(price) FROM {t} GROUP BY k", 3),
        ("SELECT a.k, b.name FROM {t} a JOIN {t} b ON a.k = b.k", 3),
        ("SELECT k, name FROM {t} UNION ALL SELECT k, name FROM {t}", 3),
        ("SELECT * FROM {t} WHERE k = 7", 1),
        ("SELECT * FROM {t} WHERE k < 0", 3),
    ],
)
def test_what_runs_on_the_workers_whole_comes_from_them(client, eggs, query, workers):
    query = query.format(t=eggs)
    info = info_of(client, query)
    assert len(info.endpoints) == workers
    rows = pa.concat_tables([at_worker(endpoint) for endpoint in info.endpoints])
    ticket = client.get_flight_info(flight.FlightDescriptor.for_command(query)).endpoints[0].ticket
    expected = client.do_get(ticket).read_all()
    assert rows.schema.equals(expected.schema, check_metadata=True)
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {t} ORDER BY k",
        "SELECT * FROM {t} LIMIT 5",
        "SELECT count(*) FROM {t}",
        "SELECT n, count(*) FROM {t} GROUP BY n",
        "SELECT DISTINCT name FROM {t}",
        "SELECT 1",
        "SELECT * FROM {t} WHERE k = 1 AND k = 2",
        "SELECT * FROM system.nodes",
        "SHOW timezone",
        "EXPLAIN SELECT * FROM {t}",
    ],
)
def test_what_needs_the_gateway_comes_from_it(client, eggs, query):
    (endpoint,) = info_of(client, query.format(t=eggs)).endpoints
    assert endpoint.locations == []
    client.do_get(endpoint.ticket).read_all()


def test_nobody_is_sent_to_workers_who_does_not_ask_for_it(client, eggs):
    descriptor = flight.FlightDescriptor.for_command(f"SELECT * FROM {eggs}")
    for headers in ([], [(HEADER.encode(), b"off")]):
        (endpoint,) = client.get_flight_info(descriptor, options(*headers)).endpoints
        assert endpoint.locations == []
    with pytest.raises(pa.ArrowInvalid, match=r"volary-direct-results is \"perhaps\"; write on or off"):
        client.get_flight_info(descriptor, options((HEADER.encode(), b"perhaps")))


def test_a_table_is_read_whole_by_its_path(client, eggs):
    info = client.get_flight_info(flight.FlightDescriptor.for_path("volary", "public", eggs), options(DIRECT))
    assert sum(at_worker(endpoint).num_rows for endpoint in info.endpoints) == ROWS


def test_workers_send_the_types_that_were_announced(client, eggs):
    native = (b"volary-types", b"native")
    for headers, text, number in (([], pa.string(), pa.int64()), ([native], pa.string_view(), pa.uint32())):
        info = info_of(client, f"SELECT name, n FROM {eggs}", *headers)
        assert info.schema.types == [text, number]
        for endpoint in info.endpoints:
            # The call for the rows does not need to ask for the types again.
            assert at_worker(endpoint).schema == info.schema
            assert client.do_get(endpoint.ticket).read_all().schema == info.schema


def test_a_part_without_rows_has_the_schema(client, eggs):
    info = info_of(client, f"SELECT * FROM {eggs} WHERE k < 0")
    for endpoint in info.endpoints:
        assert at_worker(endpoint).equals(info.schema.empty_table())


def test_all_parts_see_the_rows_of_the_moment_of_planning(client, connection, eggs, birds):
    info = info_of(client, f"SELECT * FROM {birds}")
    assert all(endpoint.locations for endpoint in info.endpoints)
    connection.sql(f"INSERT INTO {birds} (k) SELECT value FROM generate_series(10, 50)")
    assert sum(at_worker(endpoint).num_rows for endpoint in info.endpoints) == 5
    assert sum(client.do_get(endpoint.ticket).read_all().num_rows for endpoint in info.endpoints) == 5


def test_the_parts_of_a_table_that_was_dropped_are_refused_and_not_empty(client, connection, eggs, birds):
    info = info_of(client, f"SELECT * FROM {birds}")
    connection.sql(f"DROP TABLE {birds}")
    for endpoint in info.endpoints:
        with pytest.raises(KeyError, match=f"{birds}.* was dropped or recreated"):
            at_worker(endpoint)
        with pytest.raises(KeyError, match=f"{birds}.* was dropped or recreated"):
            client.do_get(endpoint.ticket).read_all()


def test_an_error_within_a_part_says_which_query_and_worker(client, eggs):
    info = info_of(client, f"SELECT 1 / (k - 5) FROM {eggs}")
    errors = []
    for endpoint in info.endpoints:
        try:
            at_worker(endpoint)
        except pa.ArrowInvalid as error:
            errors.append(str(error))
    assert len(errors) == 1
    assert "Divide by zero" in errors[0]
    assert info.app_metadata.decode() in errors[0]
    assert "worker w" in errors[0]


def test_a_part_ends_at_the_clients_timeout_and_at_the_sessions(cluster, endless_part):
    with flight.connect(cluster.uri) as client:
        login = client.authenticate_basic_token(b"kea", b"")
        (endpoint,) = info_of(client, endless_part, login).endpoints
        with flight.connect(endpoint.locations[0]) as worker:
            with pytest.raises(flight.FlightTimedOutError):
                worker.do_get(endpoint.ticket, options(login, timeout=0.2)).read_all()
            # The time is long enough for planning, also on a slow machine.
            client.get_flight_info(flight.FlightDescriptor.for_command(b"SET statement_timeout = '2s'"), options(login))
            (endpoint,) = info_of(client, endless_part, login).endpoints
            with pytest.raises(flight.FlightTimedOutError, match="was ended after 2s"):
                worker.do_get(endpoint.ticket, options(login)).read_all()


def test_statements_that_come_again_have_other_values_at_the_workers(cluster, eggs):
    login = {"username": "kea", "password": ""}
    with dbapi.connect(cluster.uri, db_kwargs=login, autocommit=True) as driver, driver.cursor() as cursor:
        driver.adbc_connection.set_options(**{f"adbc.flight.sql.session.option.{HEADER}": "on"})
        for key in (1, 2, 3, 1, 999, 5000):
            cursor.execute(f"SELECT k, name FROM {eggs} WHERE k = ?", (key,))
            assert cursor.fetchall() == ([(key, f"egg {key}")] if key <= ROWS else [])


# Drivers


def test_adbc_fetches_from_the_workers_by_a_header(cluster, eggs):
    header = {f"{DatabaseOptions.RPC_CALL_HEADER_PREFIX.value}{HEADER}": "on"}
    with (
        dbapi.connect(cluster.uri, db_kwargs=header, autocommit=True) as driver,
        driver.cursor() as cursor,
    ):
        cursor.execute(f"SELECT k, name FROM {eggs} WHERE k > ?", (ROWS // 2,))
        assert sorted(cursor.fetch_arrow_table()["k"].to_pylist()) == list(range(ROWS // 2 + 1, ROWS + 1))
        partitions, schema = cursor.adbc_execute_partitions(f"SELECT k FROM {eggs}")
        assert len(partitions) == 3
        assert schema.names == ["k"]
    keys = []
    for partition in partitions:
        with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
            cursor.adbc_read_partition(partition)
            keys += cursor.fetch_arrow_table()["k"].to_pylist()
    assert sorted(keys) == list(range(1, ROWS + 1))


def test_a_session_asks_for_it_once(cluster, eggs):
    with (
        dbapi.connect(cluster.uri, db_kwargs={"username": "kea", "password": ""}, autocommit=True) as driver,
        driver.cursor() as cursor,
    ):
        driver.adbc_connection.set_options(**{f"adbc.flight.sql.session.option.{HEADER}": "on"})
        assert len(cursor.adbc_execute_partitions(f"SELECT k FROM {eggs}")[0]) == 3
        cursor.execute(f"SELECT sum(k) FROM {eggs}")
        assert cursor.fetchone() == (ROWS * (ROWS + 1) // 2,)


# Who may fetch rows


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with (
        LocalCluster(tmp_path_factory.mktemp("secured"), workers=2, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 100)")
        with flight.connect(cluster.uri) as client:
            login = (b"authorization", client.authenticate_basic_token(b"admin", ADMIN_PASSWORD.encode())[1])
            until(
                lambda: all(endpoint.locations for endpoint in info_of(client, "SELECT * FROM eggs", login).endpoints),
                "all workers have reported",
            )
        yield cluster


@pytest.fixture
def admin(secured: LocalCluster) -> Iterator[volary.Connection]:
    with volary.connect(secured.uri, username="admin", password=ADMIN_PASSWORD) as connection:
        yield connection


def log_in(cluster: LocalCluster, user: str, password: str) -> tuple[bytes, bytes]:
    with flight.connect(cluster.uri) as client:
        return (b"authorization", client.authenticate_basic_token(user.encode(), password.encode())[1])


@pytest.fixture
def users(secured: LocalCluster, admin: volary.Connection) -> list[tuple[str, tuple[bytes, bytes]]]:
    """Two users who may read `eggs`, with their authorization headers."""
    made = []
    for _ in range(2):
        name = f"reader_{next(_numbers)}"
        admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
        admin.sql(f"GRANT SELECT ON eggs TO {name}")
        made.append((name, log_in(secured, name, PASSWORD)))
    return made


def test_a_worker_serves_whom_the_ticket_is_for_and_nobody_else(secured, users):
    (_, login), (_, other) = users
    with flight.connect(secured.uri) as client:
        info = info_of(client, "SELECT * FROM eggs", login)
    assert sum(at_worker(endpoint, login).num_rows for endpoint in info.endpoints) == 100
    for endpoint in info.endpoints:
        with pytest.raises(flight.FlightUnauthorizedError, match="made for another user"):
            at_worker(endpoint, other)
        for shown in ([], [(b"authorization", b"Bearer volary-bearer-00")], [(b"authorization", b"Basic !")]):
            with pytest.raises(flight.FlightUnauthenticatedError):
                at_worker(endpoint, *shown)
        with flight.connect(secured.uri) as client, pytest.raises(flight.FlightUnauthorizedError):
            client.do_get(endpoint.ticket, options(other))
        # A name and a password are accepted, too. The worker asks the gateway about them.
    name = users[0][0]
    basic = b"Basic " + base64.b64encode(f"{name}:{PASSWORD}".encode())
    wrong = b"Basic " + base64.b64encode(f"{name}:{PASSWORD}!".encode())
    assert sum(at_worker(endpoint, (b"authorization", basic)).num_rows for endpoint in info.endpoints) == 100
    with pytest.raises(flight.FlightUnauthenticatedError, match="the user name or the password is wrong"):
        at_worker(info.endpoints[0], (b"authorization", wrong))


def test_a_worker_finds_out_that_a_right_was_taken_back(secured, admin, users):
    name, login = users[0]
    with flight.connect(secured.uri) as client:
        info = info_of(client, "SELECT * FROM eggs", login)
    admin.sql(f"CREATE ROLE nothing_{name}")
    assert sum(at_worker(endpoint, login).num_rows for endpoint in info.endpoints) == 100
    admin.sql(f"REVOKE SELECT ON eggs FROM {name}")
    for endpoint in info.endpoints:
        with pytest.raises((flight.FlightUnauthorizedError, KeyError)):
            at_worker(endpoint, login)
    admin.sql(f"GRANT SELECT ON eggs TO {name}")
    assert sum(at_worker(endpoint, login).num_rows for endpoint in info.endpoints) == 100
    admin.sql(f"DROP USER {name}")
    for endpoint in info.endpoints:
        with pytest.raises(flight.FlightUnauthenticatedError):
            at_worker(endpoint, login)


def test_a_token_is_good_at_workers_until_it_is_dropped(secured, admin):
    (row,) = admin.sql("CREATE TOKEN direct VALID FOR '1 day'").to_arrow().to_pylist()
    login = (b"authorization", f"Bearer {row['token']}".encode())
    with flight.connect(secured.uri) as client:
        info = info_of(client, "SELECT * FROM eggs", login)
    assert sum(at_worker(endpoint, login).num_rows for endpoint in info.endpoints) == 100
    admin.sql("DROP TOKEN direct")
    with pytest.raises(flight.FlightUnauthenticatedError):
        at_worker(info.endpoints[0], login)


def test_clients_shake_hands_with_workers_as_with_gateways(secured, users):
    name, login = users[0]
    with flight.connect(secured.uri) as client:
        info = info_of(client, "SELECT * FROM eggs", login)
    with flight.connect(info.endpoints[0].locations[0]) as worker:
        bearer = worker.authenticate_basic_token(name.encode(), PASSWORD.encode())
        assert bearer[1].startswith(b"Bearer volary-bearer-")
        assert worker.do_get(info.endpoints[0].ticket, options(bearer)).read_all().schema == info.schema
        with pytest.raises(flight.FlightUnauthenticatedError):
            worker.authenticate_basic_token(name.encode(), b"wrong")
    # The gateway has made the token, so the token is also valid there.
    with flight.connect(secured.uri) as client:
        assert info_of(client, "SELECT * FROM eggs", bearer).endpoints


def test_a_ticket_that_was_altered_is_refused_everywhere(cluster, client, eggs):
    (endpoint,) = info_of(client, f"SELECT * FROM {eggs} WHERE k = 7").endpoints
    ticket = endpoint.ticket.ticket
    changed = [ticket[:at] + bytes([ticket[at] ^ 1]) + ticket[at + 1 :] for at in range(0, len(ticket), 7)]
    changed += [
        ticket[:-1],
        ticket[:20],
        ticket + b"x",
        ticket[:3] + b"\x05" + ticket[4:],
        ticket[:3] + b"\x01" + ticket[4:],
    ]
    with flight.connect(endpoint.locations[0]) as worker:
        for altered in changed:
            for server in (worker, client):
                with pytest.raises((flight.FlightUnauthorizedError, pa.ArrowInvalid)):
                    server.do_get(flight.Ticket(altered)).read_all()
        assert worker.do_get(endpoint.ticket).read_all().num_rows == 1
        # Only the gateway can redeem the ticket of a whole query.
        descriptor = flight.FlightDescriptor.for_command(f"SELECT * FROM {eggs}".encode())
        whole = client.get_flight_info(descriptor).endpoints[0].ticket
        with pytest.raises(flight.FlightUnauthorizedError, match="was not sealed by this cluster"):
            worker.do_get(whole).read_all()


def test_a_ticket_is_good_at_its_own_worker_only(client, eggs):
    first, second, _ = info_of(client, f"SELECT * FROM {eggs}").endpoints
    with (
        flight.connect(first.locations[0]) as worker,
        pytest.raises(flight.FlightUnavailableError, match="the call is for worker"),
    ):
        worker.do_get(second.ticket, options()).read_all()


def test_a_ticket_expires_and_is_renewed(tmp_path):
    settings = {"VOLARY_GATEWAY__QUERY__TICKET_LIFETIME": "1s"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, flight.connect(cluster.uri) as client:
        with cluster.connect() as connection:
            connection.sql("CREATE TABLE eggs AS SELECT 7 AS k")

        def planned() -> flight.FlightEndpoint | None:
            endpoint = info_of(client, "SELECT * FROM eggs").endpoints[0]
            return endpoint if endpoint.locations else None

        def renewed_in_time() -> flight.FlightEndpoint | None:
            """Returns an endpoint, if it could be renewed and read before its ticket expired."""
            endpoint = until(planned, "the worker has reported")
            try:
                (renewed,) = client.do_action(flight.Action("RenewFlightEndpoint", pb.field(1, endpoint.serialize())))
                renewed = flight.FlightEndpoint.deserialize(renewed.body.to_pybytes())
                assert renewed.locations == endpoint.locations
                assert at_worker(renewed)["k"].to_pylist() == [7]
            except flight.FlightTimedOutError:
                return None
            return endpoint

        endpoint = until(renewed_in_time, "a renewed ticket is good")

        def refusal() -> str | None:
            try:
                at_worker(endpoint)
            except flight.FlightTimedOutError as error:
                return str(error)
            return None

        assert "expired" in until(refusal, "the ticket has expired")
        with pytest.raises(flight.FlightTimedOutError, match="expired"):
            client.do_get(endpoint.ticket).read_all()


def test_no_secret_and_no_password_is_logged(secured, users):
    _, login = users[0]
    with flight.connect(secured.uri) as client:
        info = info_of(client, "SELECT * FROM eggs", login)
        for endpoint in info.endpoints:
            at_worker(endpoint, login)
    log = secured.log()
    assert PASSWORD not in log
    assert login[1].split()[1].decode() not in log


# Addresses


def test_a_client_from_elsewhere_is_not_sent_to_this_machines_own_address(tmp_path, other_address):
    settings = {
        "VOLARY_GATEWAY__SECURITY__ALLOW_ANONYMOUS": "true",
        "VOLARY_GATEWAY__SECRET": "the secret of the nodes",
    }
    with LocalCluster(tmp_path, workers=1, settings=settings, listen="0.0.0.0:0") as cluster:
        port = cluster.uri.rsplit(":", 1)[1]
        with (
            flight.connect(f"grpc://127.0.0.1:{port}") as here,
            volary.connect(f"grpc://127.0.0.1:{port}") as connection,
        ):
            connection.sql("CREATE TABLE eggs AS SELECT 7 AS k")
            until(lambda: info_of(here, "SELECT * FROM eggs").endpoints[0].locations or None, "the worker has reported")
        with flight.connect(f"grpc://{other_address}:{port}") as elsewhere:
            (endpoint,) = info_of(elsewhere, "SELECT * FROM eggs").endpoints
            assert endpoint.locations == []
            assert elsewhere.do_get(endpoint.ticket).read_all()["k"].to_pylist() == [7]


def test_clients_have_an_address_of_their_own_where_nodes_show_certificates(tmp_path):
    certificates = Certificates(tmp_path / "certificates")
    settings = certificates.of_nodes() | {"VOLARY_WORKER__CLIENTS__LISTEN": "127.0.0.1:0"}
    ca = certificates.authority.read_bytes()
    with Processes(tmp_path, settings) as processes:
        for _ in range(2):
            processes.add_worker()
        with volary.connect(processes.gateway.uri, tls_ca=certificates.authority) as connection:
            connection.sql("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 100)")
        with flight.connect(processes.gateway.uri, tls_root_certs=ca) as client:

            def planned() -> list[flight.FlightEndpoint] | None:
                endpoints = info_of(client, "SELECT * FROM eggs").endpoints
                return endpoints if all(endpoint.locations for endpoint in endpoints) else None

            endpoints = until(planned, "all workers have reported")
            assert all(endpoint.locations[0].uri.startswith(b"grpc+tls://127.0.0.1:") for endpoint in endpoints)
            assert sum(at_worker(endpoint, tls_root_certs=ca).num_rows for endpoint in endpoints) == 100
            # The address for clients accepts no messages between nodes.
            with flight.connect(endpoints[0].locations[0], tls_root_certs=ca) as worker:
                for call in (
                    lambda: list(worker.do_action(flight.Action("volary.control", b""))),
                    lambda: worker.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 1")),
                    lambda: list(worker.list_flights()),
                    lambda: worker.do_put(flight.FlightDescriptor.for_path("t"), pa.schema([]))[0].close(),
                ):
                    with pytest.raises(NotImplementedError, match="connect to a gateway"):
                        call()


def test_a_part_whose_worker_is_gone_is_an_error_that_names_it(tmp_path):
    with Processes(tmp_path, IMPATIENT) as processes:
        workers = [processes.add_worker() for _ in range(2)]
        processes.sql("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 100)")
        with flight.connect(processes.gateway.uri) as client:

            def planned() -> list[flight.FlightEndpoint] | None:
                endpoints = info_of(client, "SELECT * FROM eggs").endpoints
                return endpoints if all(endpoint.locations for endpoint in endpoints) else None

            endpoints = until(planned, "all workers have reported")
            workers[0].kill()
            failed = []
            for endpoint in endpoints:
                try:
                    at_worker(endpoint)
                except flight.FlightUnavailableError:
                    failed.append(endpoint)
            assert len(failed) == 1
            with pytest.raises(flight.FlightUnavailableError, match="worker w"):
                client.do_get(failed[0].ticket, options()).read_all()
            # No client is sent to a worker that is known to be lost.
            until(lambda: info_of(client, "SELECT * FROM eggs").endpoints[0].locations == [], "the worker is lost")


def test_one_worker_answers_in_order_and_too_many_are_not_named(tmp_path):
    settings = {"VOLARY_GATEWAY__QUERY__MAX_DIRECT_WORKERS": "1"}
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE one AS SELECT value AS k FROM generate_series(1, 100)")
        processes.sql("CREATE TABLE small WITH (reference = true) AS SELECT 7 AS k")
        with flight.connect(processes.gateway.uri) as client:

            def of(query: str) -> flight.FlightEndpoint:
                (endpoint,) = info_of(client, query).endpoints
                return endpoint

            until(lambda: of("SELECT * FROM one").locations, "the worker has reported")
            ordered = of("SELECT k FROM one ORDER BY k DESC LIMIT 3")
            shown = at_worker(ordered) if ordered.locations else client.do_get(ordered.ticket).read_all()
            assert shown["k"].to_pylist() == [100, 99, 98]
            assert at_worker(of("SELECT * FROM small"))["k"].to_pylist() == [7]
            processes.add_worker()
            # A table with another number of shards gets a new placement.
            processes.sql("CREATE TABLE two WITH (shards = 8) AS SELECT value AS k FROM generate_series(1, 100)")
            assert of("SELECT * FROM two").locations == []


def test_a_reader_that_stalls_loses_its_place(tmp_path):
    with Processes(tmp_path, {"VOLARY_WORKER__EXECUTION__MAX_RUNNING": "1"}) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 100000)")
        wide = "SELECT k, repeat('x', 1000) AS x FROM eggs"
        with flight.connect(processes.gateway.uri) as client:
            login = client.authenticate_basic_token(b"kea", b"")

            def planned(timeout: str) -> flight.FlightEndpoint:
                setting = flight.FlightDescriptor.for_command(f"SET statement_timeout = '{timeout}'".encode())
                client.get_flight_info(setting, options(login))
                return info_of(client, wide, login).endpoints[0]

            endpoint = until(lambda: (it := planned("2s")).locations and it, "the worker has reported")
            with flight.connect(endpoint.locations[0]) as worker, flight.connect(endpoint.locations[0]) as other:
                stalled = worker.do_get(endpoint.ticket, options(login))
                assert stalled.read_chunk().data.num_rows > 0
                # The only place becomes free when the first statement's time has passed, although its client does not
                # read.
                patient = other.do_get(planned("60s").ticket, options(login))
                assert patient.read_all().num_rows == 100_000
                with pytest.raises(flight.FlightTimedOutError):
                    stalled.read_all()


def test_a_worker_that_cannot_ask_says_so(tmp_path):
    with Processes(tmp_path) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE eggs AS SELECT 7 AS k")
        with flight.connect(processes.gateway.uri) as client:
            endpoint = until(
                lambda: next((it for it in info_of(client, "SELECT * FROM eggs").endpoints if it.locations), None),
                "the worker has reported",
            )
        processes.gateway.kill()
        with pytest.raises(flight.FlightUnavailableError, match="cannot ask the gateway who the client is"):
            at_worker(endpoint)
