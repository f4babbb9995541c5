"""Tests schemas: their names in clients and lists, rights on them, and what stays after a restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
import sqlalchemy as sa
from adbc_driver_flightsql import dbapi
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster

import volary
import volary.dbapi

pytestmark = pytest.mark.server

_numbers = itertools.count()

ROWS = pa.table({"k": [1, 2], "name": ["kea", "tui"]})


@pytest.fixture
def schema(connection: volary.Connection) -> Iterator[str]:
    """The name of a new schema, which is dropped with everything in it."""
    name = f"aviary_{next(_numbers)}"
    connection.sql(f"CREATE SCHEMA {name}")
    yield name
    connection.sql("USE public")
    connection.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@contextmanager
def refused(kind: type[volary.Error], sqlstate: str) -> Iterator[None]:
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.sqlstate == sqlstate


# Names


def test_errors_about_schemas_have_postgresqls_codes(connection, schema):
    for statement in (
        "DROP SCHEMA nowhere",
        "USE nowhere",
        "SET search_path = nowhere",
        "SELECT * FROM nowhere.t",
        "CREATE TABLE nowhere.t (k BIGINT)",
        "CREATE VIEW nowhere.t AS SELECT 1 AS k",
        "DROP TABLE nowhere.t",
        "GRANT SELECT ON SCHEMA nowhere TO PUBLIC",
    ):
        with refused(volary.NotFoundError, "3F000"):
            connection.sql(statement)
    for name in (schema, "public", "system", "information_schema"):
        with refused(volary.AlreadyExistsError, "42P06"):
            connection.sql(f"CREATE SCHEMA {name}")
    with refused(volary.NotFoundError, "42P01"):
        connection.sql(f"SELECT * FROM {schema}.eggs")


def test_a_prepared_statement_and_a_ticket_mean_the_schema_of_their_session(cluster, connection, schema):
    connection.sql(f"CREATE TABLE {schema}.eggs (k BIGINT) WITH (shards = 2)")
    connection.sql(f"INSERT INTO {schema}.eggs VALUES (1), (2)")
    cookies = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}
    with dbapi.connect(cluster.uri, db_kwargs=cookies, autocommit=True) as driver, driver.cursor() as cursor:
        cursor.execute(f"USE {schema}")
        for _ in range(4):
            cursor.execute("SELECT k FROM eggs WHERE k > ?", (1,))
            assert cursor.fetchall() == [(2,)]
        assert driver.adbc_current_db_schema == schema
        driver.adbc_current_db_schema = "public"
        with pytest.raises(dbapi.Error, match="eggs"):
            cursor.execute("SELECT k FROM eggs")
        driver.adbc_current_db_schema = schema
        cursor.execute("SELECT count(*) FROM eggs")
        assert cursor.fetchall() == [(2,)]


def test_a_repeated_statement_reads_the_table_of_the_current_schema(connection, schema):
    """The plan of a repeated statement is kept, but only for sessions with the same schema."""
    other = f"{schema}_too"
    connection.sql(f"CREATE SCHEMA {other}")
    try:
        for number, place in enumerate((schema, other)):
            connection.sql(f"CREATE TABLE {place}.eggs (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 4)")
            connection.sql(f"INSERT INTO {place}.eggs VALUES (1, {number})")
        for _ in range(4):
            for number, place in enumerate((schema, other)):
                connection.sql(f"USE {place}")
                assert connection.sql("SELECT v FROM eggs WHERE k = ?", [1]).rows() == [(number,)]
    finally:
        connection.sql(f"DROP SCHEMA {other} CASCADE")


def test_views_resolve_names_where_they_were_created(connection, schema):
    view = f"nests_{schema}"
    connection.sql(f"CREATE TABLE {schema}.eggs (k BIGINT) WITH (shards = 2)")
    connection.sql(f"INSERT INTO {schema}.eggs VALUES (7)")
    connection.sql(f"USE {schema}")
    connection.sql(f"CREATE VIEW public.{view} AS SELECT k FROM eggs")
    body = f"SELECT k FROM public.{view} v JOIN eggs USING (k) WHERE v.k = $wanted"
    connection.sql(f"CREATE QUERY found(wanted BIGINT) AS {body}")
    connection.sql("USE public")
    try:
        assert connection.sql(f"SELECT * FROM {view}").rows() == [(7,)]
        assert connection.sql(f"CALL {schema}.found(?)", [7]).rows() == [(7,)]
        connection.sql(f"DROP SCHEMA {schema} CASCADE")
        with pytest.raises(volary.NotFoundError, match=f"there is no schema {schema}"):
            connection.sql(f"SELECT * FROM {view}")
    finally:
        connection.sql(f"DROP VIEW {view}")


# Clients


def test_metadata_names_the_schema(driver, connection, schema):
    connection.sql(f"CREATE TABLE {schema}.eggs (k BIGINT NOT NULL, name VARCHAR) WITH (shards = 2)")
    connection.sql(f"CREATE VIEW {schema}.nests AS SELECT k FROM {schema}.eggs")
    (catalog,) = driver.adbc_get_objects(depth="db_schemas").read_all().to_pylist()
    schemas = [found["db_schema_name"] for found in catalog["catalog_db_schemas"]]
    assert {"public", "system", "information_schema", schema} <= set(schemas)
    found = driver.adbc_get_objects(depth="columns", db_schema_filter=schema).read_all().to_pylist()
    ((place,),) = [catalog["catalog_db_schemas"] for catalog in found]
    assert place["db_schema_name"] == schema
    tables = {table["table_name"]: table["table_type"] for table in place["db_schema_tables"]}
    assert tables == {"eggs": "TABLE", "nests": "VIEW"}
    columns = driver.adbc_get_table_schema("eggs", db_schema_filter=schema)
    assert columns.names == ["k", "name"]
    listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY 1"
    assert connection.sql(listed, [schema]).rows() == [("eggs",), ("nests",)]
    shown = connection.sql(f"SHOW TABLES FROM {schema}").to_arrow()
    assert shown.column("table_name").to_pylist() == ["eggs", "nests"]
    shards = "SELECT DISTINCT schema_name, table_name FROM system.shards WHERE schema_name = ?"
    assert connection.sql(shards, [schema]).rows() == [(schema, "eggs")]


def test_rows_are_ingested_into_a_schema(driver, connection, schema):
    with driver.cursor() as cursor:
        assert cursor.adbc_ingest("eggs", ROWS, mode="create", db_schema_name=schema) == 2
        assert cursor.adbc_ingest("eggs", ROWS, mode="append", db_schema_name=schema) == 2
        with pytest.raises(dbapi.Error, match="there is no schema nowhere"):
            cursor.adbc_ingest("eggs", ROWS, mode="create", db_schema_name="nowhere")
        with pytest.raises(dbapi.Error, match="belongs to the cluster"):
            cursor.adbc_ingest("eggs", ROWS, mode="create", db_schema_name="system")
    assert connection.ingest("eggs", ROWS, schema=schema, mode="append") == 2
    assert connection.read_table("eggs", schema=schema).num_rows == 6
    assert connection.tables(schema=schema) == ["eggs"]
    assert "eggs" not in connection.tables()
    connection.sql(f"USE {schema}")
    assert connection.ingest("more_eggs", ROWS) == 2
    assert connection.read_table("more_eggs").num_rows == 2
    assert connection.tables() == ["eggs", "more_eggs"]
    assert connection.sql("SELECT count(*) FROM eggs").rows() == [(6,)]


def test_the_dbapi_finds_tables_in_the_current_schema(cluster, connection, schema):
    connection.sql(f"CREATE TABLE {schema}.eggs (k BIGINT) WITH (shards = 2)")
    with volary.dbapi.connect(cluster.uri) as own, own.cursor() as cursor:
        with pytest.raises(volary.dbapi.ProgrammingError):
            own.adbc_get_table_schema("eggs")
        cursor.execute(f"USE {schema}")
        assert own.adbc_get_table_schema("eggs").names == ["k"]
        assert cursor.adbc_ingest("nests", ROWS, db_schema_name=schema) == 2


def test_sqlalchemy_creates_reflects_and_drops_schemas(cluster):
    name = f"alchemy_{next(_numbers)}"
    engine = sa.create_engine(cluster.uri.replace("grpc://", "volary://"))
    metadata = sa.MetaData(schema=name)
    eggs = sa.Table("eggs", metadata, sa.Column("k", sa.BigInteger, primary_key=True), sa.Column("name", sa.String))
    try:
        with engine.begin() as connection:
            connection.execute(sa.schema.CreateSchema(name))
            connection.execute(sa.schema.CreateSchema(name, if_not_exists=True))
            metadata.create_all(connection)
            connection.execute(eggs.insert(), [{"k": 1, "name": "kea"}])
            assert connection.execute(sa.select(eggs)).all() == [(1, "kea")]
        inspector = sa.inspect(engine)
        assert {name, "public", "system", "information_schema"} <= set(inspector.get_schema_names())
        assert inspector.has_table("eggs", schema=name)
        assert inspector.get_table_names(schema=name) == ["eggs"]
        assert "eggs" not in inspector.get_table_names()
        reflected = sa.Table("eggs", sa.MetaData(), schema=name, autoload_with=engine)
        assert reflected.columns.keys() == ["k", "name"]
        assert reflected.dialect_options["volary"]["shard_key"] == "k"
    finally:
        with engine.begin() as connection:
            connection.execute(sa.schema.DropSchema(name, cascade=True, if_exists=True))
        assert not sa.inspect(engine).has_schema(name)
        engine.dispose()


# Rights


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
def user(secured: LocalCluster, admin: volary.Connection) -> Iterator[Callable[..., tuple[str, volary.Connection]]]:
    """Creates a user with these grants. Returns its name, and a connection of the user."""
    opened = []

    def make(*grants: str) -> tuple[str, volary.Connection]:
        name = f"user_{next(_numbers)}"
        admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
        for grant in grants:
            admin.sql(f"GRANT {grant} TO {name}")
        opened.append(volary.connect(secured.uri, username=name, password=PASSWORD))
        return name, opened[-1]

    yield make
    for connection in opened:
        connection.close()


def schemas_of(connection: volary.Connection) -> set[str]:
    """Returns the schemas of users that the connection's user sees, after a check that all lists agree."""
    listed = {name for (name,) in connection.sql("SELECT name FROM system.schemas").rows()}
    shown = {name for (name,) in connection.sql("SHOW SCHEMAS").rows()}
    assert shown == listed | {"system"}
    return listed - {"public"}


