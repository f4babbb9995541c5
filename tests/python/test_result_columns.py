"""Tests the names of the columns of results, which are those of their expressions, also where two of them are equal."""

from __future__ import annotations

import pytest

import volary

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def birds(cluster):
    with cluster.connect() as connection:
        connection.sql(
            "CREATE TABLE heard (k BIGINT NOT NULL, name VARCHAR, year INT) WITH (shard_key = 'k', shards = 4)"
        )
        connection.sql("INSERT INTO heard VALUES (1, 'kea', 2024), (2, 'tui', 2025), (3, 'kea', 2026)")
        yield "heard"
        connection.sql("DROP TABLE heard")


NAMES = {
    "SELECT 1, 'a', NULL, count(*), sum(k) FROM heard": ["1", "'a'", "NULL", "count(*)", "sum(k)"],
    "SELECT k + 1, heard.k, upper(name), -k FROM heard": ["k + 1", "k", "upper(name)", "-k"],
    "SELECT CAST(k AS VARCHAR), k, k::INT FROM heard": ["CAST(k AS VARCHAR)", "k", "k::INT"],
    "SELECT k AS key, key FROM (SELECT k AS key, k FROM heard)": ["key", "key"],
    "SELECT CASE WHEN k = 1 THEN 2 END, k IN (1, 2), k BETWEEN 1 AND 2 FROM heard": [
        "CASE WHEN k = 1 THEN 2 END",
        "k IN (1, 2)",
        "k BETWEEN 1 AND 2",
    ],
    "SELECT * FROM (SELECT k * 2, count(*) FROM heard GROUP BY k)": ["k * 2", "count(*)"],
    "WITH c AS (SELECT max(k) FROM heard) SELECT * FROM c": ["max(k)"],
    "SELECT (SELECT max(k) FROM heard), EXISTS (SELECT 1 FROM heard)": [
        "(SELECT max(k) FROM heard)",
        "EXISTS (SELECT 1 FROM heard)",
    ],
    "SELECT sum(k) FILTER (WHERE k > 1), row_number() OVER (ORDER BY count(*)) FROM heard": [
        "sum(k) FILTER (WHERE k > 1)",
        "row_number() OVER (ORDER BY count(*))",
    ],
    "SELECT k + 1 FROM heard UNION ALL SELECT 7": ["k + 1"],
    "SELECT DISTINCT k % 2 FROM heard ORDER BY k % 2": ["k % 2"],
    "SELECT unnest([1, 2]) AS item": ["item"],
    # Equal names.
    "SELECT k, k FROM heard ORDER BY k": ["k", "k"],
    "SELECT k, heard.k, name AS k FROM heard": ["k", "k", "k"],
    "SELECT p.*, p.year FROM heard p ORDER BY p.year": ["k", "name", "year", "year"],
    "SELECT year, p.* FROM heard p": ["year", "k", "name", "year"],
    "SELECT *, k + 1 AS k FROM heard": ["k", "name", "year", "k"],
    "SELECT 1, 1": ["1", "1"],
    "SELECT count(*), count(*) FROM heard GROUP BY year": ["count(*)", "count(*)"],
    "SELECT a.k, b.k FROM heard a JOIN heard b ON a.k = b.k": ["k", "k"],
    "SELECT a.*, b.*, a.k FROM heard a JOIN heard b ON a.k = b.k": ["k", "name", "year", "k", "name", "year", "k"],
    "SELECT k, k FROM heard UNION ALL SELECT 1, 1": ["k", "k"],
    "SELECT DISTINCT year, year FROM heard": ["year", "year"],
    "SELECT * FROM (SELECT 1, 1)": ["1", "1"],
}


@pytest.mark.parametrize("statement", NAMES)
def test_a_column_is_called_like_its_expression(connection, birds, statement):
    assert connection.sql(statement).schema.names == NAMES[statement]
    # The rows of statements that come again, and those that one worker sends alone, have the same names.
    assert connection.sql(statement).to_arrow().schema.names == NAMES[statement]
    assert connection.sql(statement, direct=True).to_arrow().schema.names == NAMES[statement]
    assert "\x1f" not in str(connection.explain(statement))


