"""Tests the DB-API of the ADBC driver without the Volary client. The gateway must understand what the driver sends."""

import datetime
import decimal
import re

import adbc_driver_manager as adbc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi


def as_a_query(driver, sql):
    with driver.cursor() as cursor:
        cursor.execute(sql)
        cursor.fetchall()


def as_a_query_that_is_not_prepared(driver, sql):
    with adbc.AdbcStatement(driver.adbc_connection) as statement:
        statement.set_sql_query(sql)
        stream, _ = statement.execute_query()
        pa.RecordBatchReader.from_stream(stream).read_all()


def as_an_update(driver, sql):
    with adbc.AdbcStatement(driver.adbc_connection) as statement:
        statement.set_sql_query(sql)
        statement.execute_update()


def test_a_select_is_fetched_row_by_row_and_as_arrow(cursor, birds):
    query = f"SELECT k, name FROM {birds} WHERE k <= 3 ORDER BY k"
    cursor.execute(query)
    assert [column[0] for column in cursor.description] == ["k", "name"]
    assert cursor.fetchone() == (1, "kea")
    assert cursor.fetchall() == [(2, "kaka"), (3, None)]
    cursor.execute(query)
    assert cursor.fetch_arrow_table().schema.types == [pa.int64(), pa.string()]


def test_pandas_and_polars_read_through_the_cursor(cursor, birds):
    cursor.execute(f"SELECT k FROM {birds} ORDER BY k")
    assert cursor.fetch_df()["k"].tolist() == [1, 2, 3, 4, 5]
    cursor.execute(f"SELECT k FROM {birds} ORDER BY k")
    assert cursor.fetch_polars()["k"].to_list() == [1, 2, 3, 4, 5]


def test_an_empty_result_has_its_schema(cursor, birds):
    cursor.execute(f"SELECT k, day FROM {birds} WHERE k = 77")
    table = cursor.fetch_arrow_table()
    assert table.num_rows == 0
    assert table.schema.names == ["k", "day"]


def test_parameters_are_bound_by_position(cursor, birds):
    query = f"SELECT k FROM {birds} WHERE (name = ? OR ? IS NULL) AND k < ? ORDER BY k"
    cursor.execute(query, ("kea", 1, 5))
    assert cursor.fetchall() == [(1,)]
    cursor.execute(query, ("kea", None, 5))
    assert cursor.fetchall() == [(1,), (2,), (3,), (4,)]
    cursor.execute(query, (None, 1, 5))
    assert cursor.fetchall() == []


def test_an_int32_is_compared_with_an_int64_column(cursor, birds):
    narrow = pa.record_batch([pa.array([3], pa.int32())], names=["0"])
    cursor.execute(f"SELECT k FROM {birds} WHERE k = ?", narrow)
    assert cursor.fetchall() == [(3,)]