def test_whoever_may_create_owns_its_schema_and_others_do_not_see_it(admin, user):
    kea_name, kea = user("CREATE")
    _, tui = user("CREATE")
    _, auk = user()
    own = f"own_{next(_numbers)}"
    with pytest.raises(volary.PermissionDeniedError, match="may not create schemas"):
        auk.sql(f"CREATE SCHEMA {own}")
    kea.sql(f"CREATE SCHEMA {own}")
    kea.sql(f"CREATE TABLE {own}.eggs (k BIGINT) WITH (shards = 2)")
    assert kea.sql("SELECT owner FROM system.schemas WHERE name = ?", [own]).rows() == [(kea_name,)]
    assert own in schemas_of(kea)
    assert own in schemas_of(admin)
    for other in (tui, auk):
        assert own not in schemas_of(other)
        for statement in (
            f"SELECT * FROM {own}.eggs",
            f"USE {own}",
            f"CREATE TABLE {own}.more (k BIGINT)",
            f"DROP SCHEMA {own} CASCADE",
            f"SHOW TABLES FROM {own}",
            f"DROP TABLE {own}.eggs",
        ):
            with refused(volary.NotFoundError, "3F000"):
                other.sql(statement)
        other.sql(f"DROP SCHEMA IF EXISTS {own} CASCADE")
        with refused(volary.AlreadyExistsError, "42P06"):
            other.sql(f"CREATE SCHEMA {own}")
    assert kea.sql(f"SELECT count(*) FROM {own}.eggs").rows() == [(0,)]
    kea.sql(f"DROP SCHEMA {own} CASCADE")


