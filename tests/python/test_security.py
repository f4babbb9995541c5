"""Tests who is let in and what users may do, with the drivers, and with raw Flight where a driver would not do it."""

from __future__ import annotations

import base64
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import flight_sql
import grpc
import protobuf as pb
import pyarrow as pa
import pytest
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import PATIENCE_SECONDS, Node, Processes, run, until
from pyarrow import flight
from raw_flight import OK, basic, descriptor
from raw_flight import Node as Flight

import volary

pytestmark = pytest.mark.server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with users."""
    with LocalCluster(tmp_path_factory.mktemp("secured"), workers=2, settings=SECURED) as cluster:
        yield cluster


@pytest.fixture
def admin(secured: LocalCluster) -> Iterator[volary.Connection]:
    with volary.connect(secured.uri, username="admin", password=ADMIN_PASSWORD) as connection:
        yield connection


@pytest.fixture
def user(secured: LocalCluster, admin: volary.Connection) -> Callable[[], volary.Connection]:
    """Creates a user, and connects as this user. The connection has the attribute `name`."""

    def make(*grants: str) -> volary.Connection:
        name = f"user_{next(_numbers)}"
        admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
        for grant in grants:
            admin.sql(f"GRANT {grant} TO {name}")
        connection = volary.connect(secured.uri, username=name, password=PASSWORD)
        connection.name = name
        return connection

    return make


@pytest.fixture
def table(admin: volary.Connection) -> Iterator[str]:
    """The name of a table of the administrator with the keys 1, 2 and 3."""
    name = f"eggs_{next(_numbers)}"
    admin.sql(f"CREATE TABLE {name} (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 4)")
    admin.sql(f"INSERT INTO {name} VALUES (1, 10), (2, 20), (3, 30)")
    yield name
    admin.sql(f"DROP TABLE IF EXISTS {name}")


@contextmanager
def denied(*words: str) -> Iterator[None]:
    with pytest.raises(volary.PermissionDeniedError) as caught:
        yield
    for word in words:
        assert word in str(caught.value)


@contextmanager
def hidden(table: str) -> Iterator[None]:
    with pytest.raises(volary.NotFoundError, match=f'"{table}" does not exist, or user .* may not see it'):
        yield


# Logins


@pytest.mark.parametrize("method", ["GetFlightInfo", "PollFlightInfo", "GetSchema", "ListFlights", "DoGet", "DoPut"])
def test_nothing_of_a_stranger_is_read_but_the_headers(secured, method):
    address = secured.uri.removeprefix("grpc://")
    ended = threading.Event()

    def nothing() -> Iterator[bytes]:
        ended.wait(PATIENCE_SECONDS)
        yield from ()

    with grpc.insecure_channel(address) as channel:
        path = f"/arrow.flight.protocol.FlightService/{method}"
        call = channel.stream_stream(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            with pytest.raises(grpc.RpcError) as refused:
                next(call(nothing()))
        finally:
            ended.set()
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert "log in" in refused.value.details()


def test_a_stranger_may_send_little(secured):
    with flight.connect(secured.uri) as client:
        with pytest.raises(flight.FlightUnauthenticatedError, match="log in: this cluster has users"):
            list(client.do_action(flight.Action("CloseSession", b"x" * (3 << 10))))
        with pytest.raises(flight.FlightUnauthenticatedError, match="log in before you send more than"):
            list(client.do_action(flight.Action("CloseSession", b"x" * (5 << 10))))


def test_the_token_of_a_closed_session_is_not_taken_any_more(secured):
    with flight.connect(secured.uri) as client:
        closed, other = (
            flight.FlightCallOptions(headers=[client.authenticate_basic_token("admin", ADMIN_PASSWORD)])
            for _ in range(2)
        )
        select = flight.FlightDescriptor.for_command(b"SELECT 1")
        client.get_flight_info(select, closed)
        list(client.do_action(flight.Action("CloseSession", b""), closed))
        with pytest.raises(flight.FlightUnauthenticatedError, match="the session was closed; log in again"):
            client.get_flight_info(select, closed)
        client.get_flight_info(select, other)


@pytest.mark.parametrize("hidden", ["kea\u200b", "kea ", "\u202eaek"])
def test_names_that_look_like_others_are_refused(admin, name, hidden):
    for statement in (
        f"CREATE USER \"{hidden}\" PASSWORD '{PASSWORD}'",
        f'CREATE ROLE "{hidden}"',
        f'CREATE TABLE "{name}{hidden}" (k BIGINT)',
        f'CREATE TABLE "{name}{hidden}" AS SELECT 1 AS k',
        f'CREATE VIEW "{name}{hidden}" AS SELECT 1 AS k',
    ):
        with pytest.raises(volary.InvalidArgumentError, match="cannot be a name"):
            admin.sql(statement)


def test_without_users_everybody_on_the_machine_is_let_in_under_any_name(cluster):
    for login in ({}, {"username": "kea"}, {"username": "kea", "password": "x"}, {"token": "anything"}):
        with volary.connect(cluster.uri, **login) as connection:
            name = connection.sql("SELECT user_name FROM system.queries").rows()[0][0]
            assert name == ("kea" if "username" in login else "anonymous")


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"username": "admin"},
        {"username": "ADMIN", "password": ADMIN_PASSWORD},
        {"username": "nobody", "password": ADMIN_PASSWORD},
        {"username": "", "password": ""},
        {"token": "volary-token-00"},
        {"token": ADMIN_PASSWORD},
        {"token": "volary-bearer-00"},
        {"token": "volary-session-00000000000000000000000000000000"},
    ],
)
def test_wrong_credentials_are_refused_with_what_to_do(secured, login):
    with pytest.raises(volary.UnauthenticatedError) as caught, volary.connect(secured.uri, **login) as connection:
        connection.sql("SELECT 1")
    assert "log in" in str(caught.value) or "check both" in str(caught.value)
    assert ADMIN_PASSWORD not in str(caught.value)


def test_credentials_of_each_call_are_taken_as_well_as_those_of_a_handshake(secured):
    basic = base64.b64encode(f"admin:{ADMIN_PASSWORD}".encode())
    with flight.connect(secured.uri) as client:
        bearer = client.authenticate_basic_token("admin", ADMIN_PASSWORD)
        for header in (bearer, (b"authorization", b"Basic " + basic)):
            options = flight.FlightCallOptions(headers=[header])
            info = client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 7 AS n"), options)
            assert client.do_get(info.endpoints[0].ticket, options).read_all().to_pydict() == {"n": [7]}


def test_the_first_user_administers_and_ends_what_everybody_could_do(tmp_path):
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as stranger:
        stranger.sql("CREATE TABLE old (k BIGINT)")
        for statement in ("CREATE USER kea", f"CREATE USER kea PASSWORD '{PASSWORD}'", "CREATE USER kea ADMIN"):
            with pytest.raises(volary.InvalidArgumentError, match="would have no administrator"):
                stranger.sql(statement)
        stranger.sql(f"CREATE USER kea PASSWORD '{PASSWORD}' ADMIN")
        with pytest.raises(volary.UnauthenticatedError, match="log in again"):
            stranger.sql("SELECT 1")
        with pytest.raises(volary.UnauthenticatedError):
            cluster.connect().sql("SELECT 1")
        with volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea:
            assert kea.sql("SELECT count(*) FROM old").rows() == [(0,)]
            assert kea.sql("SELECT name, kind, admin, has_password FROM system.users").rows() == [
                ("kea", "user", True, True)
            ]
            for statement in ("DROP USER kea", "ALTER USER kea NOADMIN"):
                with pytest.raises(volary.InvalidArgumentError, match="would have no administrator"):
                    kea.sql(statement)


def test_users_are_there_after_a_restart_and_a_password_in_the_settings_is_the_administrators(tmp_path):
    new = "another password"
    with (
        LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}'")
        admin.sql("CREATE TABLE t (k BIGINT)")
        admin.sql("GRANT SELECT ON t TO kea")
    with LocalCluster(tmp_path, workers=1) as cluster:
        with volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea:
            assert kea.sql("SELECT * FROM t").rows() == []
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql("SELECT 1")
    with LocalCluster(tmp_path, workers=1, settings={"VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": new}) as cluster:
        with pytest.raises(volary.UnauthenticatedError):
            volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD).sql("SELECT 1")
        with volary.connect(cluster.uri, username="admin", password=new) as admin:
            assert admin.sql("SELECT count(*) FROM system.users").rows() == [(2,)]


def test_a_password_that_is_none_is_refused_and_not_repeated(admin):
    for password in ("short", "x" * 2000):
        with pytest.raises(volary.InvalidArgumentError, match="at least 8") as caught:
            admin.sql(f"CREATE USER shorty PASSWORD '{password}'")
        assert password not in str(caught.value)


def test_failed_logins_slow_down(secured, user):
    name = user().name

    def log_in(password: str) -> str:
        with pytest.raises(volary.UnauthenticatedError) as caught:
            volary.connect(secured.uri, username=name, password=password).sql("SELECT 1")
        return str(caught.value)

    # The first wait is short, and may be over before the next login of a slow machine. Then the next wait is longer.
    waits = re.compile(r"(\d+) logins of this user from this address have failed; try again in")
    messages = [log_in("wrong password") for _ in range(5)]
    assert not any(waits.search(message) for message in messages)
    failed = until(lambda: waits.search(log_in("wrong password")), "a wrong password has to wait")
    assert int(failed[1]) >= 5

    def is_kept_out() -> bool:
        """Returns whether the right password has to wait, too. If it is taken, the failures are forgotten."""
        log_in("wrong password")
        try:
            volary.connect(secured.uri, username=name, password=PASSWORD).sql("SELECT 1")
        except volary.UnauthenticatedError as error:
            return "try again in" in str(error)
        return False

    until(is_kept_out, "a right password has to wait like a wrong one")

    def lets_in() -> bool:
        try:
            volary.connect(secured.uri, username=name, password=PASSWORD).sql("SELECT 1").rows()
        except volary.UnauthenticatedError:
            return False
        return True

    until(lets_in, "the wait is over")
    # Other users were never kept out.
    user().sql("SELECT 1")


AT_ONCE = 128
FLOOD_SECONDS = 5 * PATIENCE_SECONDS


def test_a_flood_of_wrong_passwords_does_not_reveal_which_users_exist(secured, admin):
    """The reason why a single call is refused is random. Over time, users and unknown names get the same answers."""
    half = AT_ONCE // 2
    known = [f"flooded_{number}" for number in range(half)]
    unknown = [f"nobody_{number}" for number in range(half)]
    for name in known:
        admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
    # Known and unknown names alternate.
    names = list(itertools.chain.from_iterable(zip(known, unknown, strict=True)))
    refused: dict[bool, set[tuple[grpc.StatusCode, str]]] = {True: set(), False: set()}
    with Flight(secured.uri) as gateway, ThreadPoolExecutor(AT_ONCE) as clients:

        def log_in(name: str) -> None:
            answer = gateway.call("Handshake", b"", authorization=basic(name, "a wrong password"))
            assert "authorization" not in answer.headers
            assert not any(answer.messages)
            refused[name in known].add((answer.code, re.sub(r"\d+", "n", answer.text)))

        def all_have_been_refused_alike() -> bool:
            list(clients.map(log_in, names))
            # Some are refused because of their password, and some because too many calls wait.
            return refused[True] == refused[False] and len(refused[True]) > 1

        until(all_have_been_refused_alike, "users and others are refused alike", seconds=FLOOD_SECONDS)
    codes = {code for code, _ in refused[True]}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert all(name not in text for _, text in refused[True] for name in ("flooded", "nobody"))
    # No user is kept out forever.
    until(lambda: lets_in(secured, known[0]), "the user is let in again", seconds=FLOOD_SECONDS)


def lets_in(secured: LocalCluster, name: str) -> bool:
    """Returns whether a user can log in now with the right password."""
    try:
        with volary.connect(secured.uri, username=name, password=PASSWORD) as connection:
            return connection.sql("SELECT 1").rows() == [(1,)]
    except (volary.UnauthenticatedError, volary.ResourceExhaustedError):
        return False


# Sessions and tokens


@pytest.mark.parametrize("most", [40, 400])
def test_a_user_who_begins_many_sessions_ends_none_of_another_user(tmp_path, most):
    settings = SECURED | {"VOLARY_GATEWAY__QUERY__MAX_SESSIONS": str(most)}
    timezone = "SHOW timezone"
    with (
        LocalCluster(tmp_path, workers=1, settings=settings) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
        Flight(cluster.uri) as gateway,
    ):
        for name in ("kea", "flooder"):
            admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")

        def begin_a_session() -> None:
            answer = gateway.call("Handshake", b"", authorization=basic("flooder", PASSWORD))
            assert answer.code == OK, answer
            shown = answer.headers["authorization"]
            # A session exists from its first statement on.
            asked = gateway.call("GetFlightInfo", descriptor(b"SELECT 1"), authorization=shown)
            assert asked.code == OK, asked

        with (
            volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea,
            volary.connect(cluster.uri, username="flooder", password=PASSWORD) as first,
        ):
            default = kea.sql(timezone).rows()
            for connection in (kea, first):
                connection.sql("SET timezone = '+02:00'")
            set_ = kea.sql(timezone).rows()
            assert set_ == first.sql(timezone).rows() != default

            def has_forgotten_its_own() -> bool:
                for _ in range(most):
                    begin_a_session()
                return first.sql(timezone).rows() == default

            until(has_forgotten_its_own, "the flooder's first session is forgotten")
            assert kea.sql(timezone).rows() == set_


def test_sessions_end_when_the_password_changes_or_the_user_is_dropped(secured, admin, user):
    kea = user()
    kea.sql(f"ALTER USER {kea.name} PASSWORD 'one of its own'")
    with pytest.raises(volary.UnauthenticatedError, match="log in again"):
        kea.sql("SELECT 1")
    with pytest.raises(volary.UnauthenticatedError):
        volary.connect(secured.uri, username=kea.name, password=PASSWORD).sql("SELECT 1")
    with volary.connect(secured.uri, username=kea.name, password="one of its own") as again:
        again.sql("SELECT 1")
        admin.sql(f"DROP USER {kea.name}")
        admin.sql(f"CREATE USER {kea.name} PASSWORD 'one of its own'")
        with pytest.raises(volary.UnauthenticatedError, match="log in again"):
            again.sql("SELECT 1")


def test_a_token_of_a_session_is_replaced_before_it_expires_and_expires_if_nobody_comes(tmp_path):
    settings = SECURED | {"VOLARY_GATEWAY__SECURITY__TOKEN_LIFETIME": "3s"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, flight.connect(cluster.uri) as client:
        first = client.authenticate_basic_token("admin", ADMIN_PASSWORD)

        def works(header: tuple[bytes, bytes]) -> bool:
            try:
                client.list_actions(flight.FlightCallOptions(headers=[header]))
            except flight.FlightUnauthenticatedError as error:
                return "expired" not in str(error)
            return True

        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as connection:
            connection.sql("SET timezone = '+02:00'")

            def outlived() -> bool:
                # The driver takes over the new token from an answer, and the session continues.
                assert connection.sql("SHOW timezone").rows() == [("volary.time_zone", "+02:00")]
                return not works(first)

            until(outlived, "the first token has expired")
            assert connection.sql("SELECT 1").rows() == [(1,)]


def test_a_token_is_shown_once_and_works_until_it_is_dropped(secured, admin, user):
    kea = user()
    (row,) = kea.sql("CREATE TOKEN nightly_kea VALID FOR '90 days'").to_arrow().to_pylist()
    token = row["token"]
    assert row["name"] == "nightly_kea"
    assert row["user"] == kea.name
    assert row["expires_at"] is not None
    with volary.connect(secured.uri, token=token) as service:
        assert service.sql("SELECT user_name FROM system.queries").rows() == [(kea.name,)]
        service.sql("SET timezone = '+02:00'")
        assert service.sql("SHOW timezone").rows()[0][1] == "+02:00"
        assert kea.sql("SELECT name, user_name FROM system.tokens").rows() == [("nightly_kea", kea.name)]
        assert user().sql("SELECT count(*) FROM system.tokens").rows() == [(0,)]
        with denied("tokens of other users"):
            user().sql("DROP TOKEN nightly_kea")
        kea.sql("DROP TOKEN nightly_kea")
        with pytest.raises(volary.UnauthenticatedError, match="dropped"):
            service.sql("SELECT 1")
    with pytest.raises(volary.NotFoundError):
        kea.sql("DROP TOKEN nightly_kea")
    kea.sql("DROP TOKEN IF EXISTS nightly_kea")
    with denied("for other users"):
        kea.sql("CREATE TOKEN of_another FOR admin")
    (row,) = admin.sql(f"CREATE TOKEN brief FOR {kea.name} VALID FOR '1ms'").to_arrow().to_pylist()
    with pytest.raises(volary.UnauthenticatedError, match='"brief" has expired'):
        volary.connect(secured.uri, token=row["token"]).sql("SELECT 1")
    for text in (token, row["token"]):
        assert text.removeprefix("volary-token-") not in secured.log()


# What users may do


def said(connection: volary.Connection, statement: str) -> tuple[type[volary.Error], str]:
    """Returns the error of a statement without the id of its query."""
    with pytest.raises(volary.Error) as caught:
        connection.sql(statement).rows()
    return type(caught.value), re.sub(r"query \S+:", "", str(caught.value))


def test_a_table_that_nobody_has_granted_does_not_exist(admin, user, table):
    kea = user("CREATE")
    for statement in (
        "SELECT * FROM {}",
        "SELECT 1 WHERE EXISTS (SELECT * FROM {})",
        "WITH t AS (SELECT * FROM public.{}) SELECT 1 FROM t",
        "EXPLAIN SELECT * FROM volary.public.{}",
        "EXPLAIN ANALYZE SELECT count(*) FROM {}",
        "DESCRIBE {}",
        "INSERT INTO {} VALUES (4, 40)",
        "INSERT INTO {0} SELECT * FROM {0}",
        "COPY {} FROM '/tmp/x.parquet'",
        "CREATE VIEW v_of AS SELECT * FROM {}",
        "DROP TABLE {}",
        "DROP VIEW {}",
        f"ALTER TABLE {{}} OWNER TO {kea.name}",
        f"GRANT SELECT ON {{}} TO {kea.name}",
    ):
        error, of_hidden = said(kea, statement.format(table))
        assert (error, of_hidden.replace(table, "eggs_0")) == said(kea, statement.format("eggs_0")), statement
        assert error is volary.NotFoundError
        assert f'GRANT SELECT ON "{table}" TO "{kea.name}"' in of_hidden
    kea.sql(f"DROP TABLE IF EXISTS {table}")
    for statement in (
        "CREATE TABLE {} (k BIGINT)",
        "CREATE OR REPLACE TABLE {} (k BIGINT)",
        "CREATE VIEW {} AS SELECT 1",
    ):
        error, text = said(kea, statement.format(table))
        assert (error, "exists already" in text, "admin" in text) == (volary.AlreadyExistsError, True, False), statement
    assert admin.sql(f"SELECT count(*) FROM {table}").rows() == [(3,)]


def test_a_user_may_do_nothing_that_was_not_granted(admin, user, table):
    kea = user(f"INSERT ON {table}")
    for statement, words in {
        f"SELECT * FROM {table}": ("SELECT", f'GRANT SELECT ON "{table}" TO "{kea.name}"'),
        f"SELECT 1 WHERE EXISTS (SELECT * FROM {table})": ("SELECT",),
        f"WITH t AS (SELECT * FROM public.{table}) SELECT 1 FROM t": ("SELECT",),
        f"EXPLAIN SELECT * FROM volary.public.{table}": ("SELECT",),
        f"EXPLAIN ANALYZE SELECT count(*) FROM {table}": ("SELECT",),
        f"DESCRIBE {table}": ("SELECT",),
        f"INSERT INTO {table} SELECT * FROM {table}": ("SELECT",),
        f"CREATE VIEW v_{table} AS SELECT * FROM {table}": ("SELECT",),
        f"CREATE VIEW v_{table} AS SELECT 1": ("create tables",),
        f"CREATE TABLE c_{table} (k BIGINT)": ("create tables",),
        f"CREATE TABLE c_{table} AS SELECT 1 AS k": ("create tables",),
        f"CREATE OR REPLACE TABLE {table} (k BIGINT)": ("create tables",),
        f"DROP TABLE {table}": ("belongs to",),
        f"DROP TABLE IF EXISTS {table}": ("belongs to",),
        f"ALTER TABLE {table} OWNER TO {kea.name}": ("belongs to",),
        f"GRANT SELECT ON {table} TO {kea.name}": ("belongs to",),
        f"GRANT SELECT ON ALL TABLES TO {kea.name}": ("administrator",),
        f"GRANT CREATE TO {kea.name}": ("administrator",),
        "CREATE USER another": ("administrator",),
        "CREATE ROLE another": ("administrator",),
        "DROP USER admin": ("administrator",),
        f"ALTER USER {kea.name} ADMIN": ("administrator",),
        "ALTER USER admin PASSWORD 'taken over'": ("administrator",),
    }.items():
        with denied(*words):
            kea.sql(statement)
    assert admin.sql(f"SELECT count(*) FROM {table}").rows() == [(3,)]


def test_a_grant_holds_until_it_is_revoked(admin, user, table):
    kea = user(f"SELECT ON {table}")
    point = f"SELECT v FROM {table} WHERE k = ?"
    for key in (1, 2, 3, 1):  # also with a stored plan
        assert kea.sql(point, [key]).rows() == [(key * 10,)]
    with denied("INSERT"):
        kea.sql(f"INSERT INTO {table} VALUES (4, 40)")
    # Other users cannot use the grant, not even through an existing plan.
    with hidden(table):
        user().sql(point, [1])
    admin.sql(f"GRANT INSERT ON {table} TO {kea.name}")
    kea.sql(f"INSERT INTO {table} SELECT k + 3, v FROM {table} WHERE k = 1")
    admin.sql(f"REVOKE SELECT ON {table} FROM {kea.name}")
    with denied("SELECT"):
        kea.sql(point, [1])
    with denied("SELECT"):
        kea.sql(f"INSERT INTO {table} SELECT * FROM {table}")
    kea.sql(f"INSERT INTO {table} VALUES (5, 50)")
    admin.sql(f"REVOKE ALL ON {table} FROM {kea.name}")
    with hidden(table):
        kea.sql(f"INSERT INTO {table} VALUES (6, 60)")
    assert admin.sql(f"SELECT count(*) FROM {table}").rows() == [(5,)]


@pytest.mark.parametrize(
    "change",
    [
        "GRANT SELECT ON {table} TO undone",
        "ALTER USER undone PASSWORD 'another password of a user'",
        "CREATE TOKEN undone FOR undone",
        "ALTER TABLE {table} OWNER TO undone",
    ],
)
def test_a_rollback_of_rights_is_refused_because_they_are_committed(secured, admin, table, change):
    admin.sql(f"CREATE USER undone PASSWORD '{PASSWORD}'")
    try:
        with flight.connect(secured.uri) as client:
            options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("admin", ADMIN_PASSWORD)])
            for query in ("BEGIN", change.format(table=table)):
                client.get_flight_info(flight_sql.statement(query), options)
            with pytest.raises(pa.ArrowInvalid, match="1 since BEGIN made changes"):
                client.get_flight_info(flight_sql.statement("ROLLBACK"), options)
    finally:
        admin.sql("DROP TOKEN IF EXISTS undone")
        admin.sql(f"ALTER TABLE {table} OWNER TO admin")
        admin.sql("DROP USER undone")


def test_roles_give_what_they_were_granted(secured, admin, user, table):
    readers, writers = f"readers_{next(_numbers)}", f"writers_{next(_numbers)}"
    admin.sql(f"CREATE ROLE {readers}")
    admin.sql(f"CREATE ROLE {writers}")
    admin.sql(f"GRANT SELECT ON {table} TO {readers}")
    admin.sql(f"GRANT INSERT ON {table} TO {writers}")
    admin.sql(f"GRANT {readers} TO {writers}")
    kea = user(writers)
    kea.sql(f"INSERT INTO {table} VALUES (4, 40)")
    assert kea.sql(f"SELECT count(*) FROM {table}").rows() == [(4,)]
    with pytest.raises(volary.InvalidArgumentError, match="itself has the role"):
        admin.sql(f"GRANT {writers} TO {readers}")
    assert kea.sql("SELECT grantee, privilege, object FROM system.grants ORDER BY 1, 2").rows() == sorted(
        [
            (kea.name, "MEMBER", writers),
            (readers, "SELECT", table),
            (writers, "INSERT", table),
            (writers, "MEMBER", readers),
        ]
    )
    admin.sql(f"DROP ROLE {readers}")
    with denied("SELECT"):
        kea.sql(f"SELECT count(*) FROM {table}")
    with pytest.raises(volary.UnauthenticatedError):
        volary.connect(secured.uri, username=writers, password="").sql("SELECT 1")
    admin.sql(f"GRANT SELECT ON {table} TO PUBLIC")
    assert user().sql(f"SELECT count(*) FROM {table}").rows() == [(4,)]
    admin.sql(f"REVOKE SELECT ON {table} FROM public")


def test_grants_on_all_tables_are_for_later_ones_too_and_those_on_one_end_with_it(admin, user, table):
    one, every = user(f"SELECT ON {table}"), user("SELECT ON ALL TABLES")
    later = f"later_{table}"
    admin.sql(f"CREATE TABLE {later} AS SELECT 7 AS k")
    assert every.sql(f"SELECT * FROM {later}").rows() == [(7,)]
    admin.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT 8 AS k")
    assert one.sql(f"SELECT * FROM {table}").rows() == [(8,)]
    for name in (table, later):
        admin.sql(f"DROP TABLE {name}")
    admin.sql(f"CREATE TABLE {table} AS SELECT 9 AS k")
    with hidden(table):
        one.sql(f"SELECT * FROM {table}")


def test_who_creates_a_table_owns_it(admin, user, table):
    kea, auk = user("CREATE"), user("CREATE")
    name, view = f"own_{table}", f"view_{table}"
    kea.sql(f"CREATE TABLE {name} AS SELECT 1 AS k")
    kea.sql(f"INSERT INTO {name} VALUES (2)")
    kea.sql(f"CREATE VIEW {view} AS SELECT k FROM {name}")
    assert kea.sql(f"SELECT owner FROM system.tables WHERE name = '{name}'").rows() == [(kea.name,)]
    for of_whom in (name, view):
        kea.sql(f"GRANT SELECT ON {of_whom} TO {auk.name}")
    for statement in (f"DROP TABLE {name}", f"DROP VIEW {view}", f"CREATE OR REPLACE TABLE {name} AS SELECT 1 AS k"):
        with denied("belongs to", kea.name):
            auk.sql(statement)
    kea.sql(f"REVOKE SELECT ON {name} FROM {auk.name}")
    # A view reads with the rights of its owner.
    assert sorted(auk.sql(f"SELECT * FROM {view}").rows()) == [(1,), (2,)]
    with hidden(name):
        auk.sql(f"SELECT * FROM {name}")
    with pytest.raises(volary.InvalidArgumentError, match="owns"):
        admin.sql(f"DROP USER {kea.name}")
    # A view would read with the rights of its new owner, so nobody may give it to another user.
    with denied("administrator"):
        kea.sql(f"ALTER VIEW {view} OWNER TO {auk.name}")
    admin.sql(f"ALTER TABLE {name} OWNER TO {auk.name}")
    with denied(f"view {view}", f'"{name}"'):
        kea.sql(f"SELECT * FROM {view}")
    auk.sql(f"INSERT INTO {name} VALUES (3)")
    admin.sql(f"ALTER VIEW {view} OWNER TO {auk.name}")
    assert sorted(auk.sql(f"SELECT * FROM {view}").rows()) == [(1,), (2,), (3,)]
    admin.sql(f"DROP USER {kea.name}")
    auk.sql(f"DROP VIEW {view}")
    auk.sql(f"DROP TABLE {name}")


def test_rows_are_ingested_with_the_right_to(secured, admin, user, table):
    kea = user()
    rows = pa.table({"k": [4], "v": [40]})
    with hidden(table):
        kea.ingest(table, rows, mode="append")
    for mode in ("create", "replace"):
        with denied("create tables"):
            kea.ingest(f"new_{table}", rows, mode=mode)
    admin.sql(f"GRANT INSERT ON {table} TO {kea.name}")
    kea.ingest(table, rows, mode="append")
    admin.sql(f"GRANT CREATE TO {kea.name}")
    with denied("belongs to"):
        kea.ingest(table, rows, mode="replace")
    kea.ingest(f"new_{table}", rows, mode="create")
    kea.ingest(f"new_{table}", rows, mode="replace")
    kea.sql(f"DROP TABLE new_{table}")


def test_nobody_is_told_of_tables_that_are_not_theirs(secured, admin, user, table):
    kea, reader = user(), user(f"SELECT ON {table}")
    listings = [
        "SHOW TABLES",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT name FROM system.tables",
        "SELECT table_name FROM system.shards",
        "SELECT table_name FROM system.segments",
    ]

    def listed(connection: volary.Connection, query: str) -> bool:
        return any(table in row for row in connection.sql(query).rows())

    for query in listings:
        assert listed(reader, query), query
        assert listed(admin, query), query
        assert not listed(kea, query), query
    with pytest.raises(volary.NotFoundError) as caught:
        kea.sql(f"SELECT * FROM {table}_")
    assert f'"{table}"' not in str(caught.value)
    with pytest.raises(volary.NotFoundError, match=f'did you mean "{table}"'):
        reader.sql(f"SELECT * FROM {table}_")
    for connection, is_listed in ((kea, False), (reader, True)):
        with flight.connect(secured.uri) as client:
            header = client.authenticate_basic_token(connection.name, PASSWORD)
            options = flight.FlightCallOptions(headers=[header])
            names = [info.descriptor.path[-1].decode() for info in client.list_flights(options=options)]
            assert (table in names) == is_listed
            command = flight.FlightDescriptor.for_command(pb.command("CommandGetTables", b""))
            ticket = client.get_flight_info(command, options).endpoints[0].ticket
            names = client.do_get(ticket, options).read_all()["table_name"].to_pylist()
            assert (table in names) == is_listed


# Objects that belong to one user


def test_tickets_and_handles_are_their_users_alone(secured, admin, user, table):
    kea, auk = user(f"SELECT ON {table}"), user(f"SELECT ON {table}")
    with flight.connect(secured.uri) as client:
        mine, others = (
            flight.FlightCallOptions(headers=[client.authenticate_basic_token(who.name, PASSWORD)])
            for who in (kea, auk)
        )
        query = f"SELECT k FROM {table} ORDER BY k"
        info = client.get_flight_info(flight.FlightDescriptor.for_command(query.encode()), mine)
        (endpoint,) = info.endpoints
        tables = flight.FlightDescriptor.for_command(pb.command("CommandGetTables", b""))
        for ticket in (endpoint.ticket, client.get_flight_info(tables, mine).endpoints[0].ticket):
            with pytest.raises(flight.FlightUnauthorizedError, match="another user"):
                client.do_get(ticket, others).read_all()
        cancel = flight.Action("CancelFlightInfo", pb.field(1, info.serialize()))
        renew = flight.Action("RenewFlightEndpoint", pb.field(1, endpoint.serialize()))
        for action in (cancel, renew):
            with pytest.raises(flight.FlightUnauthorizedError, match="another user"):
                list(client.do_action(action, others))
        # With only its id, the query is not found.
        by_id = flight.FlightInfo(info.schema, info.descriptor, [], -1, -1, app_metadata=info.app_metadata)
        with pytest.raises(pa.ArrowException, match="does not run here"):
            list(client.do_action(flight.Action("CancelFlightInfo", pb.field(1, by_id.serialize())), others))
        for _ in range(2):
            assert client.do_get(endpoint.ticket, mine).read_all()["k"].to_pylist() == [1, 2, 3]

        prepare = flight.Action(
            "CreatePreparedStatement", pb.command("ActionCreatePreparedStatementRequest", pb.field(1, query))
        )
        (result,) = client.do_action(prepare, mine)
        handle = pb.fields(pb.fields(result.body.to_pybytes())[2])[1]
        prepared = flight.FlightDescriptor.for_command(pb.command("CommandPreparedStatementQuery", pb.field(1, handle)))
        with pytest.raises(flight.FlightUnauthorizedError, match="another user"):
            client.get_flight_info(prepared, others)
        assert client.get_flight_info(prepared, mine).schema.names == ["k"]


def test_a_ticket_gives_nothing_that_was_revoked_since(secured, admin, user, table):
    kea = user(f"SELECT ON {table}")
    with flight.connect(secured.uri) as client:
        options = flight.FlightCallOptions(headers=[client.authenticate_basic_token(kea.name, PASSWORD)])
        query = flight.FlightDescriptor.for_command(f"SELECT k FROM {table}".encode())
        ticket = client.get_flight_info(query, options).endpoints[0].ticket
        admin.sql(f"REVOKE SELECT ON {table} FROM {kea.name}")
        with pytest.raises(KeyError, match="may not see it"):
            client.do_get(ticket, options).read_all()
        admin.sql(f"GRANT SELECT ON {table} TO {kea.name}")
        assert client.do_get(ticket, options).read_all().num_rows == 3


def test_a_described_query_reads_nothing_that_was_revoked_since(secured, admin, user, table):
    kea = user(f"SELECT ON {table}")
    with flight.connect(secured.uri) as client:
        options = flight.FlightCallOptions(headers=[client.authenticate_basic_token(kea.name, PASSWORD)])
        handle = flight_sql.prepared(client, f"SELECT k FROM {table} WHERE k > 0 AND k < 3", options)[1]
        assert flight_sql.rows(client, flight_sql.prepared_command(handle), options).num_rows == 2
        admin.sql(f"REVOKE SELECT ON {table} FROM {kea.name}")
        for _ in range(2):
            with pytest.raises(KeyError, match="may not see it"):
                flight_sql.rows(client, flight_sql.prepared_command(handle), options)
        admin.sql(f"GRANT SELECT ON {table} TO {kea.name}")
        assert flight_sql.rows(client, flight_sql.prepared_command(handle), options).num_rows == 2


def test_a_described_query_has_the_name_of_its_user(secured, admin, user, table):
    # Administrators share plans.
    users = [user().name for _ in range(2)]
    for name in users:
        admin.sql(f"ALTER USER {name} ADMIN")
    query = f"SELECT current_user AS who FROM {table} WHERE k > 0 AND k < 2"
    with flight.connect(secured.uri) as client:
        for name in users:
            options = flight.FlightCallOptions(headers=[client.authenticate_basic_token(name, PASSWORD)])
            handle = flight_sql.prepared(client, query, options)[1]
            for _ in range(2):
                found = flight_sql.rows(client, flight_sql.prepared_command(handle), options)
                assert found["who"].to_pylist() == [name]


@contextmanager
def held_back(client, options, statement: str) -> Iterator[None]:
    """Sends a statement whose upload ends with the context. The statement runs only then."""
    prepare = flight.Action(
        "CreatePreparedStatement", pb.command("ActionCreatePreparedStatementRequest", pb.field(1, statement))
    )
    (result,) = client.do_action(prepare, options)
    handle = pb.fields(pb.fields(result.body.to_pybytes())[2])[1]
    update = pb.command("CommandPreparedStatementUpdate", pb.field(1, handle))
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(update), pa.schema([]), options)
    yield
    writer.done_writing()
    reader.read()
    writer.close()


def test_a_statement_has_the_rights_of_when_it_runs(secured, admin, user, table):
    kea = user("CREATE", f"SELECT ON {table}")
    with flight.connect(secured.uri) as client:
        options = flight.FlightCallOptions(
            headers=[client.authenticate_basic_token(kea.name, PASSWORD)], timeout=PATIENCE_SECONDS
        )
        with (
            pytest.raises(KeyError, match="may not see it"),
            held_back(client, options, f"CREATE TABLE copy_of_{table} AS SELECT * FROM {table}"),
        ):
            admin.sql(f"REVOKE SELECT ON {table} FROM {kea.name}")
        with (
            pytest.raises(flight.FlightUnauthenticatedError, match="log in again"),
            held_back(client, options, f"CREATE TABLE copy_of_{table} (k BIGINT)"),
        ):
            admin.sql(f"DROP USER {kea.name}")
    assert admin.sql(f"SELECT count(*) FROM system.tables WHERE name = 'copy_of_{table}'").rows() == [(0,)]


def test_nobody_becomes_an_administrator_by_a_statement_from_before_there_were_users(tmp_path):
    with LocalCluster(tmp_path, workers=1) as cluster, flight.connect(cluster.uri) as client:
        options = flight.FlightCallOptions(timeout=PATIENCE_SECONDS)
        with (
            pytest.raises(flight.FlightUnauthenticatedError, match="log in again"),
            held_back(client, options, f"CREATE USER eve PASSWORD '{PASSWORD}' ADMIN"),
            cluster.connect() as stranger,
        ):
            stranger.sql(f"CREATE USER kea PASSWORD '{PASSWORD}' ADMIN")
        with volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea:
            assert kea.sql("SELECT name FROM system.users").rows() == [("kea",)]


def test_statements_are_seen_and_ended_by_their_users_and_by_administrators(admin, user, background):
    kea, auk = user(), user()
    endless = "SELECT count(*) FROM generate_series(1, 9000000000000000000) t(n) WHERE n % 7 = 3"
    kea.sql("SET statement_timeout = '10m'")
    running = background(lambda: kea.sql(endless).rows())

    def queries(connection: volary.Connection) -> set[str]:
        """Returns the ids of the query. If it is planned in one call and run in another, it may be listed twice."""
        rows = connection.sql("SELECT query_id, statement FROM system.queries").rows()
        return {query_id for query_id, statement in rows if statement == endless}

    (query_id,) = until(lambda: queries(admin), "it runs")
    try:
        assert queries(auk) == set()
        with pytest.raises(volary.NotFoundError, match="belongs to another user"):
            auk.sql(f"KILL '{query_id}'")
    finally:
        admin.sql(f"KILL '{query_id}'")
    with pytest.raises(volary.CancelledError):
        running.result()
    logged = "SELECT count(*) FROM system.query_log WHERE query_id = '{}'"
    assert auk.sql(logged.format(query_id)).rows() == [(0,)]
    assert kea.sql(logged.format(query_id)).rows() == [(1,)]


# Secrets


def test_lists_and_logs_carry_no_secret(secured, admin, user):
    kea = user()
    secrets = ["a very secret one", "se''cret text"]
    admin.sql(f"CREATE USER {kea.name}_2 PASSWORD '{secrets[0]}'")
    admin.sql(f"ALTER USER {kea.name}_2 PASSWORD '{secrets[1]}'")
    for refused in (
        f"CREATE USER {kea.name}_2 PASSWORD '{secrets[0]}'",
        f"CREATE USER {kea.name}_3 PASSWORD '{secrets[0]}' SUPERUSER",
        f"CREATE USER {kea.name}_3 PASSWORD '{secrets[0]}",
        f"CREATE OR REPLACE USER {kea.name}_3 PASSWORD = '{secrets[0]}'",
        f"EXPLAIN CREATE USER {kea.name}_3 PASSWORD = '{secrets[0]}'",
        f"ALTER USER {kea.name}_2 IDENTIFIED BY '{secrets[0]}'",
        f"ALTER ROLE {kea.name}_2 PASSWORD '{secrets[0]}'",
    ):
        with pytest.raises(volary.Error) as caught:
            admin.sql(refused)
        assert "cret" not in str(caught.value)
    listed = "SELECT count(*) FROM system.query_log WHERE {} LIKE '%cret%'"
    for column in ("statement", "error"):
        assert admin.sql(listed.format(column)).rows() == [(0,)]
    assert admin.sql(f"SELECT count(*) FROM system.query_log WHERE statement LIKE '%{kea.name}_2%'").rows()[0][0] >= 3
    log = secured.log()
    assert kea.name in log
    for secret in ("secret one", "cret text", ADMIN_PASSWORD, PASSWORD, "volary-bearer-", "argon2id$"):
        assert secret not in log, secret


def test_the_command_line_logs_in(secured, admin, user, tmp_path):
    kea = user()
    gateway = f"--gateway={secured.uri}"
    query = ["sql", gateway, "--output=json", "SELECT user_name FROM system.queries"]
    named = run("volary", *query, f"--user={kea.name}", settings={"VOLARY_PASSWORD": PASSWORD})
    assert json.loads(named.out) == {"user_name": kea.name}
    for arguments, settings, words in (
        ([f"--user={kea.name}"], {"VOLARY_PASSWORD": "wrong password"}, "check both"),
        ([f"--user={kea.name}"], {}, "VOLARY_PASSWORD"),
        ([], {}, "UNAUTHENTICATED"),
        ([], {"VOLARY_TOKEN": "volary-token-00"}, "CREATE TOKEN"),
    ):
        refused = run("volary", *query, *arguments, settings=settings)
        assert refused.code != 0
        assert words in refused.err
    (row,) = kea.sql(f"CREATE TOKEN cli_{kea.name}").to_arrow().to_pylist()
    file = tmp_path / "token"
    file.write_text(row["token"] + "\n")
    for arguments, settings in (([f"--token-file={file}"], {}), ([], {"VOLARY_TOKEN": row["token"]})):
        assert json.loads(run("volary", *query, *arguments, settings=settings).out) == {"user_name": kea.name}
    assert run("volary", "status", gateway, f"--token-file={file}").code == 0


def test_workers_join_a_cluster_with_users(tmp_path):
    settings = SECURED | {"VOLARY_SECRET": "the secret of the nodes"}
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        with volary.connect(processes.gateway.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql("CREATE TABLE t AS SELECT 7 AS k")
            assert admin.sql("SELECT k FROM t").rows() == [(7,)]


def test_users_need_a_secret_without_which_any_process_could_be_a_worker(tmp_path):
    with Processes(tmp_path) as processes:
        processes.add_worker()
        create = f"CREATE USER kea PASSWORD '{PASSWORD}' ADMIN"
        with pytest.raises(volary.InvalidArgumentError, match="volary secret new"):
            processes.sql(create)
        processes.sql("CREATE ROLE flock")
        assert processes.sql("SELECT 1") == [(1,)]
        gateway = processes.gateway
        gateway.running().stop()
        settings = dict(processes.settings)
        try:
            # Users in the settings need a secret, and so do users in the catalog.
            processes.settings |= {"VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD}
            assert "volary secret new" in refusal(gateway)
            processes.settings |= {"VOLARY_SECRET": "the secret of the nodes"}
            gateway.start()
            gateway.running().stop()
        finally:
            processes.settings.clear()
            processes.settings.update(settings)
        assert "volary secret new" in refusal(gateway)


def refusal(node: Node) -> str:
    """Returns why a node does not start."""
    _, said = node.begin(["gateway", "--listen=127.0.0.1:0"]).await_failure()
    return said


def test_a_secret_that_could_be_guessed_is_refused(tmp_path):
    first, second = (run("volary", "secret", "new").out.strip() for _ in range(2))
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert first != second
    for secret in (first[:31], "hunter2", "aGVsbG8gd29ybGQgYW5k"):
        refused = run("volary", "gateway", f"--data-dir={tmp_path / 'refused'}", settings={"VOLARY_SECRET": secret})
        assert refused.code != 0
        assert "gateway.secret is so short" in refused.err
        assert secret not in refused.err
    with Processes(tmp_path, {"VOLARY_SECRET": first}) as processes:
        processes.add_worker()


def test_a_local_cluster_makes_a_secret_and_keeps_it(tmp_path):
    secrets = []
    for _ in range(2):
        with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
            assert connection.sql("SELECT 1").rows() == [(1,)]
        file = tmp_path / "data" / "secret"
        assert file.stat().st_mode & 0o777 == 0o600
        secrets.append(file.read_text())
    assert secrets[0] == secrets[1]
    assert re.fullmatch("[0-9a-f]{64}\n", secrets[0])


def test_strangers_of_other_machines_are_refused_as_long_as_there_are_no_users(tmp_path, other_address):
    settings = {"VOLARY_SECRET": "the secret of the nodes"}
    for allowed in (False, True):
        directory = tmp_path / str(allowed)
        directory.mkdir()
        settings["VOLARY_GATEWAY__SECURITY__ALLOW_ANONYMOUS"] = str(allowed).lower()
        with LocalCluster(directory, workers=1, settings=settings, listen="0.0.0.0:0") as cluster:
            port = cluster.uri.rsplit(":", 1)[1]
            with volary.connect(f"grpc://127.0.0.1:{port}") as here:
                assert here.sql("SELECT 1").rows() == [(1,)]
            there = f"grpc://{other_address}:{port}"
            if allowed:
                assert volary.connect(there).sql("SELECT 1").rows() == [(1,)]
            else:
                with pytest.raises(volary.UnauthenticatedError, match="admin_password"):
                    volary.connect(there).sql("SELECT 1")
