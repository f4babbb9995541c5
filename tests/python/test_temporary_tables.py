"""Tests temporary tables: who finds them, with which clients, and when they end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import until

import volary
import volary.dbapi

pytestmark = pytest.mark.server

_numbers = itertools.count()

COOKIES = {DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}
ROWS = pa.table({"k": [1, 2], "name": ["kea", "tui"]})
# A client with credentials of its own and without cookies names no session.
# All rows go to segments at once, so that there are files.
SEGMENTS = {"VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B"}
API_KEY = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer key"}
CREATE = "CREATE TEMP TABLE nest (k BIGINT) WITH (shards = 2)"


def has_nest(connection: volary.Connection) -> bool:
    return connection.tables(schema="pg_temp") == ["nest"]


def segments(directory: Path) -> list[Path]:
    """Returns the files with rows below a cluster's directory."""
    return sorted(directory.rglob("*.parquet"))


# Clients


def test_two_sessions_have_a_table_of_the_same_name(cluster, connection):
    with cluster.connect() as other:
        for number, session in enumerate((connection, other)):
            session.sql(f"CREATE TEMP TABLE same AS SELECT {number} AS number")
        for number, session in enumerate((connection, other)):
            assert session.sql("SELECT number FROM same").rows() == [(number,)]
            assert session.tables(schema="pg_temp") == ["same"]
        other.sql("DROP TABLE same")
        assert connection.sql("SELECT number FROM same").rows() == [(0,)]
        with pytest.raises(volary.NotFoundError):
            other.sql("SELECT number FROM same")
    connection.sql("DROP TABLE same")


def test_rows_are_ingested_into_a_temporary_table(connection, birds):
    assert connection.ingest(birds, ROWS, temporary=True) == 2
    assert connection.sql(f"SELECT name FROM {birds} ORDER BY k").rows() == [("kea",), ("tui",)]
    with pytest.raises(volary.AlreadyExistsError):
        connection.ingest(birds, ROWS, mode="create", temporary=True)
    # An INSERT finds the temporary table, and so does an append.
    assert connection.ingest(birds, ROWS, mode="append") == 2
    assert connection.ingest(birds, ROWS, mode="append", schema="public") == 2
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(4,)]
    assert connection.sql(f"SELECT count(*) FROM public.{birds}").rows() == [(7,)]
    assert connection.ingest(birds, ROWS, mode="replace", temporary=True) == 2
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(2,)]
    connection.sql(f"DROP TABLE {birds}")
    assert connection.sql(f"SELECT count(*) FROM {birds}").rows() == [(7,)]


def test_adbc_has_temporary_tables_if_it_keeps_cookies(cluster, connection):
    with dbapi.connect(cluster.uri, db_kwargs=COOKIES, autocommit=True) as driver, driver.cursor() as cursor:
        assert cursor.adbc_ingest("kept", ROWS, mode="create", temporary=True) == 2
        for _ in range(4):
            cursor.execute("SELECT name FROM kept WHERE k = ?", (2,))
            assert cursor.fetchall() == [("tui",)]
        listed = driver.adbc_get_objects(depth="tables", db_schema_filter="pg_temp").read_all().to_pylist()
        ((schema,),) = (catalog["catalog_db_schemas"] for catalog in listed)
        assert [(it["table_name"], it["table_type"]) for it in schema["db_schema_tables"]] == [
            ("kept", "LOCAL TEMPORARY")
        ]
        assert "LOCAL TEMPORARY" in driver.adbc_get_table_types()
    with pytest.raises(volary.NotFoundError):
        connection.sql("SELECT name FROM kept")