NOON = datetime.datetime(2026, 1, 1, 12)
MIDNIGHT = datetime.datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("query", "values", "literals"),
    [
        ("SELECT k FROM {t} WHERE k = {}", [1.5], ["1.5"]),
        ("SELECT k FROM {t} WHERE k = {}", [2.0], ["2.0"]),
        ("SELECT k FROM {t} WHERE k < {} ORDER BY k", [2.5], ["2.5"]),
        ("SELECT k FROM {t} WHERE k IN ({}, {}) ORDER BY k", [1.5, 2], ["1.5", "2"]),
        ("SELECT k FROM {t} WHERE k BETWEEN {} AND {} ORDER BY k", [1.5, 3.5], ["1.5", "3.5"]),
        ("SELECT k FROM {t} WHERE CAST(k AS INT) = {}", [5_000_000_000], ["5000000000"]),
        ("SELECT k FROM {t} WHERE CAST(k AS INT) = {}", [3], ["3"]),
        ("SELECT k / {} FROM {t} WHERE k = 5", [2], ["2"]),
        ("SELECT k / {} FROM {t} WHERE k = 5", [2.0], ["2.0"]),
        ("SELECT k / {} FROM {t} WHERE k = 5", [2.5], ["2.5"]),
        ("SELECT k FROM {t} WHERE k * {} = 3", [1.5], ["1.5"]),
        ("SELECT CAST(100 AS DECIMAL(15, 2)) * {}", [0.075], ["0.075"]),
        ("SELECT CAST(100 AS DECIMAL(15, 2)) * {}", [decimal.Decimal("0.075")], ["CAST('0.075' AS DECIMAL(4, 3))"]),
        ("SELECT CAST(k AS DECIMAL(15, 2)) FROM {t} WHERE CAST(k AS DECIMAL(15, 2)) = {}", [2], ["2"]),
        ("SELECT k FROM {t} WHERE CAST(price AS DECIMAL(15, 2)) = {}", [2.5], ["2.5"]),
        ("SELECT k FROM {t} WHERE CAST(price AS DECIMAL(15, 2)) = {}", [2.504], ["2.504"]),
        ("SELECT k FROM {t} WHERE day = {}", [NOON], ["TIMESTAMP '2026-01-01 12:00:00'"]),
        ("SELECT k FROM {t} WHERE day = {}", [MIDNIGHT], ["TIMESTAMP '2026-01-01 00:00:00'"]),
        ("SELECT k FROM {t} WHERE day < {} ORDER BY k", [NOON], ["TIMESTAMP '2026-01-01 12:00:00'"]),
        ("SELECT k FROM {t} WHERE day = {}", [datetime.date(2026, 1, 1)], ["DATE '2026-01-01'"]),
        ("SELECT k FROM {t} WHERE day = {}", ["2026-01-01"], ["'2026-01-01'"]),
        ("SELECT k FROM {t} WHERE CAST(day AS TIMESTAMP) = {}", ["2026-01-01"], ["'2026-01-01'"]),
        ("SELECT k FROM {t} WHERE day = {} OR name = {} ORDER BY k", [None, "tui"], ["NULL", "'tui'"]),
    ],
)
def test_a_parameter_counts_as_the_literal_of_its_value(cursor, birds, query, values, literals):
    cursor.execute(query.format(*literals, t=birds))
    expected = cursor.fetchall()
    cursor.execute(query.format(*("?" for _ in values), t=birds), values)
    assert cursor.fetchall() == expected


def test_what_is_inserted_is_cast_to_its_column_as_a_literal_is(cursor, empty_table):
    cursor.executemany(
        f"INSERT INTO {empty_table} (k, price, day) VALUES (? + 1, ? * 2, ?)",
        [(1, 1.5, NOON), (2.5, 2, MIDNIGHT)],
    )
    cursor.execute(f"INSERT INTO {empty_table} (k, price, day) VALUES (1.5 + 10, 1, TIMESTAMP '2026-01-01 12:00:00')")
    cursor.fetchall()
    cursor.execute(f"SELECT k, price, day FROM {empty_table} ORDER BY k")
    day = datetime.date(2026, 1, 1)
    assert cursor.fetchall() == [(2, 3.0, day), (3, 4.0, day), (11, 1.0, day)]


def test_a_statement_is_prepared_once_and_run_with_other_parameters(cursor, birds):
    query = f"SELECT name FROM {birds} WHERE k = ?"
    parameters = cursor.adbc_prepare(query)
    assert len(parameters) == 1
    found = []
    for key in (1, 2, 3, 77):
        cursor.execute(query, (key,))
        found.append(cursor.fetchall())
    assert found == [[("kea",)], [("kaka",)], [(None,)], []]


def test_executemany_inserts_a_row_for_each_set_of_parameters(cursor, empty_table):
    rows = [(1, "kea", 1.5, datetime.date(2026, 1, 1)), (2, None, None, None), (3, "tui", 2.5, None)]
    cursor.executemany(f"INSERT INTO {empty_table} VALUES (?, ?, ?, ?)", rows)
    assert cursor.rowcount == 3
    cursor.execute(f"SELECT * FROM {empty_table} ORDER BY k")
    assert cursor.fetchall() == rows


