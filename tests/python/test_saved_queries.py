"""Tests saved queries: CREATE QUERY, CALL, and saved queries that call others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster

import volary

pytestmark = pytest.mark.server

_numbers = itertools.count()


@pytest.fixture
def query(connection: volary.Connection) -> Iterator[str]:
    """A name for a saved query. If the test creates the query, it is dropped."""
    name = f"saved_{next(_numbers)}"
    yield name
    connection.sql(f"DROP QUERY IF EXISTS {name}")


@pytest.fixture
def by_key(connection: volary.Connection, birds: str, query: str) -> str:
    """A saved query with two parameters. The second one has a default."""
    connection.sql(
        f"CREATE QUERY {query}(key BIGINT, cheapest DOUBLE DEFAULT 1.0) AS "
        f"SELECT k, name, price FROM {birds} WHERE k = $key AND price >= $cheapest"
    )
    return query


def test_a_saved_query_is_called_with_arguments_by_position_by_name_and_by_default(connection, by_key):
    kaka = [(2, "kaka", 2.5)]
    for call in (
        f"CALL {by_key}(2)",
        f"call {by_key}(2, 2.5);",
        f"CALL {by_key}(key => 2)",
        f"CALL {by_key}(cheapest => 1 + 1, key => 1 + 1)",
        f'CALL public."{by_key}"(2)',
        f"SELECT * FROM {by_key}(2)",
        f"SELECT q.k, name, q.price FROM {by_key}('2') q",
        f"WITH t AS (SELECT * FROM {by_key}(2)) SELECT * FROM t",
    ):
        assert connection.sql(call).rows() == kaka, call
    assert connection.sql(f"CALL {by_key}(2, 9)").rows() == []
    assert connection.sql(f"CALL {by_key}(NULL)").rows() == []
    assert connection.sql(f"CALL {by_key}(?)", [2]).rows() == kaka
    assert connection.sql(f"CALL {by_key}(?, cheapest => ?)", [2, 2.5]).rows() == kaka
    assert connection.call(by_key, 2).rows() == kaka
    assert connection.call(by_key, 2, cheapest=2.5).rows() == kaka
    assert connection.call(by_key, key=2).rows() == kaka


def test_a_call_prunes_by_its_argument(connection, by_key):
    plan = connection.explain(f"CALL {by_key}(2)").text
    assert "workers=1/" in plan
    prepared = connection.explain(f"SELECT * FROM {by_key}(?)", [2]).text
    assert "workers=1/" in prepared
    assert "rows=1" in connection.explain(f"CALL {by_key}(2)", analyze=True).text


def test_a_call_that_comes_again_is_planned_once(connection, by_key):
    for number in range(6):
        rows = connection.sql(f"CALL {by_key}(?)", [number % 3 + 1]).rows()
        assert [row[0] for row in rows] == ([number % 3 + 1] if number % 3 < 2 else [3])
    # After the query is replaced, the stored plan must not be used again.
    connection.sql(f"CREATE OR REPLACE QUERY {by_key}(key BIGINT) AS SELECT $key * 10 AS ten")
    assert connection.sql(f"CALL {by_key}(?)", [4]).rows() == [(40,)]


def test_arguments_have_the_types_of_the_parameters(cluster, connection, query):
    connection.sql(
        f"CREATE QUERY {query}(a BIGINT, b VARCHAR, c DATE, d DECIMAL(10, 2), e BOOLEAN) AS "
        "SELECT $a AS a, $b AS b, $c AS c, $d AS d, $e AS e"
    )
    result = connection.sql(f"CALL {query}('7', 8, '2026-01-02', 1.005, 'true')").to_arrow()
    assert result.schema.types == [pa.int64(), pa.string(), pa.date32(), pa.decimal128(10, 2), pa.bool_()]
    with dbapi.connect(cluster.uri, autocommit=True) as driver, driver.cursor() as cursor:
        parameters = cursor.adbc_prepare(f"CALL {query}(?, ?, ?, ?, ?)")
        assert parameters is not None
        assert parameters.types == [pa.int64(), pa.string(), pa.date32(), pa.decimal128(10, 2), pa.bool_()]
    with pytest.raises(volary.InvalidArgumentError, match="seven"):
        connection.sql(f"CALL {query}('seven', '', NULL, NULL, NULL)").rows()


def test_an_argument_counts_as_the_literal_of_its_value_would(connection, query):
    connection.sql(
        f"CREATE QUERY {query}(a BIGINT, b DECIMAL(10, 2)) AS SELECT $a / 2 AS half, $b * 2 AS twice, $a AS a"
    )
    for a, b in ((5, 1), (5.0, 1.5), ("5", "1.25"), (2.5, 0.1)):
        literal = f"CALL {query}({a!r}, {b!r})"
        bound = connection.sql(f"CALL {query}(?, ?)", [a, b]).to_arrow()
        expected = connection.sql(literal).to_arrow()
        assert bound.to_pylist() == expected.to_pylist(), literal
        assert bound.schema.types == expected.schema.types


def test_arguments_that_would_grow_beyond_measure_are_refused(connection, query):
    names = [f"{query}_{n}" for n in range(6)]
    many = " + ".join(["$a"] * 40)

    def create_all() -> None:
        connection.sql(f"CREATE QUERY {names[0]}(a BIGINT) AS SELECT $a AS a")
        for inner, outer in itertools.pairwise(names):
            connection.sql(f"CREATE QUERY {outer}(a BIGINT) AS SELECT * FROM {inner}({many})")

    with pytest.raises(volary.InvalidArgumentError, match=r"too large|nested"):
        create_all()
    for name in names:
        connection.sql(f"DROP QUERY IF EXISTS {name}")


def test_a_saved_query_survives_a_restart_and_is_listed(tmp_path):
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        connection.sql("CREATE QUERY plus(a BIGINT, b BIGINT DEFAULT 1 + 1) AS SELECT $a + $b AS sum")
        connection.sql("CREATE QUERY one AS SELECT 1 AS n")
    with LocalCluster(tmp_path, workers=1) as cluster, cluster.connect() as connection:
        assert connection.call("plus", 40).rows() == [(42,)]
        assert connection.sql("CALL one()").rows() == [(1,)]
        listed = connection.sql("SELECT name, parameters, definition FROM system.saved_queries ORDER BY name").rows()
        assert listed == [
            ("one", None, "SELECT 1 AS n"),
            ("plus", "(a BIGINT, b BIGINT DEFAULT 1 + 1)", "SELECT $a + $b AS sum"),
        ]
        # A saved query is not listed as a table, and tools that read all tables do not fail because of it.
        assert connection.tables() == []
        assert connection.sql("SELECT count(*) FROM information_schema.columns WHERE table_name = 'plus'").rows() == [
            (0,)
        ]


def test_a_ticket_of_a_call_is_refused_when_the_query_was_replaced(connection, by_key):
    result = connection.call(by_key, 2)
    connection.sql(f"CREATE OR REPLACE QUERY {by_key}(key BIGINT) AS SELECT 'other' AS name WHERE $key > 0")
    # The first call was opened before the replacement. A new call sees the new query.
    assert result.rows() == [(2, "kaka", 2.5)]
    assert connection.call(by_key, 2).rows() == [("other",)]


def test_a_saved_query_reads_with_its_owners_rights(tmp_path):
    with (
        LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster,
        volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin,
    ):
        admin.sql("CREATE TABLE salaries AS SELECT 'kea' AS name, 7 AS salary UNION ALL SELECT 'kaka', 8")
        admin.sql("CREATE QUERY salary_of(who VARCHAR) AS SELECT salary FROM salaries WHERE name = $who")
        for name in ("kea", "kaka"):
            admin.sql(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
        with volary.connect(cluster.uri, username="kea", password=PASSWORD) as kea:
            with pytest.raises(volary.NotFoundError, match="salary_of"):
                kea.call("salary_of", "kea")
            admin.sql("GRANT SELECT ON salary_of TO kea")
            assert kea.call("salary_of", "kea").rows() == [(7,)]
            assert kea.sql("SELECT name FROM system.saved_queries").rows() == [("salary_of",)]
            # The right to call the query includes neither the table below it nor the query itself.
            with pytest.raises(volary.NotFoundError):
                kea.sql("SELECT * FROM salaries").rows()
            for refused in (
                "DROP QUERY salary_of",
                "CREATE OR REPLACE QUERY salary_of(who VARCHAR) AS SELECT $who AS salary",
            ):
                with pytest.raises(volary.PermissionDeniedError):
                    kea.sql(refused).rows()
            with pytest.raises(volary.NotFoundError, match="salaries"):
                kea.sql("SELECT * FROM salary_of((SELECT max(name) FROM salaries))").rows()
            # A name that the statement defines itself gives no further rights either.
            admin.sql("CREATE VIEW of_kea AS SELECT * FROM salary_of('kea')")
            admin.sql("REVOKE SELECT ON salary_of FROM kea")
            admin.sql("GRANT SELECT ON of_kea TO kea")
            assert kea.sql("SELECT * FROM of_kea").rows() == [(7,)]
            with pytest.raises(volary.NotFoundError, match="salary_of"):
                kea.sql("WITH salary_of AS (SELECT 1) SELECT s.* FROM of_kea, salary_of('kaka') s").rows()
        with volary.connect(cluster.uri, username="kaka", password=PASSWORD) as kaka:
            assert kaka.sql("SELECT * FROM system.saved_queries").rows() == []
        admin.sql("ALTER QUERY salary_of OWNER TO kaka")
        with pytest.raises(volary.PermissionDeniedError, match="salaries"):
            admin.call("salary_of", "kea").rows()
