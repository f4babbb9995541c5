"""Tests the types with which parameters are announced, and that values of other types are taken, too."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

import volary

pytestmark = pytest.mark.server

DAY = datetime.date(2026, 1, 2)


@pytest.fixture(scope="module", autouse=True)
def birds(cluster):
    with cluster.connect() as connection:
        connection.sql(
            "CREATE TABLE ringed (id BIGINT NOT NULL, name VARCHAR, day DATE, price DECIMAL(10, 2)) "
            "WITH (shard_key = 'id', shards = 4)"
        )
        connection.sql(
            "INSERT INTO ringed VALUES (1, 'kea', DATE '2026-01-02', 1.50), (2, 'tui', DATE '2026-02-02', 2.50), "
            "(3, NULL, NULL, NULL)"
        )
        yield
        connection.sql("DROP TABLE ringed")


# Each statement has the announced types, values, and the rows.
CASES = {
    "SELECT id FROM ringed ORDER BY id LIMIT ?": ([pa.int64()], (2,), [(1,), (2,)]),
    "SELECT id FROM ringed ORDER BY id LIMIT ? OFFSET ?": ([pa.int64()] * 2, (1, 1), [(2,)]),
    "SELECT id FROM ringed ORDER BY id OFFSET ? ROWS FETCH NEXT ? ROWS ONLY": ([pa.int64()] * 2, (1, 1), [(2,)]),
    "SELECT TOP (?) id FROM ringed ORDER BY id DESC": ([pa.int64()], (1,), [(3,)]),
    "SELECT CAST(? AS DATE)": ([pa.date32()], (DAY,), [(DAY,)]),
    # Clients are told BIGINT for all integers.
    "SELECT ?::INT": ([pa.int64()], (5,), [(5,)]),
    "SELECT CAST(? AS DECIMAL(10, 2))": (
        [pa.decimal128(10, 2)],
        (decimal.Decimal("1.25"),),
        [(decimal.Decimal("1.25"),)],
    ),
    "SELECT id FROM ringed WHERE (id, name) = (?, ?)": ([pa.int64(), pa.string()], (1, "kea"), [(1,)]),
    "SELECT ? + 1": ([pa.int64()], (5,), [(6,)]),
    "SELECT id FROM ringed WHERE id BETWEEN ? AND ? ORDER BY id": ([pa.int64()] * 2, (1, 2), [(1,), (2,)]),
    "SELECT ? IS NULL": ([pa.string()], (None,), [(True,)]),
    "SELECT COALESCE(?, id) FROM ringed WHERE id = 1": ([pa.int64()], (9,), [(9,)]),
    "SELECT COALESCE(?, day) FROM ringed WHERE id = 1": ([pa.date32()], (None,), [(DAY,)]),
    "SELECT NULLIF(id, ?) FROM ringed WHERE id = 1": ([pa.int64()], (1,), [(None,)]),
    "SELECT CASE WHEN id = ? THEN ? ELSE name END FROM ringed ORDER BY id": (
        [pa.int64(), pa.string()],
        (1, "kaka"),
        [("kaka",), ("tui",), (None,)],
    ),
    "SELECT CASE id WHEN ? THEN price ELSE ? END FROM ringed WHERE id = 2": (
        [pa.int64(), pa.decimal128(10, 2)],
        (1, decimal.Decimal("7.00")),
        [(decimal.Decimal("7.00"),)],
    ),
    "SELECT substr(name, ?, ?) FROM ringed WHERE id = 1": ([pa.int64()] * 2, (2, 1), [("e",)]),
    "SELECT upper(?)": ([pa.string()], ("kea",), [("KEA",)]),
    "SELECT id FROM ringed WHERE NOT ? ORDER BY id LIMIT 1": ([pa.bool_()], (False,), [(1,)]),
    "SELECT id FROM ringed WHERE ? AND id = 1": ([pa.bool_()], (True,), [(1,)]),
    "SELECT id FROM ringed WHERE day > ?": ([pa.date32()], (DAY,), [(2,)]),
    "SELECT id FROM ringed WHERE day = CAST(? AS DATE)": ([pa.date32()], (DAY,), [(1,)]),
    "SELECT id FROM ringed WHERE (? IS NULL OR name = ?) AND id = 2": ([pa.string()] * 2, (None, "x"), [(2,)]),
    "SELECT id FROM ringed WHERE (? IS NULL OR id = ?) AND id < 3 ORDER BY id": (
        [pa.int64()] * 2,
        (None, 7),
        [(1,), (2,)],
    ),
    "SELECT id FROM ringed WHERE id = ? OR ? IS NULL ORDER BY id": ([pa.int64()] * 2, (1, 2), [(1,)]),
    "SELECT sum(CASE WHEN id > ? THEN ? ELSE ? END) FROM ringed": (
        [pa.int64(), pa.float64(), pa.float64()],
        (1, 1, 0),
        [(2,)],
    ),
    "SELECT id FROM ringed WHERE id = CASE WHEN id > ? THEN ? ELSE ? END ORDER BY id": (
        [pa.int64()] * 3,
        (2, 3, 1),
        [(1,), (3,)],
    ),
    "SELECT round(?, ?), power(?, ?), abs(?)": (
        [pa.float64(), pa.int64(), pa.float64(), pa.float64(), pa.float64()],
        (1.25, 1, 2.0, 3.0, -1.5),
        [(1.3, 8.0, 1.5)],
    ),
    "SELECT lag(id, ?, ?) OVER (ORDER BY id), ntile(?) OVER (ORDER BY id) FROM ringed ORDER BY id": (
        [pa.int64()] * 3,
        (1, 0, 3),
        [(0, 1), (1, 2), (2, 3)],
    ),
    "SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN ? PRECEDING AND CURRENT ROW) FROM ringed WHERE id > ? "
    "ORDER BY id": ([pa.int64()] * 2, (1, 0), [(1, 1), (2, 2), (3, 2)]),
    "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM ringed) x WHERE n BETWEEN ? AND ?": (
        [pa.int64()] * 2,
        (2, 2),
        [(2,)],
    ),
    "SELECT v.a FROM (VALUES (?), (?)) v(a) JOIN ringed ON id = v.a": ([pa.int64()] * 2, (7, 2), [(2,)]),
    "SELECT id FROM ringed WHERE (id, name) IN ((?, ?), (?, ?))": (
        [pa.int64(), pa.string()] * 2,
        (1, "kea", 2, "kea"),
        [(1,)],
    ),
    "SELECT id FROM ringed WHERE ? BETWEEN id AND 2 ORDER BY id": ([pa.int64()], (1,), [(1,)]),
    "SELECT id FROM ringed WHERE name LIKE ? ESCAPE '!'": ([pa.string()], ("k%",), [(1,)]),
    "SELECT id FROM ringed WHERE name SIMILAR TO ?": ([pa.string()], ("(kea|kaka)",), [(1,)]),
    "SELECT ? || ?, ? || id, -?, ? / ? FROM ringed WHERE id = 1": (
        [pa.string()] * 3 + [pa.float64()] * 3,
        ("a", "b", "c", 1, 7, 2),
        [("ab", "c1", -1, 3)],
    ),
    "SELECT day + ? FROM ringed WHERE id = 1": ([pa.int64()], (1,), [(DAY + datetime.timedelta(days=1),)]),
    # Drivers cannot convert a value to an interval. They send a text.
    "SELECT CAST(day AS TIMESTAMP) + ? FROM ringed WHERE id = 1": (
        [pa.string()],
        ("1 day",),
        [(datetime.datetime(2026, 1, 3),)],
    ),
    "SELECT day + ? * INTERVAL '1 day' FROM ringed WHERE id = 1": (
        [pa.float64()],
        (2.5,),
        [(datetime.datetime(2026, 1, 4, 12),)],
    ),
    "SELECT id FROM ringed WHERE date_trunc('month', day) = date_trunc('month', ?)": (
        [pa.timestamp("ms")],
        (datetime.datetime(2026, 2, 7),),
        [(2,)],
    ),
    "SELECT id, name FROM ringed WHERE id = 1 UNION ALL SELECT ?, ? ORDER BY id": (
        [pa.int64(), pa.string()],
        (5, "kaka"),
        [(1, "kea"), (5, "kaka")],
    ),
    "SELECT id FROM ringed r WHERE id IN (SELECT id FROM ringed WHERE name = ? LIMIT ?)": (
        [pa.string(), pa.int64()],
        ("tui", 5),
        [(2,)],
    ),
}


@pytest.mark.parametrize("statement", CASES)
def test_a_parameter_has_the_type_of_its_place(cursor, connection, statement):
    types, values, rows = CASES[statement]
    announced = cursor.adbc_prepare(statement)
    assert announced.types == types
    cursor.execute(statement, values)
    assert cursor.fetchall() == rows
    assert connection.sql(statement, list(values)).rows() == rows


@pytest.mark.parametrize(
    ("statement", "value", "row"),
    [
        ("SELECT CAST(? AS DATE)", "2026-01-02", DAY),
        ("SELECT CAST(? AS INT)", 1.7, 1),
        ("SELECT CAST(? AS INT)", "12", 12),
        ("SELECT TRY_CAST(? AS INT)", "kea", None),
        ("SELECT CAST(? AS VARCHAR)", 12, "12"),
        ("SELECT CAST(? AS DECIMAL(10, 2))", 1.5, decimal.Decimal("1.50")),
        ("SELECT COALESCE(?, id) FROM ringed WHERE id = 1", 2.5, 2.5),
        ("SELECT id FROM ringed ORDER BY id LIMIT ?", "1", 1),
    ],
)
def test_a_value_of_another_type_counts_as_a_literal_would(connection, statement, value, row):
    assert connection.sql(statement, [value]).rows() == [(row,)]


def test_a_parameter_that_is_only_tested_for_null_takes_any_value(connection):
    statement = "SELECT id FROM ringed WHERE ? IS NULL OR id = ?"
    assert connection.sql(statement, ["any", 1]).rows() == [(1,)]


@pytest.mark.parametrize("days", [1, 1.0, datetime.timedelta(days=1), "1 day"])
def test_intervals_and_numbers_of_days_are_added_to_a_time(connection, days):
    statement = "SELECT TIMESTAMP '2026-01-01 00:00:00' + ?"
    assert connection.sql(statement, [days]).rows() == [(datetime.datetime(2026, 1, 2),)]


@pytest.mark.parametrize("days", [1, datetime.timedelta(days=1)])
def test_intervals_and_numbers_of_days_are_taken_from_a_time(connection, days):
    statement = "SELECT TIMESTAMP '2026-01-02 00:00:00' - ?"
    assert connection.sql(statement, [days]).rows() == [(datetime.datetime(2026, 1, 1),)]


@pytest.mark.parametrize("rows", [-1, None, "many"])
def test_a_frame_needs_a_number_of_rows(connection, rows):
    statement = "SELECT count(*) OVER (ORDER BY id ROWS BETWEEN ? PRECEDING AND CURRENT ROW) FROM ringed"
    with pytest.raises(volary.InvalidArgumentError, match="needs a number of rows"):
        connection.sql(statement, [rows])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT r.id FROM ringed r LEFT JOIN LATERAL (SELECT id FROM ringed s WHERE s.id < r.id LIMIT 1) x ON true",
        "SELECT id FROM ringed r WHERE (id, 'kea') IN (SELECT id, name FROM ringed s WHERE s.id = r.id)",
        "SELECT id FROM ringed WHERE (id, id) = (SELECT 1, 2)",
        "SELECT id FROM ringed WHERE name LIKE 'a' ESCAPE 'bc'",
        "{? = call f(1)}",
    ],
)
def test_what_cannot_run_is_refused_when_it_is_prepared(cursor, statement):
    with pytest.raises(Exception, match=r"not supported|ESCAPE takes one|only by IN"):
        cursor.adbc_prepare(statement)


def test_a_limit_that_is_no_number_is_refused(connection):
    with pytest.raises(volary.InvalidArgumentError, match="parameter 1 is VARCHAR, but the statement needs BIGINT"):
        connection.sql("SELECT id FROM ringed LIMIT ?", ["many"])


def test_rows_of_parameters_are_inserted_with_the_types_of_their_columns(cursor, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, day) SELECT ?, ?"
    assert cursor.adbc_prepare(insert).types == [pa.int64(), pa.date32()]
    connection.sql(insert, [7, "2026-03-04"])
    assert connection.sql(f"SELECT k, day FROM {empty_table}").rows() == [(7, datetime.date(2026, 3, 4))]