def test_an_insert_through_execute_runs_once(driver, cursor, empty_table):
    with driver.cursor() as inserting:
        inserting.execute(f"INSERT INTO {empty_table} (k) VALUES (1), (2)")
        inserting.fetchall()
    with driver.cursor() as inserting:
        inserting.execute(f"INSERT INTO {empty_table} (k) VALUES (3)")
    cursor.execute(f"SELECT count(*) FROM {empty_table}")
    assert cursor.fetchone() == (3,)


def test_a_drop_through_execute_runs_once_though_the_cursor_is_closed_at_once(driver, cursor, empty_table):
    with driver.cursor() as dropping:
        dropping.execute(f"DROP TABLE {empty_table}")
    cursor.execute(f"SELECT count(*) FROM information_schema.tables WHERE table_name = '{empty_table}'")
    assert cursor.fetchone() == (0,)


def test_update_statements_run_without_being_prepared(driver, cursor, empty_table):
    with adbc.AdbcStatement(driver.adbc_connection) as statement:
        statement.set_sql_query(f"INSERT INTO {empty_table} (k) VALUES (1), (2)")
        assert statement.execute_update() == 2
    cursor.execute(f"SELECT count(*) FROM {empty_table}")
    assert cursor.fetchone() == (2,)


def test_queries_run_without_being_prepared(driver, birds):
    with adbc.AdbcStatement(driver.adbc_connection) as statement:
        statement.set_sql_query(f"SELECT k FROM {birds} ORDER BY k")
        stream, _ = statement.execute_query()
        assert pa.RecordBatchReader.from_stream(stream).read_all()["k"].to_pylist() == [1, 2, 3, 4, 5]


def test_columns_that_are_null_throughout_keep_their_type(cursor, birds):
    cursor.execute(f"SELECT k, name, price FROM {birds} WHERE k = 3 AND price IS NULL")
    assert cursor.fetch_arrow_table().schema.types == [pa.int64(), pa.string(), pa.float64()]


@pytest.mark.parametrize(
    ("statement", "kind", "status", "text"),
    [
        ("SELEC 1", dbapi.ProgrammingError, "INVALID_ARGUMENT", "INVALID_ARGUMENT: "),
        ("SELECT * FROM no_such_table", dbapi.ProgrammingError, "NOT_FOUND", "NOT_FOUND: "),
        ("SELECT nme FROM {birds}", dbapi.ProgrammingError, "NOT_FOUND", "NOT_FOUND: "),
        (
            "CREATE TABLE {birds} (k BIGINT) WITH (shard_key = 'k')",
            dbapi.ProgrammingError,
            "ALREADY_EXISTS",
            "ALREADY_EXISTS: ",
        ),
        ("CREATE INDEX i ON {birds} (k)", dbapi.ProgrammingError, "INVALID_ARGUMENT", "INVALID_ARGUMENT: "),
        ("GRANT ALL ON {birds} TO nobody", dbapi.ProgrammingError, "NOT_FOUND", "NOT_FOUND: "),
        ("COPY {birds} FROM '/etc/passwd'", dbapi.ProgrammingError, "UNAUTHORIZED", "PERMISSION_DENIED: "),
    ],
)
def test_an_error_has_its_class_status_and_a_stable_code(cursor, birds, statement, kind, status, text):
    with pytest.raises(kind) as caught:
        cursor.execute(statement.format(birds=birds))
    assert caught.value.status_code == adbc.AdbcStatusCode[status]
    assert f"[FlightSQL] {text}" in str(caught.value)


