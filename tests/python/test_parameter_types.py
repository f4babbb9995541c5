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


def test_a_limit_that_is_no_number_is_refused(connection):
    with pytest.raises(volary.InvalidArgumentError, match="parameter 1 is VARCHAR, but the statement needs BIGINT"):
        connection.sql("SELECT id FROM ringed LIMIT ?", ["many"])


def test_rows_of_parameters_are_inserted_with_the_types_of_their_columns(cursor, connection, empty_table):
    insert = f"INSERT INTO {empty_table} (k, day) SELECT ?, ?"
    assert cursor.adbc_prepare(insert).types == [pa.int64(), pa.date32()]
    connection.sql(insert, [7, "2026-03-04"])
    assert connection.sql(f"SELECT k, day FROM {empty_table}").rows() == [(7, datetime.date(2026, 3, 4))]