def test_a_grant_on_a_schema_covers_its_tables_also_those_of_later(admin, user):
    _, kea = user("CREATE")
    tui_name, tui = user()
    shared = f"shared_{next(_numbers)}"
    kea.sql(f"CREATE SCHEMA {shared}")
    kea.sql(f"CREATE TABLE {shared}.eggs (k BIGINT) WITH (shards = 2)")
    kea.sql(f"GRANT SELECT ON SCHEMA {shared} TO {tui_name}")
    kea.sql(f"CREATE VIEW {shared}.nests AS SELECT k FROM {shared}.eggs")
    assert shared in schemas_of(tui)
    for name in ("eggs", "nests"):
        assert tui.sql(f"SELECT * FROM {shared}.{name}").rows() == []
    insert = f"INSERT INTO {shared}.eggs VALUES (1)"
    with pytest.raises(volary.PermissionDeniedError, match=f'GRANT INSERT ON "{shared}"."eggs" TO'):
        tui.sql(insert)
    create = f"CREATE TABLE {shared}.own (k BIGINT) WITH (shards = 2)"
    with pytest.raises(volary.PermissionDeniedError, match=f'GRANT CREATE ON SCHEMA "{shared}"'):
        tui.sql(create)
    kea.sql(f"GRANT INSERT, CREATE ON SCHEMA {shared} TO {tui_name}")
    tui.sql(insert)
    tui.sql(create)
    # The owner of the schema reads what others create in it.
    assert kea.sql(f"SELECT * FROM {shared}.own").rows() == []
    granted = "SELECT privilege, object_kind, object, schema_name FROM system.grants WHERE grantee = ? ORDER BY 1"
    rows = [(privilege, "schema", shared, shared) for privilege in ("CREATE", "INSERT", "SELECT")]
    assert admin.sql(granted, [tui_name]).rows() == rows
    with pytest.raises(volary.PermissionDeniedError, match="belongs to"):
        tui.sql(f"DROP SCHEMA {shared} CASCADE")
    with pytest.raises(volary.PermissionDeniedError):
        tui.sql(f"GRANT SELECT ON SCHEMA {shared} TO PUBLIC")
    kea.sql(f"REVOKE ALL ON SCHEMA {shared} FROM {tui_name}")
    with refused(volary.NotFoundError, "42P01"):
        tui.sql(f"SELECT * FROM {shared}.eggs")
    # The table that it owns is still its own.
    assert tui.sql(f"SELECT * FROM {shared}.own").rows() == []
    kea.sql(f"GRANT SELECT ON SCHEMA {shared} TO {tui_name}")
    kea.sql(f"DROP SCHEMA {shared} CASCADE")
    assert admin.sql(granted, [tui_name]).rows() == []