def test_a_client_without_a_session_is_told_what_it_lacks(cluster):
    match = r"INVALID_ARGUMENT: .*this client names no session.*with_cookie_middleware"
    with dbapi.connect(cluster.uri, db_kwargs=API_KEY, autocommit=True) as driver, driver.cursor() as cursor:
        for statement in (CREATE, "CREATE TABLE pg_temp.nest (k BIGINT)", "CREATE TEMP VIEW nest AS SELECT 1 AS k"):
            with pytest.raises(dbapi.ProgrammingError, match=match):
                cursor.execute(statement)
        with pytest.raises(dbapi.ProgrammingError, match=match):
            cursor.adbc_ingest("nest", ROWS, mode="create", temporary=True)
        with pytest.raises(dbapi.ProgrammingError, match="there is no schema pg_temp"):
            cursor.execute("SELECT k FROM pg_temp.nest")


def test_what_was_planned_before_a_table_was_hidden_does_not_read_the_other_one(connection, birds):
    with volary.dbapi.connect(connection.uri) as client, client.cursor() as cursor:
        query = f"SELECT count(*) FROM {birds} WHERE k > ?"
        for _ in range(4):
            cursor.execute(query, (0,))
            assert cursor.fetchall() == [(5,)]
        cursor.execute(f"CREATE TEMP TABLE {birds} AS SELECT 1 AS k")
        for _ in range(4):
            cursor.execute(query, (0,))
            assert cursor.fetchall() == [(1,)]
        cursor.execute(f"DROP TABLE {birds}")
        cursor.execute(query, (0,))
        assert cursor.fetchall() == [(5,)]


def test_parts_of_a_result_are_fetched_from_the_workers(connection, name):
    connection.sql(f"CREATE TEMP TABLE {name} AS SELECT value AS k FROM generate_series(1, 1000)")
    assert connection.read_table(name, schema="pg_temp").num_rows == 1000


# The end of a session


def test_a_closed_session_leaves_no_table_and_no_file(tmp_path):
    with LocalCluster(tmp_path, workers=2, settings=SEGMENTS) as cluster, cluster.connect() as other:
        with cluster.connect() as connection:
            connection.sql("CREATE TEMP TABLE nest AS SELECT value AS k FROM generate_series(1, 100)")
            connection.sql("CREATE TEMP VIEW eggs AS SELECT k FROM nest")
            assert segments(tmp_path)
        until(lambda: not segments(tmp_path), "the files of the temporary table are deleted")
        assert other.sql("SELECT count(*) FROM system.tables").rows() == [(0,)]


def test_an_unused_session_loses_its_tables_and_one_whose_statement_runs_keeps_them(tmp_path):
    settings = {**SEGMENTS, "VOLARY_GATEWAY__TEMPORARY_TABLES__IDLE_TIMEOUT": "1s"}
    endless = "SELECT n.k FROM nest n CROSS JOIN generate_series(1, 1000000000)"
    with (
        LocalCluster(tmp_path, workers=1, settings=settings) as cluster,
        cluster.connect() as unused,
        cluster.connect() as used,
    ):

        def started() -> volary.Result | None:
            try:
                used.sql("CREATE TEMP TABLE IF NOT EXISTS nest AS SELECT 1 AS k")
                return used.sql(endless)
            except volary.NotFoundError:
                return None  # the machine is so slow that the table is dropped by now

        result = until(started, "a statement reads the temporary table")
        unused.sql("CREATE TEMP TABLE eggs AS SELECT 1 AS k")
        until(lambda: len(segments(tmp_path)) == 1, "the temporary table of the unused session is dropped")
        with pytest.raises(volary.NotFoundError):
            unused.sql("SELECT k FROM eggs")
        assert has_nest(used)
        result.close()
        until(lambda: not segments(tmp_path), "the other session is unused, too")
        until(lambda: unused.sql("CREATE OR REPLACE TEMP TABLE eggs AS SELECT 2 AS k"), "a session goes on")


def test_a_restart_drops_what_sessions_have_left(tmp_path):
    for _ in range(2):
        with LocalCluster(tmp_path, workers=2) as cluster:
            # The client does not close its session: the process ends before it does.
            connection = cluster.connect()
            connection.sql("CREATE TABLE IF NOT EXISTS kept (k BIGINT) WITH (shards = 2)")
            connection.sql("CREATE TEMP TABLE nest AS SELECT 1 AS k")
            cluster.kill()
    with LocalCluster(tmp_path, workers=2) as cluster, cluster.connect() as connection:
        assert connection.tables() == ["kept"]
        with pytest.raises(volary.NotFoundError):
            connection.sql("SELECT k FROM nest")
        until(lambda: not segments(tmp_path), "the files of the temporary tables are deleted")