UNSUPPORTED = pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "SELECT k FROM {birds} WHERE k > {least} INTERSECT ALL SELECT k FROM {birds}",
            "INTERSECT ALL is not supported; leave ALL out, or add row_number() OVER (PARTITION BY all columns)",
        ),
        (
            "SELECT k FROM {birds} EXCEPT ALL SELECT k FROM {birds} WHERE k > {least}",
            "EXCEPT ALL is not supported; leave ALL out, or add row_number() OVER (PARTITION BY all columns)",
        ),
        (
            "SELECT LEAD(k, 2) IGNORE NULLS OVER (ORDER BY k) FROM {birds} WHERE k > {least}",
            "lead with IGNORE NULLS that looks ahead by more than one row is not supported; filter the NULLs out",
        ),
        (
            "SELECT k FROM {birds} b WHERE k > {least} AND EXISTS (SELECT 1 FROM {birds} c WHERE c.k = b.k OFFSET 1)",
            "a correlated subquery (one that reads columns of the outer query) with an OFFSET is not supported",
        ),
    ],
    ids=["INTERSECT ALL", "EXCEPT ALL", "LEAD", "OFFSET"],
)


# The driver takes UNIMPLEMENTED as the answer that nothing can be prepared, and drops the error's message.
@UNSUPPORTED
def test_what_is_not_supported_is_refused_with_the_reason(driver, cursor, birds, query, reason):
    plain, bound = (query.format(birds=birds, least=least) for least in ("0", "?"))
    for execute in (
        lambda cursor: cursor.execute(plain),
        lambda cursor: cursor.execute(bound, (0,)),
        lambda cursor: cursor.executemany(bound, [(0,), (1,)]),
        lambda cursor: cursor.execute(f"INSERT INTO {birds} (k) {plain}"),
        lambda cursor: cursor.execute(f"INSERT INTO {birds} (k) {bound}", (0,)),
        lambda _: as_a_query_that_is_not_prepared(driver, plain),
        lambda _: as_an_update(driver, plain),
    ):
        # If a cursor has failed to prepare a text, it takes the same text for prepared the next time. So each call gets
        # a fresh cursor.
        with driver.cursor() as fresh, pytest.raises(dbapi.ProgrammingError) as caught:
            execute(fresh)
        assert caught.value.status_code == adbc.AdbcStatusCode.INVALID_ARGUMENT
        assert "[FlightSQL] INVALID_ARGUMENT: " in str(caught.value)
        assert reason in str(caught.value)
    cursor.execute(f"SELECT count(*) FROM {birds} WHERE k > ?", (0,))
    assert cursor.fetchone() == (5,)


