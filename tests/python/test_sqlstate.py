"""Tests that errors have SQLSTATE codes, which are those of PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from adbc_driver_flightsql import dbapi
from cluster import ADMIN_PASSWORD, PASSWORD, SECURED, LocalCluster
from processes import until

import volary

pytestmark = pytest.mark.server

# {t} is a table (k BIGINT NOT NULL, name VARCHAR, price DOUBLE, day DATE) with one row: 1, 'kea'.
STATEMENTS = {
    "SELECT name FROM {t} WHERE k = $1": "07001",
    "UPDATE {t} SET k = 2": "0A000",
    "ALTER TABLE {t} ADD COLUMN x INT": "0A000",
    "SELECT * FROM {t} TABLESAMPLE BERNOULLI (10)": "0A000",
    "CREATE EXTERNAL TABLE e (k INT) STORED AS CSV LOCATION '/etc/passwd'": "0A000",
    "SELECT count(DISTINCT k, k) FROM {t}": "0A000",
    "SELECT CAST(70000 + k AS SMALLINT) FROM {t}": "22003",
    "SELECT k + 9223372036854775807 FROM {t}": "22003",
    "SELECT 9223372036854775807 + 1": "22003",
    "SELECT * FROM {t} WHERE k + 9223372036854775807 > 0": "22003",
    "SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) v(x)": "22003",
    "SELECT abs(-9223372036854775807 - k) FROM {t}": "22003",
    "SELECT k / (k - 1) FROM {t}": "22012",
    "SELECT * FROM {t} WHERE 1 / (k - 1) > 0": "22012",
    "SET statement_timeout = 'soon'": "22023",
    "SET datafusion.execution.batch_size = 0": "22023",
    "SELECT CAST(name AS BIGINT) FROM {t}": "22P02",
    "SELECT * FROM {t} WHERE CAST(name AS BIGINT) = 1": "22P02",
    "INSERT INTO {t} (k) VALUES ('one')": "22P02",
    "INSERT INTO {t} VALUES (NULL, 'tui', NULL, NULL)": "23502",
    "INSERT INTO {t} (name) VALUES ('tui')": "23502",
    "SELECT * FROM nowhere.public.{t}": "3D000",
    "SELECT * FROM nowhere.{t}": "3F000",
    "USE nowhere": "3F000",
    "SELECT k, count(*) FROM {t}": "42000",
    "SELEC 1": "42601",
    "SELECT 1 +": "42601",
    "SELECT 'open": "42601",
    "SELECT 1; SELECT 2": "42601",
    " ; -- nothing": "42601",
    "CREATE USER kea PASSWORD": "42601",
    "COPY {t} FROM STDIN": "42601",
    "CREATE TABLE {t}_twice (a INT, a INT)": "42701",
    "SELECT k FROM {t} a JOIN {t} b ON a.k = b.k": "42702",
    "SELECT nme FROM {t}": "42703",
    "SELECT 1 FROM {t} a JOIN {t} b USING (nme)": "42703",
    "SELECT k FROM {t} WHERE {t}.nme = 1": "42703",
    "CREATE TABLE {t}_keyless (a INT) WITH (shard_key = 'b')": "42703",
    "SET no_such_setting = 1": "42704",
    "DROP USER nobody": "42704",
    "KILL '01900000-0000-7000-8000-000000000000'": "42704",
    "KILL": "42601",
    "SELECT no_such_function(k) FROM {t}": "42883",
    "SELECT * FROM no_such_function(1)": "42883",
    "SELECT sum(name) FROM {t}": "42883",
    "SELECT * FROM {t}s": "42P01",
    "INSERT INTO {t}s VALUES (1)": "42P01",
    "DROP TABLE {t}s": "42P01",
    "DROP VIEW {t}s": "42P01",
    "SELECT * FROM system.nests": "42P01",
    "SELECT * FROM information_schema.nests": "42P01",
    "CREATE TABLE {t} (k INT)": "42P07",
    "CREATE VIEW {t} AS SELECT 1 AS x": "42P07",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000: "54001",
    "SELECT " + ", ".join(f"{number} AS c{number}" for number in range(5_000)): "54011",
}


def sqlstate_of(connection: volary.Connection, statement: str, *values: object) -> str | None:
    with pytest.raises(volary.Error) as caught:
        connection.sql(statement, *values).rows()
    return caught.value.sqlstate


@pytest.fixture
def table(connection: volary.Connection, empty_table: str) -> str:
    connection.sql(f"INSERT INTO {empty_table} VALUES (1, 'kea', 1.5, DATE '2026-01-01')")
    return empty_table


@pytest.mark.parametrize(
    ("statement", "code"), [pytest.param(*case, id=f"{case[1]} {case[0][:40]}") for case in STATEMENTS.items()]
)
def test_an_error_has_the_code_that_says_what_is_wrong(connection, table, statement, code):
    assert sqlstate_of(connection, statement.replace("{t}", table)) == code


def test_a_wrong_number_of_values_has_a_code(connection, table):
    assert sqlstate_of(connection, f"SELECT name FROM {table} WHERE k = ?", [1, 2]) == "07001"
    assert sqlstate_of(connection, f"SELECT name FROM {table} WHERE k = ?", ["one"]) == "22P02"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("k,name\n1,kea\nmany,tui\n", "22P02"),
        ("k,name\n,kea\n", "23502"),
        ("k,nme\n1,kea\n", "42703"),
        (None, "58P01"),
    ],
)
def test_errors_of_a_file_have_codes(connection, table, tmp_path: Path, text, code):
    file = tmp_path / "birds.csv"
    if text is not None:
        file.write_text(text)
    assert sqlstate_of(connection, f"COPY {table} FROM '{file}'") == code


def test_a_statement_that_is_ended_has_the_code_of_a_cancelled_one(connection, background):
    endless = "SELECT a.n FROM generate_series(1, 10000000) a(n), generate_series(1, 10000000) b(n) WHERE a.n + b.n < 0"
    connection.sql("SET statement_timeout = '300ms'")
    assert sqlstate_of(connection, endless) == "57014"
    connection.sql("RESET statement_timeout")
    ended = background(sqlstate_of, connection, endless)

    def query_ids() -> list[str]:
        running = connection.sql("SELECT query_id FROM system.queries WHERE statement = ?", [endless])
        return [row[0] for row in running.rows()]

    connection.sql(f"KILL '{until(query_ids, 'the statement runs')[0]}'")
    assert ended.result() == "57014"


def test_what_has_no_memory_or_no_place_has_a_code(tmp_path):
    settings = {"VOLARY_GATEWAY__QUERY__MAX_RUNNING": "1", "VOLARY_GATEWAY__QUERY__MAX_WAITING": "0"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, cluster.connect() as connection:
        connection.sql("SET query_memory = '32MiB'")
        # A join keeps one side in memory, and the rows of each side have about 40 MB.
        wide = "SELECT n, repeat(lpad(CAST(n AS VARCHAR), 8, '0'), 24) AS w FROM generate_series(1, 200000) t(n)"
        joined = f"SELECT count(*) FROM ({wide}) a JOIN ({wide}) b ON a.w = b.w AND a.n <> b.n"
        assert sqlstate_of(connection, joined) == "53200"
        batches = connection.sql("SELECT n FROM generate_series(1, 100000000000) t(n)").batches()
        next(batches)
        assert sqlstate_of(connection, "SELECT count(*) FROM generate_series(1, 10) t(n)") == "53300"


def test_who_may_not_is_told_so_with_a_code(tmp_path):
    with LocalCluster(tmp_path, workers=1, settings=SECURED) as cluster:
        with volary.connect(cluster.uri, username="admin", password=ADMIN_PASSWORD) as admin:
            admin.sql("CREATE TABLE birds (k BIGINT)")
            admin.sql(f"CREATE USER kaka PASSWORD '{PASSWORD}'")
            assert sqlstate_of(admin, f"CREATE USER kaka PASSWORD '{PASSWORD}'") == "42710"
        with volary.connect(cluster.uri, username="kaka", password=PASSWORD) as kaka:
            # What a user may not see does not exist for that user.
            assert sqlstate_of(kaka, "SELECT * FROM birds") == "42P01"
            assert sqlstate_of(kaka, "SELECT * FROM brids") == "42P01"
            assert sqlstate_of(kaka, "CREATE USER kea PASSWORD 'a long password'") == "42501"
        with pytest.raises(volary.UnauthenticatedError) as caught:
            volary.connect(cluster.uri, username="kaka", password="wrong wrong")
        assert caught.value.sqlstate == "28P01"
        with pytest.raises(volary.UnauthenticatedError) as caught:
            volary.connect(cluster.uri, token="volary-token-" + "17" * 32)
        assert caught.value.sqlstate == "28000"


def test_an_error_of_a_worker_that_the_client_asks_has_its_code(connection, table):
    with pytest.raises(volary.Error) as caught:
        connection.sql(f"SELECT 1 / (k - 1) FROM {table}", direct=True).rows()
    assert caught.value.sqlstate == "22012"


def test_the_adbc_driver_lists_the_code_among_the_details(cursor):
    with pytest.raises(dbapi.Error) as caught:
        cursor.execute("SELECT * FROM no_such_table")
    assert (b"volary-sqlstate", b"42P01") in caught.value.details