def test_a_grant_on_one_table_shows_its_schema_and_nothing_else_in_it(admin, user):
    tui_name, tui = user()
    place = f"place_{next(_numbers)}"
    admin.sql(f"CREATE SCHEMA {place}")
    for name in ("eggs", "nests"):
        admin.sql(f"CREATE TABLE {place}.{name} (k BIGINT) WITH (shards = 2)")
        admin.sql(f"CREATE TABLE IF NOT EXISTS {name} (k BIGINT) WITH (shards = 2)")
    admin.sql(f"GRANT SELECT ON {place}.eggs TO {tui_name}")
    assert place in schemas_of(tui)
    assert tui.tables(schema=place) == ["eggs"]
    assert tui.tables() == []
    assert tui.sql(f"SELECT * FROM {place}.eggs").rows() == []
    for hidden in (f"{place}.nests", "eggs"):
        with refused(volary.NotFoundError, "42P01"):
            tui.sql(f"SELECT * FROM {hidden}")
    admin.sql(f"DROP SCHEMA {place} CASCADE")
    assert place not in schemas_of(tui)


def test_a_schema_is_given_to_another_owner(admin, user):
    kea_name, kea = user("CREATE")
    tui_name, tui = user()
    given = f"given_{next(_numbers)}"
    admin.sql(f"CREATE SCHEMA {given} AUTHORIZATION {kea_name}")
    kea.sql(f"CREATE VIEW {given}.one AS SELECT 1 AS one")
    with pytest.raises(volary.PermissionDeniedError):
        kea.sql(f"ALTER SCHEMA {given} OWNER TO {tui_name}")
    with pytest.raises(volary.InvalidArgumentError, match=f"owns .*the schema {given}"):
        admin.sql(f"DROP USER {kea_name}")
    admin.sql(f"ALTER SCHEMA {given} OWNER TO {tui_name}")
    assert tui.sql(f"SELECT * FROM {given}.one").rows() == [(1,)]
    tui.sql(f"DROP SCHEMA {given} CASCADE")
    admin.sql(f"DROP USER {kea_name}")


# Restarts


def test_schemas_are_there_after_a_restart(tmp_path):
    with (
        LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql(f"CREATE USER kea PASSWORD '{PASSWORD}'")
        admin.sql("CREATE SCHEMA staging")
        admin.sql("CREATE SCHEMA empty AUTHORIZATION kea")
        admin.sql("CREATE TABLE eggs (k BIGINT) WITH (shards = 2)")
        admin.sql("CREATE TABLE staging.eggs (k BIGINT) WITH (shards = 2)")
        admin.sql("INSERT INTO staging.eggs VALUES (7)")
        admin.sql("USE staging")
        admin.sql("CREATE VIEW public.nests AS SELECT k FROM eggs")
        admin.sql("CREATE QUERY found(wanted BIGINT) AS SELECT k FROM eggs WHERE k = $wanted")
        admin.sql("GRANT SELECT ON SCHEMA staging TO kea")
        admin.sql("GRANT INSERT ON staging.eggs TO kea")
    with (
        LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        assert kea.sql("SELECT name, owner FROM system.schemas ORDER BY name").rows() == [
            ("empty", "kea"),
            ("public", None),
            ("staging", "admin"),
        ]
        assert kea.sql("SELECT k FROM staging.eggs").rows() == [(7,)]
        assert kea.sql("CALL staging.found(7)").rows() == [(7,)]
        kea.sql("INSERT INTO staging.eggs VALUES (8)")
        kea.sql("CREATE TABLE empty.own (k BIGINT) WITH (shards = 2)")
        assert admin.sql("SELECT k FROM nests ORDER BY k").rows() == [(7,), (8,)]
        assert admin.sql("SELECT count(*) FROM eggs").rows() == [(0,)]
        admin.sql("DROP SCHEMA staging, empty CASCADE")
        assert kea.sql("SELECT name FROM system.schemas").rows() == [("public",)]
    with (
        LocalCluster(tmp_path, workers=1) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        assert admin.sql("SELECT name FROM system.tables").rows() == [("eggs",)]