API_KEY = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer key"}
COOKIES = {DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true"}


@pytest.mark.parametrize(
    "options",
    [{}, COOKIES, API_KEY | COOKIES, {"username": "ada", "password": ""}],
    ids=["without a user", "with cookies", "with an API key and cookies", "with a user"],
)
@pytest.mark.parametrize("send", [as_a_query, as_an_update])
def test_a_setting_holds_for_its_connection_alone(cluster, options, send):
    def time_zone(cursor):
        cursor.execute("SHOW timezone")
        return cursor.fetchone()[1]

    with (
        dbapi.connect(cluster.uri, db_kwargs=options, autocommit=True) as one,
        dbapi.connect(cluster.uri, db_kwargs=options, autocommit=True) as other,
        one.cursor() as cursor,
        other.cursor() as other_cursor,
    ):
        default = time_zone(cursor)
        send(one, "SET timezone = '+02:00'")
        assert time_zone(cursor) == "+02:00" != default
        assert time_zone(other_cursor) == default
        send(one, "RESET timezone")
        assert time_zone(cursor) == default


@pytest.mark.parametrize("send", [as_a_query, as_a_query_that_is_not_prepared, as_an_update])
@pytest.mark.parametrize(
    "statement",
    [
        "SELEC 1",
        "SELECT nme FROM {birds}",
        "SELECT 1 / (k - 3) FROM {birds}",
        "CREATE TABLE {birds} (k BIGINT) WITH (shard_key = 'k')",
        "CREATE VIEW nothing AS SELECT * FROM no_such_table",
        "DROP TABLE no_such_table",
        "COPY {birds} FROM '/etc/passwd'",
        "INSERT INTO {birds} (k) VALUES (NULL)",
        "INSERT INTO {birds} (k) SELECT 1 / (k - 3) FROM {birds}",
        "SET no_such_setting = 1",
        "USE no_such_schema",
    ],
)
def test_every_error_of_a_statement_names_one_query(driver, birds, statement, send):
    with pytest.raises((dbapi.Error, pa.ArrowException, OSError)) as caught:
        send(driver, statement.format(birds=birds))
    assert len(set(re.findall(r"query [0-9a-f]{8}-[0-9a-f-]{27}: ", str(caught.value)))) == 1


def test_a_setting_that_would_be_lost_is_refused_with_what_to_do(cluster):
    with (
        dbapi.connect(cluster.uri, db_kwargs=API_KEY, autocommit=True) as driver,
        driver.cursor() as cursor,
        pytest.raises(dbapi.ProgrammingError, match=r"INVALID_ARGUMENT: .*no session.*with_cookie_middleware"),
    ):
        cursor.execute("SET timezone = '+02:00'")


def test_a_connection_works_after_an_error(cursor):
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("SELECT * FROM no_such_table")
    cursor.execute("SELECT 1")
    assert cursor.fetchone() == (1,)


NEXT_KEY = "SELECT coalesce(max(k), 0) + 1 FROM {t}"


@pytest.mark.parametrize(
    ("insert", "rows"),
    [
        ("INSERT INTO {t} (k, name, price) VALUES (?, ?, ?)", [(1, "kea", 1.5), (2, None, None), (3, "tui", 2.5)]),
        ("INSERT INTO {t} (k, name) VALUES (? + 1, upper(?))", [(1, "kea"), (2, None)]),
        ("INSERT INTO {t} (k, price) VALUES (?, ? / 2)", [(1, 3), (2, 5)]),
        ("INSERT INTO {t} (k, price) VALUES (?, ? / 2)", [(1.0, 3.0), (2.5, 5.0)]),
        ("INSERT INTO {t} (k, price) VALUES ($2, $1), ($2 + 100, $1)", [(1.5, 1), (2.5, 2)]),
        ("INSERT INTO {t} (k, day) VALUES (?, ?)", [(1, NOON), (2, MIDNIGHT)]),
        ("INSERT INTO {t} (k, day) VALUES (?, ?)", [(1, "2026-01-01"), (2, "2026-01-02")]),
        # If the parameter were cast to a date, 12:00 and midnight would be equal.
        (
            "INSERT INTO {t} (k, price) VALUES (?, CASE WHEN ? > DATE '2026-01-01' THEN 1 ELSE 0 END)",
            [(1, NOON), (2, MIDNIGHT)],
        ),
        ("INSERT INTO {t} (k) SELECT column1 FROM (VALUES (?)) v", [(1,), (2,)]),
        (
            "INSERT INTO {t} (k, name) SELECT (" + NEXT_KEY + "), column1 FROM (VALUES (CAST(? AS VARCHAR))) v",
            [("a",), ("b",)],
        ),
        ("INSERT INTO {t} (k, name) SELECT ?, name FROM {t} WHERE k > ?", [(1, 0), (2, 0)]),
    ],
)
def test_many_rows_of_parameters_are_what_they_are_one_after_another(cursor, connection, empty_table, insert, rows):
    stored = []
    for many in (True, False):
        cursor.execute(
            f"CREATE OR REPLACE TABLE {empty_table} (k BIGINT NOT NULL, name VARCHAR, price DOUBLE, day DATE)"
        )
        if many:
            cursor.executemany(insert.format(t=empty_table), rows)
        else:
            for row in rows:
                cursor.execute(insert.format(t=empty_table), row)
        stored.append(connection.sql(f"SELECT * FROM {empty_table} ORDER BY k").rows())
    assert stored[0] == stored[1]


def test_none_of_many_rows_is_kept_if_one_is_wrong(cursor, connection, empty_table):
    with pytest.raises(dbapi.ProgrammingError, match="NOT NULL"):
        cursor.executemany(f"INSERT INTO {empty_table} (k, name) VALUES (?, ?)", [(1, "kea"), (None, "kaka")])
    assert connection.sql(f"SELECT count(*) FROM {empty_table}").rows() == [(0,)]
