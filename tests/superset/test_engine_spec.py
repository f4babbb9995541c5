"""Tests the methods of the engine spec that need no user of Superset."""

from __future__ import annotations

import datetime
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from cluster import ADMIN_PASSWORD, SECURED, LocalCluster
from processes import until
from sqlalchemy.engine import make_url

import volary
from volary import dbapi


@pytest.fixture
def spec(context):
    from volary.superset import VolaryEngineSpec

    return VolaryEngineSpec


def test_superset_finds_the_spec(spec):
    from superset.db_engine_specs import get_available_engine_specs, get_engine_spec

    assert get_engine_spec("volary") is get_engine_spec("volary", "flight") is spec
    assert "flight" in get_available_engine_specs()[spec]


def test_a_form_is_a_uri_and_a_uri_is_a_form(spec):
    form = {
        "username": "kea",
        "password": "a/b@c",
        "host": "gateway",
        "port": 7100,
        "encryption": True,
        "query": {"tls_ca": "ca.pem"},
    }
    uri = spec.build_sqlalchemy_uri(form)
    assert uri == "volary://kea:a%2Fb%40c@gateway:7100?tls=true&tls_ca=ca.pem"
    assert spec.get_parameters_from_uri(uri) == {**form, "database": None}
    url = make_url(uri)
    arguments, options = url.get_dialect()().create_connect_args(url)
    assert arguments == ["grpc+tls://gateway:7100"]
    assert options == {"username": "kea", "password": "a/b@c", "tls_ca": "ca.pem"}
    assert set(spec.parameters_json_schema()["properties"]) >= {"username", "password", "host", "port", "encryption"}


def test_what_is_wrong_with_a_form_is_said(spec, uri):
    port = make_url(uri).port
    assert spec.validate_parameters({"parameters": {"host": "127.0.0.1", "port": port}}) == []
    (missing,) = spec.validate_parameters({"parameters": {"port": port}})
    assert missing.extra["missing"] == ["host"]
    (unknown,) = spec.validate_parameters({"parameters": {"host": "no-such-host.invalid", "port": port}})
    assert unknown.error_type == "CONNECTION_INVALID_HOSTNAME_ERROR"


def test_a_schema_is_part_of_the_uri(spec):
    url, _ = spec.adjust_engine_params(make_url("volary://h?schema=public"), {}, schema="sales")
    assert spec.get_schema_from_engine_params(url, {}) == "sales"
    url, _ = spec.adjust_engine_params(make_url("volary://h?schema=public"), {})
    assert spec.get_schema_from_engine_params(url, {}) == "public"
    assert spec.get_schema_from_engine_params(make_url("volary://h"), {}) is None


def test_impersonation_is_refused(spec, database):
    from superset.exceptions import SupersetException

    database.impersonate_user = True
    try:
        with pytest.raises(SupersetException, match="no impersonation"), database.get_sqla_engine():
            pass
    finally:
        database.impersonate_user = False


def test_times_are_literals_of_the_type_of_their_column(spec, uri):
    time = datetime.datetime(2026, 3, 4, 5, 6, 7, 123456)
    engine = sa.create_engine(uri)
    with engine.connect() as connection:
        for kind, value in (
            ("DATE", time.date()),
            ("TIMESTAMP(6)", time),
            ("TIMESTAMP(9)", time),
            ("TIMESTAMP(6) WITH TIME ZONE", time.replace(tzinfo=datetime.timezone.utc)),  # noqa: UP017
            ("TIME(6)", time.time()),
        ):
            text = spec.convert_dttm(kind, time)
            assert connection.exec_driver_sql(f"SELECT CAST({text} AS {kind})").scalar() == value, kind
    assert spec.convert_dttm("VARCHAR", time) is None
    engine.dispose()