# Users


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with users, who may have few temporary tables."""
    limits = {
        "VOLARY_GATEWAY__TEMPORARY_TABLES__MAX_TABLES": "8",
        "VOLARY_GATEWAY__TEMPORARY_TABLES__MAX_SIZE": "40KiB",
    }
    with LocalCluster(tmp_path_factory.mktemp("secured"), workers=2, settings={**SECURED, **limits}) as cluster:
        yield cluster


@pytest.fixture
def admin(secured: LocalCluster) -> Iterator[volary.Connection]:
    with volary.connect(secured.uri, username="admin", password=ADMIN_PASSWORD) as connection:
        yield connection


@pytest.fixture
def kea(secured: LocalCluster, admin: volary.Connection) -> Iterator[str]:
    """The name of a user who was granted nothing."""
    name = f"kea_{next(_numbers)}"
    admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
    yield name
    admin.sql(f"DROP USER IF EXISTS {name}")


def login(cluster: LocalCluster, user: str) -> volary.Connection:
    return volary.connect(cluster.uri, username=user, password=PASSWORD)


def test_whoever_may_log_in_has_temporary_tables_that_not_even_administrators_see(secured, admin, kea):
    with login(secured, kea) as own, login(secured, kea) as other:
        with pytest.raises(volary.PermissionDeniedError):
            own.sql("CREATE TABLE nest (k BIGINT)")
        own.sql(CREATE)
        own.sql("INSERT INTO nest VALUES (1)")
        assert own.sql("SELECT owner, rows FROM system.tables WHERE name = 'nest'").rows() == [(kea, 1)]
        for stranger in (other, admin):
            assert stranger.sql("SELECT count(*) FROM system.tables WHERE name = 'nest'").rows() == [(0,)]
            assert not has_nest(stranger)
            for statement in ("SELECT k FROM pg_temp.nest", "DROP TABLE pg_temp.nest"):
                with pytest.raises(volary.NotFoundError):
                    stranger.sql(statement)


def test_a_user_with_temporary_tables_can_be_dropped(secured, admin, kea):
    own = login(secured, kea)
    own.sql(CREATE)
    admin.sql(f"DROP USER {kea}")
    admin.sql(f"CREATE USER {kea} PASSWORD '{PASSWORD}'")
    with login(secured, kea) as again:
        assert not has_nest(again)


def test_a_user_cannot_have_too_many_or_too_large_temporary_tables(secured, kea):
    with login(secured, kea) as own, login(secured, kea) as other:
        own.sql(CREATE)
        other.sql(CREATE)
        in_use = "SELECT in_use FROM system.limits WHERE scope = 'node' AND name = 'temporary tables and views'"
        assert own.sql(in_use).rows() == [(2,)]
        with pytest.raises(volary.ResourceExhaustedError, match=r"gateway\.temporary_tables\.max_tables") as refused:
            own.sql("CREATE TEMP TABLE more (k BIGINT)")
        assert refused.value.sqlstate == "53000"
        own.sql("CREATE OR REPLACE TEMP TABLE nest (k BIGINT) WITH (shards = 2)")
        large = "SELECT value * 7919 FROM generate_series(1, 100000)"
        with pytest.raises(volary.ResourceExhaustedError, match=r"gateway\.temporary_tables\.max_size"):
            own.sql(f"INSERT INTO nest {large}")
        assert own.sql("SELECT count(*) FROM nest").rows() == [(0,)]
        own.sql("INSERT INTO nest VALUES (1)")
        # Closing a session makes room.
        other.close()
        own.sql("CREATE TEMP TABLE more (k BIGINT)")