def test_equal_names_have_the_values_of_their_columns(connection, birds):
    def rows(statement: str) -> list[tuple]:
        return connection.sql(statement).rows()

    assert rows("SELECT k, year, k FROM heard ORDER BY k DESC LIMIT 1") == [(3, 2026, 3)]
    assert rows("SELECT p.*, p.year + 1 AS year FROM heard p WHERE k = 1") == [(1, "kea", 2024, 2025)]
    assert rows("SELECT year, p.* FROM heard p ORDER BY year LIMIT 1") == [(2024, 1, "kea", 2024)]
    assert rows("SELECT name, count(*), name, count(*) FROM heard GROUP BY name ORDER BY name") == [
        ("kea", 2, "kea", 2),
        ("tui", 1, "tui", 1),
    ]


def test_the_adbc_driver_and_dataframes_get_the_names(cursor, connection, birds):
    cursor.execute("SELECT k, k, count(*), 1 FROM heard GROUP BY k ORDER BY 1")
    assert [column[0] for column in cursor.description] == ["k", "k", "count(*)", "1"]
    assert cursor.fetchone() == (1, 1, 1, 1)
    frame = connection.sql("SELECT k, k FROM heard ORDER BY k").to_pandas()
    assert list(frame.columns) == ["k", "k"]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("CREATE TABLE twice AS SELECT k, k FROM heard", "k"),
        ("CREATE TABLE twice AS SELECT 1, 1", "1"),
        ("CREATE TABLE twice AS SELECT p.*, p.year FROM heard p", "year"),
        ("CREATE VIEW twice AS SELECT k, k FROM heard", "k"),
        ("CREATE VIEW twice AS SELECT a.k, b.k FROM heard a, heard b", "k"),
        ("CREATE VIEW twice AS SELECT p.*, p.year FROM heard p", "year"),
        ("CREATE VIEW twice AS SELECT count(*), count(*) FROM heard", r"count\(\*\)"),
        ("CREATE QUERY twice(a BIGINT) AS SELECT $a, $a", r"\$a"),
    ],
)
def test_what_is_kept_has_columns_of_different_names(connection, birds, statement, name):
    with pytest.raises(volary.InvalidArgumentError, match=rf"twice has two columns named {name};") as caught:
        connection.sql(statement)
    assert caught.value.sqlstate == "42701"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT k AS x, year AS x FROM heard ORDER BY x",
        "SELECT k AS x, year AS x FROM heard GROUP BY x, k, year",
        "SELECT a.k, b.k FROM heard a JOIN heard b ON a.k = b.k ORDER BY k",
    ],
)
def test_nothing_is_sorted_or_grouped_by_one_of_two_columns(connection, birds, statement):
    with pytest.raises(volary.InvalidArgumentError) as caught:
        connection.sql(statement)
    assert caught.value.sqlstate == "42702"


def test_a_view_has_the_names_of_its_expressions_and_keeps_its_text(connection, birds):
    connection.sql("CREATE VIEW counted AS SELECT name, count(*), max(k) + 1 FROM heard GROUP BY name")
    try:
        result = connection.sql("SELECT * FROM counted ORDER BY name")
        assert result.schema.names == ["name", "count(*)", "max(k) + 1"]
        assert result.rows() == [("kea", 2, 4), ("tui", 1, 3)]
        assert connection.sql('SELECT sum("count(*)") FROM counted').rows() == [(3,)]
        definition = "SELECT view_definition FROM information_schema.views WHERE table_name = 'counted'"
        ((text,),) = connection.sql(definition).rows()
        assert text == "SELECT name, count(*), max(k) + 1 FROM heard GROUP BY name"
    finally:
        connection.sql("DROP VIEW counted")