def test_types_have_superset_s_kinds(spec):
    kinds = {
        "NUMERIC": ["BIGINT", "TINYINT", "SMALLINT", "DECIMAL(5, 2)", "DOUBLE", "REAL", "INTEGER"],
        "TEMPORAL": ["DATE", "TIMESTAMP(9)", "TIMESTAMP(3) WITH TIME ZONE", "TIME(6)"],
        "BOOLEAN": ["BOOLEAN"],
        "STRING": ["VARCHAR", "BYTEA", "BIGINT[]", "TIMESTAMP(6)[][]", "STRUCT<A BIGINT>", "MAP<VARCHAR, BIGINT>"],
    }
    for kind, names in kinds.items():
        for name in names:
            assert spec.get_column_spec(name).generic_type.name == kind, name


def test_types_of_a_cursor_have_names(spec, uri):
    address = uri.replace("volary://", "grpc://")
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1, 'a', now(), [1.5], {'a': 1}, CAST(1 AS DECIMAL(5, 2)), X'00', MAP {'a': 1}")
        assert [spec.get_datatype(column[1]) for column in cursor.description] == [
            "BIGINT",
            "VARCHAR",
            "TIMESTAMP(6) WITH TIME ZONE",
            "DOUBLE[]",
            "STRUCT<A BIGINT>",
            "DECIMAL(5, 2)",
            "BYTEA",
            "MAP<VARCHAR, BIGINT>",
        ]


def test_a_running_query_is_cancelled(spec, uri):
    address = uri.replace("volary://", "grpc://")
    ended: list[BaseException] = []

    def fetch() -> None:
        try:
            cursor.execute("SELECT count(*) FROM generate_series(1, 9000000000000000000) a(x) WHERE x % 7 = 9")
            cursor.fetchall()
        except dbapi.Error as error:
            ended.append(error)

    query = SimpleNamespace(id=1)
    with dbapi.connect(address) as running, dbapi.connect(address) as other:
        cursor = running.cursor()
        session = spec.get_cancel_query_id(cursor, query)
        assert session is not None
        with closing(other.cursor()) as canceller:
            assert spec.get_cancel_query_id(canceller, query) != session
            # Nothing runs yet. The gateway may list the statement that asked for the session for a moment longer.
            until(lambda: not spec.cancel_query(canceller, query, session), "nothing is left to cancel")
            thread = threading.Thread(target=fetch)
            thread.start()
            until(lambda: spec.cancel_query(canceller, query, session), "the query has been cancelled")
            thread.join(timeout=60)
    assert not thread.is_alive()
    (error,) = ended
    assert error.code is volary.ErrorCode.CANCELLED


def test_errors_of_connections_have_superset_s_kinds(spec, tmp_path):
    def kind_of(uri: str) -> tuple[str, str]:
        with pytest.raises(sa.exc.DBAPIError) as caught:
            sa.create_engine(uri).connect()
        (error,) = spec.extract_errors(caught.value)
        return str(error.error_type.value), error.message

    assert kind_of("volary://no-such-host.invalid:7100") == (
        "CONNECTION_INVALID_HOSTNAME_ERROR",
        'The hostname "no-such-host.invalid" cannot be resolved.',
    )
    assert kind_of("volary://127.0.0.1:1")[0] == "CONNECTION_PORT_CLOSED_ERROR"
    with LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster:
        at = cluster.uri.removeprefix("grpc://")
        assert kind_of(f"volary://admin:wrong@{at}")[0] == "CONNECTION_INVALID_PASSWORD_ERROR"
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql("CREATE USER kea PASSWORD 'a password of a user'")
            admin.sql("CREATE TABLE secrets (k BIGINT)")
        engine = sa.create_engine(f"volary://kea:a%20password%20of%20a%20user@{at}")
        with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
            connection.exec_driver_sql("CREATE SCHEMA other")
        engine.dispose()
        (error,) = spec.extract_errors(caught.value)
        assert error.error_type == "CONNECTION_DATABASE_PERMISSIONS_ERROR"
        assert error.extra["engine_name"] == "Volary"
        # SQL Lab knows only the texts of errors.
        assert spec.extract_errors(f"volary error: {caught.value.orig}")[0].error_type == error.error_type
